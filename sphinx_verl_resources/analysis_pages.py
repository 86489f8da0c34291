"""The memory analysis on pages: directives, tables, formulas, and remarks on what verl does instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes

from .analysis import COMPONENTS, PER_GPU, Outcome, analyse, assumptions_of, judge
from .analysis_records import LIMITS, REQUIREMENTS, TOTAL
from .charts import formula_list, waterfall
from .diagnostics import NoAnswerError, did_you_mean, one_line
from .directive import ABOUT_TABLE, Option, VerlDirective, number, pieces
from .domain import page_link
from .i18n import N_, _, plural
from .nodes import (
    PATH_CLASS,
    Cell,
    bold,
    code_block,
    in_a_row,
    legend,
    listed,
    marks,
    notes_title,
    numbered_notes,
    recorded,
    table_group,
)
from .printed import LAUNCHER, nested_yaml, overrides
from .records import fold
from .selection import as_text, each_once, phrases, words
from .units import GB, gb, gb_number, share, short_number, signed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .analysis_records import Remark

CONFIG_CLASS = "verl-config"
WITHOUT_REMARKS = Option("no-remarks", "Leave out the remarks about differences from verl.")


def _up_to(name: str, meaning: str, default: str) -> Option:
    return Option(name, meaning, f"1 to {LIMITS[name]:,}", default, number(LIMITS[name]))


#: Options of every table of the analysis; the first three have the names in ``LIMITS``.
NUMBERS = (
    _up_to("gpus", "Number of GPUs.", "as recorded for the model, otherwise :verl:memory:`GPUs`"),
    _up_to("batch-size", "Sequences at a time.", ":verl:memory:`batch size`"),
    _up_to("sequence-length", "Tokens per sequence.", ":verl:memory:`sequence length`"),
    WITHOUT_REMARKS,
    *ABOUT_TABLE,
)


class AnalysisDirective(VerlDirective):
    """A directive with content from the analysis, and the remarks that its marks refer to."""

    reads = ("analysis", "config_keys")

    def content_above_remarks(self) -> list[nodes.Node]:
        """Return the content; ``marks`` numbers the remarks that it refers to."""
        raise NotImplementedError

    def show(self) -> list[nodes.Node]:
        """Return the content, and below it the remarks that are new on the page."""
        #: The numbers of the remarks on the page so far.
        self.numbers: dict[str, int] = self.env.temp_data.setdefault("verl_remarks", {})  # type: ignore[assignment, unused-ignore]
        listed_before = len(self.numbers)
        content, analysis = self.content_above_remarks(), self.data.analysis
        new = [analysis.remarks[name] for name in [*self.numbers][listed_before:]]
        if not new:
            return content
        title = _("Where verl works differently, as of {date}:").format(date=analysis.verl.date.isoformat())
        more = _("The estimator computes what verl really does, phase by phase.")
        about_estimator = page_link(self.env, self.domain.settings.estimator_page, more)
        notes = numbered_notes(*map(self._remark, new), start=listed_before + 1)
        return [*content, notes_title(title), notes, notes_title("", about_estimator)]

    def _remark(self, remark: Remark) -> nodes.paragraph:
        sources: list[nodes.Node] = []
        for source in remark.sources:
            name, address = source.text, source.url
            if source.path:
                name, ref = source.path.rsplit("/", 1)[-1], self.data.analysis.verl.ref
                address = self.domain.settings.links.file(ref, source.path, source.lines)
            link = nodes.reference("", name or "", refuri=address)
            sources += [nodes.Text(", " if sources else " ("), link]
        target = nodes.target("", "", ids=[f"verl-remark-{remark.name}"])
        text = [nodes.Text(one_line(remark.text)), *sources, nodes.Text(")")]
        return nodes.paragraph("", "", target, *text, translatable=0)

    def marks(self, subject: str) -> list[nodes.Node]:
        """Return the marks of the remarks about a subject; remarks that are new on the page get a number."""
        found = []
        for name, remark in self.data.analysis.remarks.items():
            if subject in remark.about and "no-remarks" not in self.given:
                count = self.numbers.setdefault(name, len(self.numbers) + 1)
                found.append((f"[{count}]", f"verl-remark-{name}"))
        return marks(*found)

    def outcome(self, name: str) -> Outcome:
        """Return the analysis of a model with the numbers and steps in the options."""
        return analyse(self.data.analysis, name, *map(self.values.get, (*LIMITS, "steps")))

    def asked(self) -> list[str]:
        """Return the names in the argument."""
        text = self.arguments[0] if self.arguments else ""
        return phrases(text) if "," in text else text.split()

    def own_models(self) -> list[str]:
        """Return the models with figures from the analysis itself, not from a checkpoint."""
        specifications = self.data.analysis.specifications.items()
        return [name for name, specification in specifications if specification.model is None]


def entry_of(entries: Mapping[str, Any], section: str, name: str) -> Any:
    """Return the entry of a section by its name.

    Raises:
        NoAnswerError: there is none.
    """
    for known, entry in entries.items():
        if fold(known) == fold(name):
            return entry
    message = f"{section!r} has no entry for {name!r}"
    raise NoAnswerError.because(message, did_you_mean(name, entries), code="unknown_size")


def read_steps(text: str) -> tuple[str, ...]:
    """Return the names of steps; none for ``none``."""
    found = each_once(words(text), str.lower, "name at least one step, or none")
    return () if found == ("none",) else found


class VerlMemory(AnalysisDirective):
    """The analysis of a model: components, chain and running totals."""

    directive = "verl-memory"
    takes = (
        Option(
            "steps", "Optimisations, in order.", "names, separated by commas, or ``none``", "all", read_steps
        ),
        pieces(
            "Parts, in order. The table follows the chart.", ("specification", "formulas", "chart", "table")
        ),
        *NUMBERS,
    )

    def content_above_remarks(self) -> list[nodes.Node]:
        """Return the requested pieces in the given order."""
        if not self.arguments:
            hint = "name a size class or a model, as in '.. verl-memory:: 8B', or set :run: or :model:"
            raise NoAnswerError.because(hint, code="unknown_size")
        one = self.outcome(one_line(self.arguments[0]))
        name, batch, length = one.shape.name, one.batch_size, one.sequence_length
        caption = plural(
            "{model}: memory for {batch} sequence of {length} tokens",
            "{model}: memory for {batch} sequences of {length} tokens",
            batch,
        ).format(model=name, batch=batch, length=length)
        if any(line.step and line.step.divide_by == "gpus" for line in one.steps):
            on_gpus = plural("{caption} on {count} GPU", "{caption} on {count} GPUs", one.gpus)
            caption = on_gpus.format(caption=caption, count=one.gpus)
        makers: dict[str, Callable[[], nodes.Node]] = {
            "specification": lambda: self._specification(one),
            "formulas": lambda: self._formulas(one),
            "chart": lambda: self.chart(waterfall(one.lines, caption), name),
            "table": lambda: self.table(self._waterfall(one), caption),
        }
        return [makers[piece]() for piece in self.values["show"]]

    def _specification(self, one: Outcome) -> nodes.table:
        """Return a table with one row per quantity, including those that no formula uses."""
        shape, show, unused = one.shape, short_number, _("not used by any formula")
        origin = _("of {checkpoint}").format(checkpoint=shape.checkpoint) if shape.checkpoint else ""
        ffn = show(shape.ffn_dimension) if shape.ffn_dimension else _("no dense layer")
        heads = show(shape.attention_heads) if shape.attention_heads else _("not recorded")
        facts = (
            (_("Parameters"), show(shape.parameters), origin, ""),
            (_("Hidden size"), show(shape.hidden_size), "", ""),
            (_("Layers"), show(shape.layers), "", ""),
            (_("FFN dimension"), ffn, unused, ""),
            (_("Attention heads"), heads, unused, ""),
            (_("Vocabulary"), show(shape.vocabulary_size), unused, "vocabulary-size"),
            (_("Sequences"), show(one.batch_size), _("on every GPU"), "batch-size"),
            (_("Tokens per sequence"), show(one.sequence_length), "", "sequence-length"),
            (_("GPUs"), show(one.gpus), "", "gpus"),
        )
        rows = [
            [Cell.of(name, self.marks(subject)), Cell.number(value), Cell.of(remark)]
            for name, value, remark, subject in facts
        ]
        inside = table_group([_("Quantity"), _("Value"), _("Remark")], rows)
        return self.table(inside, _("{model}: the model").format(model=shape.name), with_options=False)

    def _formulas(self, one: Outcome) -> nodes.definition_list:
        """Return the formulas of each component, of the total and of each step."""
        items = []
        for line in (line for line in one.lines if line.subject != PER_GPU):
            several = len(line.parts) > 1
            found = [(_(part.label) if several else "", part.equation(gb)) for part in line.parts]
            if line.step or not line.parts:  # with enough digits to add them up
                total = line.now.equation(lambda size: f"{size / GB:,.3f}".rstrip("0").rstrip("."), gb)
                found.append(("", total))
            # The marks are in the table if there is one.
            after = [] if "table" in self.values["show"] else self.marks(line.subject)
            items.append((line.label, found, after, line.step.text if line.step else ""))
        return formula_list(items)

    def _waterfall(self, one: Outcome) -> nodes.tgroup:
        """Return the rows of the lines, with running totals and the effect of each step."""
        rows, whole = [], one.start.total or 1.0
        for line in one.lines:
            if line.step and line.change:
                first, *others = (COMPONENTS[part.key] for part in line.parts)
                after = line.now.of([part.key for part in line.parts])
                names = listed([_(first[0]), *(_(inside) for _name, inside, _use in others)])
                before = gb_number(after - line.change)
                effect = _("{parts}: {before} → {after}").format(parts=names, before=before, after=gb(after))
            elif line.step:
                effect = _("no change")
            elif line.parts:
                effect = _("{share} of the total").format(share=share(line.change / whole))
            elif line.subject == PER_GPU:
                effect = _("{share} saved in total").format(share=share(-line.change / whole))
            else:
                effect = _("everything on one GPU")
            change = signed(line.change, gb_number) if line.change else ""
            cells = [Cell.of(line.label, self.marks(line.subject)), Cell.number(change)]
            cells.append(Cell.number(gb_number(line.now.total)))
            rows.append([*(cells if line.parts else bold(cells)), Cell.of(effect)])
        headings = [_("Part or step"), _("Change (GB)"), _("Running total (GB)"), _("Share or effect")]
        return table_group(headings, rows)


class VerlMemorySummary(AnalysisDirective):
    """A table with one model a row: its total, and the memory of a GPU after each step."""

    directive = "verl-memory-summary"
    takes = NUMBERS

    def content_above_remarks(self) -> list[nodes.Node]:
        """Return the table."""
        rows: list[list[Cell]] = []
        outcomes = [self.outcome(name) for name in self.asked() or self.own_models()]
        for one in outcomes:
            totals = [one.start.total, *(line.now.total for line in one.steps)]
            saved = share((one.start.total - one.end.total) / (one.start.total or 1.0))
            numbers = [short_number(one.gpus), *map(gb_number, totals), saved]
            rows.append([Cell.of(one.shape.name), *map(Cell.number, numbers)])
        headings = [Cell.of(_("Model")), Cell.of(_("GPUs"))]
        headings.append(Cell.of(_("All on one GPU (GB)"), self.marks(TOTAL)))
        for name, step in self.data.analysis.steps.items():
            headings.append(Cell.of(_("then {step} (GB)").format(step=step.label), self.marks(name)))
        inside = table_group([*headings, Cell.of(_("Saved"))], rows)
        content: list[nodes.Node] = [self.table(inside, _("GB per GPU, step by step"))]
        if len({one.gpus for one in outcomes}) > 1:
            text = _("The models use different numbers of GPUs, so the rows are not directly comparable.")
            content.append(legend(text))
        return content


#: The names of the requirement lists.
_LEVELS = {"minimum": N_("minimum"), "recommended": N_("recommended"), "optimal": N_("optimal")}


class VerlRequirements(AnalysisDirective):
    """A table of verdicts for each model."""

    directive = "verl-requirements"
    takes = (WITHOUT_REMARKS,)

    def content_above_remarks(self) -> list[nodes.Node]:
        """Return a legend, and a table with one row per claim and GPU for each model."""
        analysis = self.data.analysis
        text = _(
            "The limit is {share} % of the GPU's memory. By the chain, a GPU after all steps must stay below "
            "the limit. By the pool, the total before any step is divided by the limit, as if every part "
            "could be shared. Both columns show the smallest power of two; the verdict uses the chain. The "
            "last column lists the ways that give the claimed number."
        )
        limit = short_number(assumptions_of(analysis).memory_limit * 100)
        content: list[nodes.Node] = [legend(text.format(share=limit))]
        entries = analysis.requirements
        found = [entry_of(entries, "requirements", name) for name in self.asked() or entries]
        first = (_("List"), _("Printed claim"), _("GPU"), _("Limit (GB)"))
        last = (_("GPUs by the chain"), _("GPUs by the pool"), _("Verdict"), _("Same number from"))
        for name, claims in [(entry.name, judge(analysis, entry)) for entry in found]:
            rows = []
            for item in claims:
                gpu, verdict = item.gpu, _(item.judgement)
                for unknown in item.claim.unknown:
                    gpu = _("{gpu}; there is no {unknown}").format(gpu=gpu, unknown=unknown)
                if item.gpus:
                    verdict = _(item.reason).format(verdict=verdict, gpus=item.gpus, size=gb(item.size))
                counts = (short_number(count) if count else _("none") for count in (item.chain, item.pooled))
                numbers = (gb_number(item.limit), gb_number(item.per_gpu), *counts)
                cells = [Cell.of(_(_LEVELS[item.claim.level])), Cell.of(item.claim.text), Cell.of(gpu)]
                cells += map(Cell.number, numbers)
                cells.append(Cell([(verdict, None)], strong=item.judgement in {"too few", "never fits"}))
                rows.append([*cells, Cell.of(listed(map(_, item.same)) or _("none of these"))])
            marked = Cell.of(_("Per GPU (GB)"), self.marks(REQUIREMENTS))
            inside = table_group([*first, marked, *last], rows)
            caption = _("{model}: how many GPUs").format(model=name)
            content.append(self.table(inside, caption, with_options=False))
        return content


class VerlConfigAdvice(AnalysisDirective):
    """The settings advised for a model: as YAML, as overrides, and explained."""

    directive = "verl-config"
    takes = (pieces("Parts, in order.", ("yaml", "command-line", "table")), WITHOUT_REMARKS, *ABOUT_TABLE)

    def content_above_remarks(self) -> list[nodes.Node]:
        """Return the requested pieces in the given order."""
        configurations, unknown = self.data.analysis.configurations, _("unknown")
        if not self.arguments:
            message = f"name a model: {', '.join(configurations)}"
            raise NoAnswerError.because(message, code="unknown_size")
        record = entry_of(configurations, "configurations", self.arguments[0].strip())
        keys = {name: self.data.config_keys.get(name) for name in record.settings}
        new = {name for name, key in keys.items() if key and not key.in_yaml}
        command = " \\\n    ".join([LAUNCHER, *overrides(record.settings, new)])
        made: dict[str, nodes.Node] = {
            "yaml": code_block(nested_yaml(record.settings), "yaml", CONFIG_CLASS),
            "command-line": code_block(command, "bash", CONFIG_CLASS),
        }
        if "table" in self.values["show"]:
            rows = []
            for name, key in keys.items():
                known = (as_text(key.default), one_line(key.effect)) if key else (unknown, unknown)
                texts = map(Cell.of, (as_text(record.settings[name]), *known))
                rows.append([Cell.of(name, self.marks(name), PATH_CLASS), *texts])
            inside = table_group([_("Key"), _("Advised"), _("verl's default"), _("Effect on memory")], rows)
            made["table"] = self.table(inside, _("{model}: settings").format(model=record.name))
        return [made[piece] for piece in self.values["show"]]


#: The assumptions: the subject of remarks and the field, the name, and the text.
_ASSUMED = (
    ("parameters", "parameter_bytes", N_("Parameters"), N_("{size} bytes each ({precision})")),
    ("gradients", "gradient_bytes", N_("Gradients"), N_("{size} bytes each ({precision})")),
    ("optimizer", "optimizer_bytes", N_("Optimizer states ({optimizer})"),
     N_("{moments} moments of {size} bytes per parameter")),
    ("activations", "activation_bytes", N_("Activations, without checkpointing"),
     N_("{size} bytes per token, layer and hidden unit ({precision})")),
    ("kv-cache", "kv_cache_bytes", N_("KV cache, for the rollout"),
     N_("a key and a value of {size} bytes per token, layer and hidden unit ({precision})")),
    ("overhead", "overhead_gb", N_("System overhead"),
     N_("{size} per GPU for the CUDA context and libraries")),
    ("vocabulary-size", "vocabulary_size", N_("Vocabulary"), N_("{number} entries")),
    ("sequence-length", "sequence_length", N_("Sequence length"), N_("{number} tokens")),
    ("batch-size", "batch_size", N_("Batch size"), N_("{number} sequences")),
    ("ffn-ratio", "ffn_ratio", N_("FFN dimension"), N_("{number} × hidden size")),
    ("memory-limit", "memory_limit", N_("Memory to use"), N_("below {share} % of a GPU")),
    ("gpus", "gpus", N_("GPUs"), N_("{number}, unless the model has another number")),
)  # fmt: skip


class VerlAnalysis(AnalysisDirective):
    """One part of the analysis: assumptions, priorities, trade-offs or monitoring."""

    directive = "verl-analysis"
    takes = (WITHOUT_REMARKS, *ABOUT_TABLE)

    def content_above_remarks(self) -> list[nodes.Node]:
        """Return the part in the argument."""
        parts = {
            "assumptions": (_("Assumptions"), self._assumptions),
            "priorities": (_("What to switch on first"), self._priorities),
            "trade-offs": (_("Memory against speed"), self._trade_offs),
            "monitoring": (_("What to watch"), self._metrics),
        }
        name = self.arguments[0].strip().lower() if self.arguments else ""
        if name not in parts:
            message = f"unknown part {name!r}" if name else "name a part"
            raise NoAnswerError.because(message, did_you_mean(name, parts))
        content: list[nodes.Node] = []
        for item in self.data.analysis.commands.values() if name == "monitoring" else ():
            content.append(recorded(item.purpose, *self.marks(item.name)))
            content.append(code_block(item.command, "bash", CONFIG_CLASS))
        caption, rows = parts[name]
        return [*content, self.table(rows(), caption)]

    def _assumptions(self) -> nodes.tgroup:
        assumed = assumptions_of(self.data.analysis)
        shown = {name: value if isinstance(value, str) else short_number(value) for name, value in assumed}
        shown["overhead_gb"] = gb(assumed.overhead_gb * GB)
        shown["memory_limit"] = short_number(assumed.memory_limit * 100)
        shown["moments"] = shown["optimizer_moments"]
        rows = []
        for subject, field, name, text in _ASSUMED:
            name = _(name).format(optimizer=assumed.optimizer)
            value = _(text).format_map({**shown, **dict.fromkeys(("size", "number", "share"), shown[field])})
            rows.append([Cell.of(name, self.marks(subject)), Cell.of(value)])
        return table_group([_("Assumption"), _("Value")], rows)

    def _priorities(self) -> nodes.tgroup:
        known, outcomes = self.data.analysis.steps, [self.outcome(name) for name in self.own_models()]
        headings = [_("Saves by the rule, {model} (GB)").format(model=one.shape.name) for one in outcomes]
        changes = [{line.subject: gb_number(-line.change) for line in one.steps} for one in outcomes]
        rows = []
        for count, item in enumerate(self.data.analysis.priorities.values(), 1):
            label = known[item.name].label if item.name in known else item.name
            saved = (Cell.number(change.get(item.name, "")) for change in changes)
            cells = [Cell.of(f"{count}. {item.advice}"), Cell.of(label, self.marks(item.name))]
            rows.append(
                [
                    *cells,
                    Cell.of(one_line(item.reason)),
                    *saved,
                    Cell.of(", ".join(item.keys), (), PATH_CLASS),
                ]
            )
        return table_group([_("Priority"), _("Step"), _("Why"), *headings, _("Keys")], rows)

    def _trade_offs(self) -> nodes.tgroup:
        found = self.data.analysis.trade_offs.values()
        rows = [[Cell.of(item.change, self.marks(item.name)), item.gain, item.cost] for item in found]
        return table_group([_("Change"), _("Reduces"), _("Costs")], rows)

    def _metrics(self) -> nodes.tgroup:
        shared = short_number(assumptions_of(self.data.analysis).memory_limit * 100)
        limit = _("Below {share} % of the GPU's memory.").format(share=shared)
        rows = []
        for item in self.data.analysis.metrics.values():
            text = in_a_row(limit, item.text) if item.limited else item.text
            rows.append([Cell.of(item.label, self.marks(item.name)), Cell.of(one_line(text))])
        return table_group([_("Metric"), _("What to look for")], rows)
