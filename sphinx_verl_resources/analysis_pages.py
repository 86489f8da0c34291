"""The memory analysis on pages: directives, tables, formulas, and remarks on what verl does instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes

from . import selection
from .analysis import (
    Outcome,
    StepTaken,
    analyse,
    assumptions_of,
    entry_of,
    judge,
    own_models,
    sharing_steps,
)
from .analysis_records import LIMITS, REQUIREMENTS, key_problem
from .analysis_tables import (
    assumption_texts,
    bar_label,
    formula_list,
    memory_caption,
    requirement_rows,
    specification_rows,
    summary_rows,
    waterfall_rows,
)
from .charts import waterfall
from .diagnostics import Diagnostic, Location, NoAnswerError, Severity, did_you_mean
from .directive import ABOUT_TABLE, Option, VerlDirective, choices, number, pieces
from .fields import as_text
from .i18n import _
from .nodes import (
    Cell,
    code_block,
    column_table,
    in_a_row,
    legend,
    marks,
    notes_title,
    numbered_notes,
    one_line,
    recorded,
)
from .references import page_link
from .settings_text import LAUNCHER, nested_yaml, overrides
from .units import gb_number, short_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .analysis_records import Remark, Source
    from .analysis_tables import Marks


CONFIG_CLASS = "verl-config"

# -- directives

WITHOUT_REMARKS = Option(
    "no-remarks",
    "Leave out the remarks about differences from verl. Otherwise a page shows each remark once, below the "
    "first directive that refers to it.",
)
#: Options of every table of the analysis; the first three have the names in ``LIMITS``.
NUMBERS = (
    *(
        Option(name, meaning, f"1 to {LIMITS[name]:,}", default, number(LIMITS[name]))
        for name, meaning, default in (
            (
                "gpus",
                "Number of GPUs that share the model.",
                "as recorded for the model, otherwise :verl:memory:`GPUs`",
            ),
            ("batch-size", "Sequences at a time.", ":verl:memory:`batch size`"),
            ("sequence-length", "Tokens per sequence.", ":verl:memory:`sequence length`"),
        )
    ),
    Option("gib", "Show sizes in GiB too.", about_table=True),
    WITHOUT_REMARKS,
    *ABOUT_TABLE,
)


class AnalysisDirective(VerlDirective):
    """A directive with content from the analysis."""

    reads = ("analysis", "config_keys")

    def models(self, default: Sequence[str]) -> Sequence[str]:
        """Return the models in the argument, or the default without one.

        Raises:
            NoAnswerError: a model occurs twice, or the argument contains none.
        """
        if not self.arguments:
            return default
        text = one_line(self.arguments[0])
        if text.casefold() in map(str.casefold, self.data.analysis.specifications):
            return [text]
        words = selection.phrases(text) if "," in text else text.split()
        return selection.names(words, "name at least one model, or leave the argument out", "the model ")

    def of_each(self, models: Iterable[Any], function: Callable[[Any], Any]) -> list[Any]:
        """Return the result of a function for each model, and record what has none."""
        results = []
        for name in models:
            with self.noted():
                results.append(function(name))
        return results

    def outcome(self, name: str, steps: Iterable[str] | None = None) -> Outcome:
        """Return the analysis of a model with the numbers in the options."""
        gpus, batch_size, sequence_length = map(self.values.get, LIMITS)
        return analyse(self.data.analysis, name, gpus, batch_size, sequence_length, steps)

    def marks(self, subject: str) -> list[nodes.Node]:
        """Return the marks of the remarks about a subject; ``with_remarks`` numbers and lists them."""
        if "no-remarks" in self.given:
            return []
        remarks = self.data.analysis.remarks.values()
        return marks(*(("[00]", _anchor(remark)) for remark in remarks if subject in remark.about))

    def with_remarks(self, content: Iterable[nodes.Node]) -> list[nodes.Node]:
        """Number the marks in the content, and list remarks below the first directive of a page with them."""
        content, analysis = list(content), self.data.analysis
        numbers: dict[str, int] = self.env.temp_data.setdefault("verl_remarks", {})  # type: ignore[assignment, unused-ignore]
        listed_before = len(numbers)
        for node in content:
            for mark in node.findall(nodes.reference):
                if "verl-mark" in mark["classes"]:
                    count = numbers.setdefault(mark["refid"], len(numbers) + 1)
                    mark.replace(mark.children[0], nodes.Text(f"[{count}]"))
        new = [*numbers][listed_before:]
        if not new:
            return content
        by_anchor = {_anchor(remark): remark for remark in analysis.remarks.values()}
        title = _("Where verl works differently:")
        if analysis.verl:
            date = analysis.verl.date.isoformat()
            title = _("Where verl works differently, as of {date}:").format(date=date)
        notes = numbered_notes(
            *(self._remark(anchor, by_anchor[anchor]) for anchor in new), start=numbers[new[0]]
        )
        more = _("The estimator computes what verl really does, phase by phase.")
        about_estimator = page_link(self.env, self.domain.settings.estimator_page, more)
        return [*content, notes_title(title), notes, notes_title(about_estimator)]

    def _remark(self, anchor: str, remark: Remark) -> nodes.paragraph:
        sources: list[nodes.Node] = []
        for source in remark.sources:
            sources += [nodes.Text(", " if sources else " ("), self._source(source)]
        target = nodes.target("", "", ids=[anchor])
        return nodes.paragraph(
            "", "", target, nodes.Text(one_line(remark.text)), *sources, nodes.Text(")"), translatable=0
        )

    def _source(self, source: Source) -> nodes.Node:
        if source.path is None:
            return nodes.reference("", source.text or "", refuri=source.url)
        name, verl = source.path.rsplit("/", 1)[-1], self.data.analysis.verl
        if verl is None:
            return nodes.Text(name)
        address = self.domain.settings.links.file(verl.ref, source.path, source.lines)
        return nodes.reference("", name, refuri=address)


def _anchor(remark: Remark) -> str:
    return f"verl-remark-{remark.name}"


class VerlMemory(AnalysisDirective):
    """The analysis of a model: components, chain and running totals."""

    directive = "verl-memory"
    takes = (
        Option(
            "steps",
            "Optimisations to apply, in this order.",
            "names of steps, separated by commas, or ``none``",
            "all: ``fsdp``, ``gradient-checkpointing``, ``activation-offload``, ``dynamic-batching``",
        ),
        pieces(
            "Parts to show, in this order. ``chart`` is drawn in HTML only and followed by the table, unless "
            "``table`` is listed too.",
            ("specification", "formulas", "chart", "table"),
        ),
        *NUMBERS,
    )

    def show(self) -> list[nodes.Node]:
        """Return the requested pieces in the given order."""
        if not self.arguments:
            hint = "name a size class or a model, as in '.. verl-memory:: 8B', or set :run: or :model:"
            raise NoAnswerError.because(hint, code="unknown_size")
        steps: tuple[str, ...] | None = None
        with self.noted("steps"):
            steps = self._steps()
        with self.noted("gpus"):
            self._check_sharing(steps)
        outcome = self.outcome(one_line(self.arguments[0]), steps)
        caption, shown = memory_caption(outcome), self.values["show"]
        # The marks are in the table if there is one.
        elsewhere: Marks = (lambda _subject: []) if "table" in shown else self.marks
        specification = _("{model}: the model").format(model=outcome.shape.name)
        makers: dict[str, Callable[[], nodes.Node]] = {
            "specification": lambda: self.table(
                specification_rows(outcome, self.marks), specification, with_options=False
            ),
            "formulas": lambda: formula_list(outcome, elsewhere),
            "chart": lambda: self.chart(
                waterfall(outcome.waterfall(), bar_label, caption), outcome.shape.name
            ),
            "table": lambda: self.table(
                waterfall_rows(outcome, self.marks, with_gib="gib" in self.given), caption
            ),
        }
        return self.with_remarks(makers[piece]() for piece in shown)

    def _steps(self) -> tuple[str, ...] | None:
        text = self.given.get("steps")
        if text is None or text.strip().lower() == "none":
            return None if text is None else ()
        return choices(self.data.analysis.steps, "none")(text)

    def _check_sharing(self, steps: tuple[str, ...] | None) -> None:
        """Refuse a number of GPUs if no step shares anything among them."""
        sharing = sharing_steps(self.data.analysis)
        taken = self.data.analysis.steps if steps is None else steps
        if "gpus" in self.given and not sharing.keys() & set(taken):
            needed = " or ".join(map(repr, sharing)) or "that shares something among GPUs"
            message = f"has no effect without the step {needed}"
            raise NoAnswerError.because(message, "add it, or remove :gpus:")


class VerlMemorySummary(AnalysisDirective):
    """A table with one model a row."""

    directive = "verl-memory-summary"
    takes = NUMBERS

    def show(self) -> list[nodes.Node]:
        """Return the table."""
        outcomes = self.of_each(self.models(own_models(self.data.analysis)), self.outcome)
        if self.problems:
            return []
        rows = summary_rows(outcomes, self.marks, with_gib="gib" in self.given)
        table: list[nodes.Node] = [self.table(rows, _("GB per GPU, step by step"))]
        if len({outcome.gpus for outcome in outcomes}) > 1:
            text = _("The models use different numbers of GPUs, so the rows are not directly comparable.")
            table.append(legend(text))
        return self.with_remarks(table)


class VerlRequirements(AnalysisDirective):
    """A table of verdicts for each model."""

    directive = "verl-requirements"
    takes = (WITHOUT_REMARKS,)

    def show(self) -> list[nodes.Node]:
        """Return a legend, a table for each model, and remarks."""
        analysis = self.data.analysis
        entries = self.of_each(
            self.models(tuple(analysis.requirements)),
            lambda name: entry_of(analysis.requirements, "requirements", name),
        )
        judged = self.of_each(entries, lambda entry: (entry.name, judge(analysis, entry)))
        if self.problems:
            return []
        tables = (
            self.table(
                requirement_rows(claims, self.marks(REQUIREMENTS)),
                _("{model}: how many GPUs").format(model=name),
                with_options=False,
            )
            for name, claims in judged
        )
        limit = short_number(assumptions_of(analysis).memory_limit * 100)
        text = _(
            "The limit is {share} % of the GPU's memory. By the chain, a GPU after all steps must stay below "
            "the limit. By the pool, the total before any step is divided by the limit, as if every part "
            "could be shared. Both columns show the smallest power of two; the verdict uses the chain. The "
            "last column lists the ways that give the claimed number."
        )
        return self.with_remarks([legend(text.format(share=limit)), *tables])


class VerlConfigAdvice(AnalysisDirective):
    """The settings advised for a model: as YAML, as overrides, and explained."""

    directive = "verl-config"
    takes = (
        pieces(
            "Parts to show, in this order: the settings to copy, as YAML or as overrides, and a table of "
            "what each key does.",
            ("yaml", "command-line", "table"),
        ),
        WITHOUT_REMARKS,
        *ABOUT_TABLE,
    )

    def show(self) -> list[nodes.Node]:
        """Return the requested pieces in the given order, and warn about keys that verl does not use."""
        configurations, known = self.data.analysis.configurations, self.data.config_keys
        if not self.arguments:
            message = f"name a model: {', '.join(configurations)}"
            raise NoAnswerError.because(message, code="unknown_size")
        record = entry_of(configurations, "configurations", self.arguments[0].strip())
        settings, keys = record.settings, [known.get(key) for key in record.settings]

        def command() -> nodes.Node:
            new = {key.name for key in keys if key and not key.in_yaml}
            lines = " \\\n    ".join([LAUNCHER, *overrides(settings, new)])
            return code_block(lines, "bash", CONFIG_CLASS)

        unknown = _("unknown")

        def table() -> nodes.Node:
            rows = column_table(zip(settings.items(), keys, strict=True), [
                (_("Key"), lambda row: Cell.path(row[0][0], after=self.marks(row[0][0]))),
                (_("Advised"), lambda row: as_text(row[0][1])),
                (_("verl's default"), lambda row: as_text(row[1].default) if row[1] else unknown),
                (_("Effect on memory"), lambda row: one_line(row[1].effect) if row[1] else unknown),
            ])  # fmt: skip
            return self.table(rows, _("{model}: settings").format(model=record.name))

        makers: dict[str, Callable[[], nodes.Node]] = {
            "yaml": lambda: code_block(nested_yaml(settings), "yaml", CONFIG_CLASS),
            "command-line": command,
            "table": table,
        }
        for problem in filter(None, (key_problem(known, key) for key in settings)):
            self.log(Diagnostic(Location(""), "config_key", *problem, Severity.WARNING))
        return self.with_remarks(makers[piece]() for piece in self.values["show"])


class VerlAnalysis(AnalysisDirective):
    """One part of the analysis: assumptions, priorities, trade-offs or monitoring."""

    directive = "verl-analysis"
    takes = (WITHOUT_REMARKS, *ABOUT_TABLE)

    def show(self) -> list[nodes.Node]:
        """Return the part in the argument."""
        parts: dict[str, Callable[[], list[nodes.Node]]] = {
            "assumptions": self._assumptions,
            "priorities": self._priorities,
            "trade-offs": self._trade_offs,
            "monitoring": self._monitoring,
        }
        name = self.arguments[0].strip().lower() if self.arguments else ""
        if name not in parts:
            message = f"unknown part {name!r}" if name else "name a part"
            raise NoAnswerError.because(message, did_you_mean(name, parts))
        return self.with_remarks(parts[name]())

    def _assumptions(self) -> list[nodes.Node]:
        rows = column_table(assumption_texts(assumptions_of(self.data.analysis)), [
            (_("Assumption"), lambda item: Cell.of(item[1], self.marks(item[0]))),
            (_("Value"), lambda item: item[2]),
        ])  # fmt: skip
        return [self.table(rows, _("Assumptions"))]

    def _priorities(self) -> list[nodes.Node]:
        outcomes = [self.outcome(name) for name in own_models(self.data.analysis)]
        taken = [{step.step.name: step for step in outcome.steps} for outcome in outcomes]
        steps = self.data.analysis.steps

        def saved(steps_taken: Mapping[str, StepTaken], name: str) -> Cell:
            return Cell.number(gb_number(steps_taken[name].saved) if name in steps_taken else "")

        rows = column_table(enumerate(self.data.analysis.priorities.values(), 1), [
            (_("Priority"), lambda item: f"{item[0]}. {item[1].advice}"),
            (
                _("Step"),
                lambda item: Cell.of(
                    steps[item[1].name].label if item[1].name in steps else item[1].name,
                    self.marks(item[1].name),
                ),
            ),
            (_("Why"), lambda item: one_line(item[1].reason)),
            *(
                (
                    _("Saves by the rule, {model} (GB)").format(model=outcome.shape.name),
                    lambda item, own=own: saved(own, item[1].name),
                )
                for outcome, own in zip(outcomes, taken, strict=True)
            ),
            (_("Keys"), lambda item: Cell.path(*item[1].keys)),
        ])  # fmt: skip
        return [self.table(rows, _("What to switch on first"))]

    def _trade_offs(self) -> list[nodes.Node]:
        rows = column_table(self.data.analysis.trade_offs.values(), [
            (_("Change"), lambda item: Cell.of(item.change, self.marks(item.name))),
            (_("Reduces"), lambda item: item.gain),
            (_("Costs"), lambda item: item.cost),
        ])  # fmt: skip
        return [self.table(rows, _("Memory against speed"))]

    def _monitoring(self) -> list[nodes.Node]:
        analysis = self.data.analysis
        shared = short_number(assumptions_of(analysis).memory_limit * 100)
        limit = _("Below {share} % of the GPU's memory.").format(share=shared)
        commands: list[nodes.Node] = []
        for item in analysis.commands.values():
            purpose = recorded(item.purpose, *self.marks(item.name))
            commands += [purpose, code_block(item.command, "bash", CONFIG_CLASS)]
        rows = column_table(analysis.metrics.values(), [
            (_("Metric"), lambda item: Cell.of(item.label, self.marks(item.name))),
            (
                _("What to look for"),
                lambda item: in_a_row(*([limit] if item.limited else []), one_line(item.text)),
            ),
        ])  # fmt: skip
        return [*commands, self.table(rows, _("What to watch"))]
