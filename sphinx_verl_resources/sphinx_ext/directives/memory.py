"""``.. verl-memory::`` and its summary: the analysis of models, and the estimate of a run or of settings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...analysis_records import LIMITS
from ...diagnostics import Code, NoAnswerError
from ...i18n import _
from ..references import row_link
from .base import ABOUT_TABLE, VerlDirective
from .computed import WITHOUT_REMARKS, AnalysisDirective, SettingsDirective
from .options import Option, choices, number, pieces, resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from docutils import nodes

    from ...analysis.analysis import Outcome
    from ...answer.answer import Answer
    from ...estimator.versions import Version
    from ...records import Measured


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
ANALYSIS_OPTIONS = (
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


def _version(text: str) -> Version:
    from ...estimator.versions import CURRENT, version_of, version_text

    found = version_of(text.strip())
    if found is None:
        raise NoAnswerError.because(
            f"{text!r} is not a release of verl", f"write it like {version_text(CURRENT)}"
        )
    return found


#: The options that select the estimate, and those that require ``:model:``.
ASKING, OF_MODEL = ("run", "model"), ("gpus", "verl-version")
ESTIMATE_OPTIONS = (
    Option("run", "Recorded run; its file provides everything else.", "id of a run"),
    Option(
        "model",
        "Model. Requires ``gpus``. Write settings below the options, as YAML with verl's keys dotted or "
        "nested. Unset keys use verl's defaults.",
        "Hugging Face name",
    ),
    Option(
        "gpus",
        "Number and type of GPUs. Requires ``model``.",
        "count and name, such as ``8*H100``",
        read=resource,
    ),
    Option(
        "verl-version",
        "Release of verl. Requires ``model``.",
        "release, such as ``v0.7.1``",
        "the newest supported one",
        _version,
    ),
    pieces(
        "Parts to show, in this order. ``answer``: whether it fits, the peak with its range, the peak phase, "
        "changes that make it fit if it does not, the value of verl's metric, host memory. ``chart``: a bar "
        "for each phase against the GPU's capacity, drawn in HTML and followed by the table. ``table``: a "
        "row for each phase. ``components``: each part of the peak phase with its formula, its numbers and "
        "its evidence. ``host``: the same for the memory of a node. Settings that the estimate leaves out "
        "are always listed below.",
        ("answer", "chart", "table", "components", "host"),
        ("answer", "table"),
    ),
    *ABOUT_TABLE,
)


class VerlMemory(AnalysisDirective, SettingsDirective):
    """The estimate of a run or of settings, if an option selects it, otherwise the analysis of a model."""

    directive = "verl-memory"

    @classmethod
    def forms(cls) -> Mapping[str, tuple[Option, ...]]:
        """Return the options of both forms."""
        return {"analysis": ANALYSIS_OPTIONS, "estimate": ESTIMATE_OPTIONS}

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of the data that the form depends on."""
        kind: type[VerlDirective] = SettingsDirective if self.form == "estimate" else AnalysisDirective
        return kind.reads.fget(self)  # type: ignore[attr-defined, no-any-return]

    @property
    def form(self) -> str:
        """The form that the options select, or that their names and the text require."""
        if not self.options.keys().isdisjoint(ASKING):
            return "estimate"
        foreign = bool(self.content) or not self.options.keys() <= {item.name for item in ANALYSIS_OPTIONS}
        return "estimate" if foreign and not self.arguments else "analysis"

    def check_text(self) -> None:
        """Accept settings for an estimate only."""
        if self.content and self.form == "analysis":
            raise NoAnswerError.because(
                "settings require :model: and :gpus:; the analysis of a model has none"
            )

    def show(self) -> list[nodes.Node]:
        """Return the requested pieces in the given order."""
        return self._estimate() if self.form == "estimate" else self._analysis()

    def _pieces(self, made: Mapping[str, Callable[[], Iterable[nodes.Node]]]) -> list[nodes.Node]:
        return [node for piece in self.values["show"] for node in made[piece]()]

    # -- the analysis

    def _analysis(self) -> list[nodes.Node]:
        """Return components, chain and running totals of one model."""
        from ...analysis.analysis import analyse

        steps: tuple[str, ...] | None = None
        with self.noted("steps"):
            steps = self._steps()
        with self.noted("gpus"):
            self._check_sharing(steps)
        self.need_table()
        if not self.arguments:
            hint = "name a size class or a model, as in '.. verl-memory:: 8B', or set :run: or :model:"
            raise NoAnswerError.because(hint, code=Code.unknown_size)
        name = " ".join(self.arguments[0].split())
        if self.problems:
            self.of_analysis(analyse, name)  # to report an unknown model in the same build
            return []
        return self._show_analysis(self.of_analysis(analyse, name, *map(self.values.get, LIMITS), steps))

    def _steps(self) -> tuple[str, ...] | None:
        from ...analysis.sections import names

        text = self.given.get("steps")
        if text is None or text.strip().lower() == "none":
            return None if text is None else ()
        return choices(self.of_analysis(names, "steps"), "none")(text)

    def _check_sharing(self, steps: tuple[str, ...] | None) -> None:
        """Refuse a number of GPUs if no step shares anything among them."""
        from ...analysis.sections import names, sharing_steps

        if "gpus" in self.given:
            sharing = self.of_analysis(sharing_steps)
            taken = self.of_analysis(names, "steps") if steps is None else steps
            if not set(sharing).intersection(taken):
                needed = " or ".join(repr(name) for name in sharing) or "that shares something among GPUs"
                message = f"has no effect without the step {needed}"
                raise NoAnswerError.because(message, "add it, or remove :gpus:")

    def _show_analysis(self, outcome: Outcome) -> list[nodes.Node]:
        from ...views import analysis as render
        from ...views.remarks import no_marks

        name, caption = outcome.shape.name, render.memory_caption(outcome)
        # The marks are in the table if there is one.
        marks = no_marks if "table" in self.values["show"] else self.marks
        made = self._pieces({
            "specification": lambda: [
                self.table(
                    render.specification_rows(outcome, self.marks),
                    _("{model}: the model").format(model=name),
                    with_options=False,
                )
            ],
            "formulas": lambda: [render.formula_list(outcome, marks)],
            "chart": lambda: [self.chart(render.waterfall_chart(outcome.waterfall(), caption), name)],
            "table": lambda: [
                self.table(
                    render.waterfall_rows(outcome, self.marks, with_gib="gib" in self.given), caption
                )
            ],
        })  # fmt: skip
        return [*made, *self.remarks()]

    # -- the estimate

    def _estimate(self) -> list[nodes.Node]:
        """Return the memory of a run, phase by phase, and the settings that the estimate leaves out."""
        self.need_table()
        self._check_form()
        found: tuple[Answer, str, Measured | None] | None = None
        with self.noted():
            if "model" in self.given:
                found = self._of_model()
            elif "run" in self.given:
                found = self._of_run()
        return [] if self.problems or found is None else self._show_estimate(*found)

    def _check_form(self) -> None:
        if self.arguments:
            message = f"the argument {self.arguments[0]!r} selects the analysis of a model"
            remedy = "remove it, or remove :run: and :model: for the analysis"
            raise NoAnswerError.because(message, remedy)
        if self.options.keys().isdisjoint(ASKING):
            raise NoAnswerError.because("set :run:, or :model: and :gpus:")
        if self.given.keys() >= set(ASKING):
            raise NoAnswerError.because(":run: and :model: cannot be combined", "keep one of them")
        if "run" in self.given:
            mixed = next((f":{name}:" for name in OF_MODEL if name in self.given), "")
            if mixed or self.content:
                what = f"{mixed} requires" if mixed else "settings require"
                raise NoAnswerError.because(f"{what} :model:", "a run has its own")

    def _of_run(self) -> tuple[Answer, str, Measured | None]:
        """Return the answer, its title, and the measured figures of the run."""
        from ...answer.answer import answer_run
        from ...estimator.recorded import recorded_run
        from ...views.runs import run_title

        name = self.values["run"]
        run = recorded_run(self.data, name)
        try:
            found = answer_run(run, self.data)
        except NoAnswerError as error:
            if not run.settings:  # the message names the run
                raise
            raise NoAnswerError.because(
                f"the run {name!r} cannot be estimated: {error}", code=error.code
            ) from None
        return found, run_title(run), run.measured

    def _of_model(self) -> tuple[Answer, str, None] | None:
        """Return the answer and its title; if there is none, record problems and return None."""
        from ...answer.answer import answer_settings
        from ...estimator.request import Request
        from ...estimator.versions import CURRENT

        settings = self.settings()
        count, gpu = self.named_gpus()
        model = self.values["model"]
        version = self.values["verl-version"] or CURRENT
        request = Request(model, dict(settings), count or 8, gpu or "H100", version=version)
        found = self.of_settings(answer_settings, request, self.data)
        if found is None:
            return None
        if not self.problems:
            self.note_all(found.best.estimate.warnings)
        return found, _("{model} on {gpus}").format(model=model, gpus=f"{count}×{gpu}"), None

    def _show_estimate(self, answer: Answer, title: str, measured: Measured | None) -> list[nodes.Node]:
        from ...estimator.recorded import credible
        from ...views import estimate as render
        from ...views.charts import phase_chart

        found = answer.best.estimate
        caption = _("{what}: memory per GPU, phase by phase").format(what=title)
        made: dict[str, Callable[[], Iterable[nodes.Node]]] = dict.fromkeys(self.values["show"], list)
        made["answer"] = lambda: self._answer(answer, measured)
        if shown := credible(found):
            name = self.values["run"] or title
            made |= {
                "chart": lambda: [self.chart(phase_chart(shown, caption, measured), name)],
                "table": lambda: [self.table(render.phase_rows(shown), caption)],
                "components": lambda: render.peak_parts(shown),
                "host": lambda: render.host_parts(shown),
            }
        content = self._pieces(made)
        if shown and {"components", "host"}.intersection(self.values["show"]):
            content.append(render.evidence_legend())
        return [*content, *render.notes(found)]

    def _answer(self, found: Answer, measured: Measured | None) -> list[nodes.Node]:
        """Return the answer in words, with related recorded runs."""
        from ...views.answer import evidence_items
        from ...views.estimate import answer

        runs = evidence_items(found, self.values["run"], partial(row_link, self.env))
        return answer(found, measured, runs)


class VerlMemorySummary(AnalysisDirective):
    """A table with one model a row."""

    directive = "verl-memory-summary"
    takes = NUMBERS

    def show(self) -> list[nodes.Node]:
        """Return the table."""
        from ...analysis.analysis import analyse
        from ...analysis.sections import own_models
        from ...views import analysis as render
        from ...views.blocks import legend

        answers = self.of_each(self.models(own_models), analyse, *map(self.values.get, LIMITS))
        if self.problems:
            return []
        outcomes = [outcome for _name, outcome in answers]
        rows = render.summary_rows(outcomes, self.marks, with_gib="gib" in self.given)
        table = self.table(rows, _("GB per GPU, step by step"))
        if len({outcome.gpus for outcome in outcomes}) > 1:
            return [table, legend(_(render.DIFFERENT_GPUS)), *self.remarks()]
        return [table, *self.remarks()]
