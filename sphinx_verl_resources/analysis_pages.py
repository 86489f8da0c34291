"""The memory analysis on pages: directives, tables, formulas, and remarks on what verl does instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from docutils import nodes

from . import nodes as blocks
from .analysis import NUMBERS, PER_GPU, POWERS, Outcome, analyse, assumption_texts, require_complete, verdict
from .charts import formula, formula_list, waterfall
from .diagnostics import NoAnswerError, did_you_mean, one_line
from .directive import ABOUT_TABLE, Option, VerlDirective, choices
from .domain import ESTIMATOR, LABEL, link_later
from .i18n import N_, _
from .nodes import Cell, table_group
from .records import fold
from .registries import LIMITS, REQUIREMENTS, TOTAL, Requirement
from .selection import as_text, each_once, whole_number, words
from .texts import LAUNCHER, nested_yaml, overrides
from .units import GB, MIB, gb, gb_number, share, short_number, signed

WITHOUT_REMARKS = Option("no-remarks", "Leave out the remarks about differences from verl.")


def _up_to(name: str, meaning: str, default: str) -> Option:
    return Option(name, meaning, f"1 to {LIMITS[name]:,}", default, partial(whole_number, most=LIMITS[name]))


#: Options of every table of the analysis; the first three have the names in ``LIMITS``.
NUMBER_OPTIONS = (
    _up_to("gpus", "Number of GPUs.", "as recorded for the model, otherwise :verl:memory:`GPUs`"),
    _up_to("batch-size", "Sequences at a time.", ":verl:memory:`batch size`"),
    _up_to("sequence-length", "Tokens per sequence.", ":verl:memory:`sequence length`"),
    WITHOUT_REMARKS,
    *ABOUT_TABLE,
)


class AnalysisDirective(VerlDirective):
    """A directive with content from the analysis, and the remarks that its marks refer to."""

    reads: tuple[str, ...] = ("analysis", "config_keys")

    def content_above_remarks(self) -> list[nodes.Node]:
        """Return the content; ``marks`` numbers the remarks that it refers to."""
        raise NotImplementedError

    def show(self) -> list[nodes.Node]:
        """Return the content, and below it the remarks that are new on the page."""
        # The numbers of the remarks on the page so far; those of a directive with errors are not kept.
        page: dict[str, int] = self.env.temp_data.setdefault("verl_remarks", {})  # type: ignore[assignment, unused-ignore]
        require_complete(self.data.analysis)
        self.numbers = {**page}
        content = self.content_above_remarks()
        new = [*self.numbers][len(page) :]
        if not new:
            return content
        date = self.data.analysis.verl.date.isoformat()
        title = _("Where verl works differently, as of {date}:").format(date=date)
        more = _("The estimator computes what verl really does, phase by phase.")
        about_estimator = link_later(self.env, LABEL, ESTIMATOR, more)
        notes = blocks.numbered_notes(*map(self._remark, new), start=len(page) + 1)
        page |= self.numbers
        return [*content, blocks.notes_title(title), notes, blocks.notes_title("", about_estimator)]

    def _remark(self, name: str) -> nodes.paragraph:
        remark, verl, links = self.data.analysis.remarks[name], self.data.analysis.verl, []
        for source in remark.sources:
            path, file = source.path or "", self.domain.links.file
            address = file(verl.ref, path, source.lines) if path else source.url
            links.append(nodes.reference("", source.text or path.rsplit("/", 1)[-1], refuri=address))
        target = nodes.target("", "", ids=[f"verl-remark-{name}"])
        text = nodes.Text(f"{one_line(remark.text)} (")
        return blocks.recorded("", target, text, *blocks.between_commas(links), nodes.Text(")"))

    def marks(self, subject: str) -> list[nodes.Node]:
        """Return the marks of the remarks about a subject; remarks that are new on the page get a number."""
        places = []
        for name, remark in self.data.analysis.remarks.items():
            if subject in remark.about and "no-remarks" not in self.texts:
                count = self.numbers.setdefault(name, len(self.numbers) + 1)
                places.append((f"[{count}]", f"verl-remark-{name}"))
        return blocks.marks(*places)

    def marked(self, text: str, subject: str) -> Cell:
        """Make a cell with the marks of the remarks about its subject."""
        return Cell.of(text, self.marks(subject))

    def outcome(self, name: str) -> Outcome:
        """Return the analysis of a model with the numbers and steps in the options."""
        limits = {option: self.values[option] for option in LIMITS if option in self.texts}
        return analyse(self.data.analysis, name, limits, self.values.get("steps"))


def entry_of(entries: Mapping[str, Any], section: str, name: str) -> Any:
    """Return the entry of a section by its name.

    Raises:
        NoAnswerError: there is none.
    """
    for word, entry in entries.items():
        if fold(word) == fold(name):
            return entry
    message = f"{section!r} has no entry for {name!r}"
    raise NoAnswerError.because(message, did_you_mean(name, entries), code="unknown_size")


def read_steps(text: str) -> tuple[str, ...]:
    """Return the names of steps; none for ``none``."""
    steps = each_once(words(text), str.lower, "name at least one step, or none")
    return () if steps == ("none",) else steps


class VerlMemory(AnalysisDirective):
    """The analysis of a model: components, chain and running totals."""

    directive = "verl-memory"
    takes = (
        Option("steps", "Optimisations, in order.", "names with commas, or ``none``", "all", read_steps),
        choices("Parts, in order; a chart needs the table.", ("specification", "formulas", "chart", "table")),
        *NUMBER_OPTIONS,
    )

    def content_above_remarks(self) -> list[nodes.Node]:
        """Return the requested pieces in the given order."""
        one = self.outcome(one_line(self.arguments[0]))
        numbers = {name.replace("-", "_"): short_number(number) for name, number in one.numbers.items()}
        caption = _(
            "{model}: memory, batch size {batch_size}, sequence length {sequence_length}, GPUs {gpus}"
        )
        caption = caption.format(model=one.name, **numbers)
        makers: dict[str, Callable[[], nodes.Node]] = {
            "specification": lambda: self._specification(one),
            "formulas": lambda: self._formulas(one),
            "chart": lambda: self.chart(waterfall(one.lines, caption), one.name),
            "table": lambda: self.table(self._waterfall(one), caption),
        }
        return [makers[piece]() for piece in self.values["show"]]

    def _specification(self, one: Outcome) -> nodes.table:
        """Return a table with one row per number, including those that no formula uses."""
        rows = [
            [self.marked(_(NUMBERS[name]), name), Cell.number(short_number(number) if number else "")]
            for name, number in one.numbers.items()
        ]
        inside = table_group([_("Quantity"), _("Value")], rows)
        model = one.name if one.checkpoint in {"", one.name} else f"{one.name} ({one.checkpoint})"
        return self.table(inside, _("{model}: the model").format(model=model), with_options=False)

    def _formulas(self, one: Outcome) -> nodes.definition_list:
        """Return the formulas of each component, of the total and of each step."""
        items = []
        for line in (line for line in one.lines if line.subject != PER_GPU):
            paragraphs = [blocks.recorded(line.step.text)] if line.step else []
            form = _("{title}: {text}") if len(line.parts) > 1 else "{text}"
            paragraphs += [
                formula(form.format(title=_(part.label), text=part.equation(gb))) for part in line.parts
            ]
            if line.step or not line.parts:  # with enough digits to add them up
                total = line.now.equation(lambda size: f"{size / GB:,.3f}".rstrip("0").rstrip("."), gb)
                paragraphs.append(formula(total))
            # The marks are in the table if there is one.
            after = [] if "table" in self.values["show"] else self.marks(line.subject)
            items.append((nodes.term("", line.label, *after), paragraphs))
        return formula_list(items)

    def _waterfall(self, one: Outcome) -> nodes.tgroup:
        """Return the rows of the lines, with running totals and the effect of each step."""
        rows, whole = [], one.start.total or 1.0
        for line in one.lines:
            effect = ""
            if line.step:
                after = line.now.of([part.key for part in line.parts])
                names = blocks.listed(_(part.label) for part in line.parts)
                before = gb_number(after - line.change)
                effect = _("{parts}: {before} → {after}").format(parts=names, before=before, after=gb(after))
            elif line.parts:
                effect = _("{share} of the total").format(share=share(line.change / whole))
            elif line.subject == PER_GPU:
                effect = _("{share} saved in total").format(share=share(abs(line.change) / whole))
            change = Cell.number(signed(line.change, gb_number) if line.change else "")
            cells = [self.marked(line.label, line.subject), change, Cell.number(gb_number(line.now.total))]
            rows.append([*(cells if line.parts else blocks.bold(cells)), Cell.of(effect)])
        headings = [_("Part or step"), _("Change (GB)"), _("Running total (GB)"), _("Share or effect")]
        return table_group(headings, rows)


class VerlMemorySummary(AnalysisDirective):
    """A table with one model a row: its total, and the memory of a GPU after each step."""

    directive = "verl-memory-summary"
    takes = NUMBER_OPTIONS

    def content_above_remarks(self) -> list[nodes.Node]:
        """Return the table."""
        specifications, rows = self.data.analysis.specifications, list[list[Cell]]()
        own = [name for name, entry in specifications.items() if entry.model is None]
        for one in map(self.outcome, words(" ".join(self.arguments)) or own):
            totals = [one.start.total, *(line.now.total for line in one.lines if line.step)]
            saved = share((one.start.total - one.end.total) / (one.start.total or 1.0))
            numbers = [short_number(one.numbers["gpus"]), *map(gb_number, totals), saved]
            rows.append([Cell.of(one.name), *map(Cell.number, numbers)])
        headings = [Cell.of(_("Model")), Cell.of(_("GPUs")), self.marked(_("All on one GPU (GB)"), TOTAL)]
        for name, step in self.data.analysis.steps.items():
            headings.append(self.marked(_("then {step} (GB)").format(step=step.label), name))
        headings.append(Cell.of(_("Saved")))
        return [self.table(table_group(headings, rows), _("GB per GPU, step by step"))]


#: The names of the requirement lists.
_LEVELS = {"minimum": N_("minimum"), "recommended": N_("recommended"), "optimal": N_("optimal")}


class VerlRequirements(AnalysisDirective):
    """A table of verdicts for each model."""

    directive = "verl-requirements"
    reads = (*AnalysisDirective.reads, "gpus")
    takes = (WITHOUT_REMARKS,)

    def content_above_remarks(self) -> list[nodes.Node]:
        """Return a table with one row per claim and GPU for each model."""
        analysis, content = self.data.analysis, list[nodes.Node]()
        limit = _("{share} of the GPU (GB)").format(share=assumption_texts(analysis)["memory_limit"])
        for name in words(" ".join(self.arguments)) or analysis.requirements:
            entry = entry_of(analysis.requirements, "requirements", name)
            per_gpu = self.marked(_("Per GPU (GB)"), REQUIREMENTS)
            headings = (_("List"), _("Claim"), _("GPU"), limit, per_gpu, _("GPUs needed"), _("Verdict"))
            caption = _("{model}: how many GPUs").format(model=entry.name)
            content.append(self.table(table_group(headings, self._rows(entry)), caption, with_options=False))
        return content

    def _rows(self, requirement: Requirement) -> Iterator[list[Cell]]:
        """Yield a row for each claim about a model and each GPU in it."""
        analysis, claims = self.data.analysis, requirement.claims
        counts = (*POWERS, *(claim.count for claim in claims))
        sizes = {count: analyse(analysis, requirement.name, {"gpus": count}).end.total for count in counts}
        for claim in claims:
            for gpu in filter(None, map(analysis.gpus.get, claim.gpus)):  # without GPUs that have errors
                limit, size = analysis.assumptions.memory_limit * gpu.memory_mib * MIB, sizes[claim.count]
                enough, text = verdict(sizes, claim.count, limit)
                names = [gpu.name, *(_("there is no {gpu}").format(gpu=unknown) for unknown in claim.unknown)]
                texts = (_(_LEVELS[claim.level]), claim.text, "; ".join(names))
                needed = short_number(enough) if enough else _("none")
                numbers = map(Cell.number, (gb_number(limit), gb_number(size), needed))
                yield [*map(Cell.of, texts), *numbers, Cell([(text, None)], strong=size >= limit)]


class VerlConfigAdvice(AnalysisDirective):
    """The settings advised for a model: as YAML, as overrides, and explained."""

    directive = "verl-config"
    takes = (choices("Parts, in order.", ("yaml", "command-line", "table")), WITHOUT_REMARKS, *ABOUT_TABLE)

    def content_above_remarks(self) -> list[nodes.Node]:
        """Return the requested pieces in the given order."""
        configurations, unknown = self.data.analysis.configurations, _("unknown")
        if not self.arguments:
            raise NoAnswerError.because(f"name a model: {', '.join(configurations)}", code="unknown_size")
        record = entry_of(configurations, "configurations", self.arguments[0].strip())
        keys = {name: self.data.config_keys.get(name) for name in record.settings}
        new = {name for name, key in keys.items() if key and not key.in_yaml}
        command = " \\\n    ".join([LAUNCHER, *overrides(record.settings, new)])
        pieces: dict[str, nodes.Node] = {
            "yaml": blocks.code_block(nested_yaml(record.settings), "yaml", self.directive),
            "command-line": blocks.code_block(command, "bash", self.directive),
        }
        if "table" in self.values["show"]:
            rows = []
            for name, key in keys.items():
                cells = (as_text(key.default), one_line(key.effect)) if key else (unknown, unknown)
                texts = map(Cell.of, (as_text(record.settings[name]), *cells))
                rows.append([Cell.of(name, self.marks(name), blocks.PATH_CLASS), *texts])
            inside = table_group([_("Key"), _("Advised"), _("verl's default"), _("Effect on memory")], rows)
            pieces["table"] = self.table(inside, _("{model}: settings").format(model=record.name))
        return [pieces[piece] for piece in self.values["show"]]


#: The assumptions: the subject of remarks, the name, and the text with fields of ``Assumptions``.
_ASSUMED = (
    ("", N_("Number format"), "{precision}"),
    ("parameters", N_("Parameters"), N_("{parameter_bytes} bytes each")),
    ("gradients", N_("Gradients"), N_("{gradient_bytes} bytes each")),
    ("optimizer", N_("Optimizer states"), N_("{optimizer_moments} × {optimizer_bytes} bytes ({optimizer})")),
    ("activations", N_("Activations"), N_("{activation_bytes} bytes per token, layer and hidden unit")),
    ("kv-cache", N_("KV cache"), N_("2 × {kv_cache_bytes} bytes per token, layer and hidden unit")),
    ("overhead", N_("System overhead"), N_("{system_overhead} per GPU for the CUDA context and libraries")),
    ("vocabulary-size", N_("Vocabulary"), N_("{vocabulary_size} entries")),
    ("sequence-length", N_("Sequence length"), N_("{sequence_length} tokens")),
    ("batch-size", N_("Batch size"), N_("{batch_size} sequences")),
    ("ffn-ratio", N_("FFN dimension"), N_("{ffn_ratio} × hidden size")),
    ("memory-limit", N_("Memory to use"), N_("below {memory_limit} of a GPU")),
    ("gpus", N_("GPUs"), N_("{gpus}, unless the model has another number")),
)


class VerlAnalysis(AnalysisDirective):
    """One part of the analysis: assumptions, priorities, trade-offs or monitoring."""

    directive = "verl-analysis"
    takes = (WITHOUT_REMARKS, *ABOUT_TABLE)

    def content_above_remarks(self) -> list[nodes.Node]:
        """Return the part in the argument."""
        analysis, texts = self.data.analysis, assumption_texts(self.data.analysis)
        limit = _("Below {share} of the GPU's memory.").format(share=texts["memory_limit"])
        labels = {name: step.label for name, step in analysis.steps.items()}
        parts: dict[str, tuple[str, Iterable[Any], list[tuple[str, Callable[[Any], Cell | str]]]]] = {
            "assumptions": (_("Assumptions"), _ASSUMED, [
                (_("Assumption"), lambda item: self.marked(_(item[1]), item[0])),
                (_("Value"), lambda item: _(item[2]).format_map(texts)),
            ]),
            "priorities": (_("What to switch on first"), analysis.priorities.values(), [
                (_("Priority"), lambda item: item.advice),
                (_("Step"), lambda item: self.marked(labels.get(item.name, item.name), item.name)),
                (_("Why"), lambda item: one_line(item.reason)),
                (_("Keys"), lambda item: Cell.of(", ".join(item.keys), (), blocks.PATH_CLASS)),
            ]),
            "trade-offs": (_("Memory against speed"), analysis.trade_offs.values(), [
                (_("Change"), lambda item: self.marked(item.change, item.name)),
                (_("Reduces"), lambda item: item.gain),
                (_("Costs"), lambda item: item.cost),
            ]),
            "monitoring": (_("What to watch"), analysis.metrics.values(), [
                (_("Metric"), lambda item: self.marked(item.label, item.name)),
                (_("What to look for"), lambda item: f"{limit} {item.text}" if item.limited else item.text),
            ]),
        }  # fmt: skip
        name = self.arguments[0].strip().lower() if self.arguments else ""
        if name not in parts:
            message = f"unknown part {name!r}" if name else "name a part"
            raise NoAnswerError.because(message, did_you_mean(name, parts))
        content: list[nodes.Node] = []
        for item in analysis.commands.values() if name == "monitoring" else ():
            content.append(blocks.recorded(item.purpose, *self.marks(item.name)))
            content.append(blocks.code_block(item.command, "bash", VerlConfigAdvice.directive))
        caption, items, columns = parts[name]
        rows = [[make(item) for _heading, make in columns] for item in items]
        return [*content, self.table(table_group([heading for heading, _make in columns], rows), caption)]
