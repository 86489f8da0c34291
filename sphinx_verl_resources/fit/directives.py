"""The directives ``verl-memory`` for estimates, ``verl-fewest``, ``verl-accuracy`` and ``verl-downloads``."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from docutils import nodes

from .. import domain
from ..diagnostics import Location, NoAnswerError
from ..directive import ABOUT_TABLE, Option, VerlDirective, choices
from ..i18n import N_, _, plural
from ..memory.recorded import credible, recorded_run, scores_of
from ..memory.registries import CASE_GROUPS, gpu_name, known_model
from ..memory.request import DEFAULT_TASK, Request, dotted_leaves, parse_gpus
from ..memory.roles import LIMITS
from ..memory.versions import CURRENT, version_of, version_text
from ..nodes import Cell, details, listed, table_group, titled
from ..selection import each_once, sizes, whole_number, words
from ..strict_yaml import read_yaml
from ..texts import run_title
from ..units import crossed
from . import pages
from .answer import answer_run, answer_settings
from .charts import phase_chart
from .fewest import fewest_tables, size_models
from .layouts import HOST_SHARE
from .question import USUAL_RANK, task_of
from .results import export_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..diagnostics import Diagnostic
    from ..records import Measured
    from .answer import Answer
    from .fewest import Fewest, FewestTable


class SettingsDirective(VerlDirective):
    """A directive with settings of verl below its options."""

    takes_text = True
    reads: tuple[str, ...] = ("config_keys", "accuracy")
    #: The place of each setting on the page, by dotted key.
    places: dict[str, Location]

    def run(self) -> list[nodes.Node]:
        """Return the content, or a box for each problem."""
        self.places = {}
        return super().run()

    def settings(self) -> dict[str, Any]:
        """Return the settings by dotted key, and record their problems."""
        document = read_yaml("\n".join(self.content).encode("utf-8", "surrogatepass"))
        for problem in document.problems:
            raise NoAnswerError(replace(problem, place=self._place(problem.place.line)))
        if not isinstance(document.data or {}, dict):
            hint = "write keys and values, as in data.train_batch_size: 64"
            raise NoAnswerError.because("the text has no settings", hint, code="wrong_type")
        settings: dict[str, Any] = {}
        for written, value in dotted_leaves(document.data or {}):
            key = written.lstrip("+")  # Hydra's plus marks a new key; it is not part of the name
            settings[key], self.places[key] = value, self._place(document.key_place((written,)).line)
            if "${" in str(value):
                message = f"the value {value!r} refers to another one"
                raise NoAnswerError.because(message, "write the value out", key=key, code="unresolved")
        return settings

    @contextmanager
    def noted(self, option: str = "") -> Iterator[None]:
        """Record an error of the block, and print warnings about settings that are on the page."""
        with super().noted(option):
            yield
        for problem in self.problems:
            if not problem.is_error and problem.place.key in self.places:
                self.log(problem)
        self.problems = [problem for problem in self.problems if problem.is_error]

    def log(self, problem: Diagnostic) -> None:
        """Print a problem at the line of its setting, otherwise at its own line."""
        place = self.places.get(problem.place.key)
        super().log(replace(problem, place=replace(place, key=problem.place.key)) if place else problem)

    def _place(self, line: int) -> Location:
        """Return the place on the page of a line of the text, counted from 1."""
        index = min(max(line, 1), len(self.content)) - 1
        source, offset = self.content.items[index]
        if not self.content.items[0][1]:
            # MyST counts the lines of the text only, docutils those of the page.
            offset = self.lineno + self.content_offset + index
        return Location(str(source), (offset or 0) + 1)


# -- one estimate


class VerlEstimate(SettingsDirective):
    """The estimate of a run or of settings."""

    directive = "verl-memory"
    instead_of_argument = "remove it, or remove :run: and :model: for the rule of thumb"
    takes = (
        Option("run", "Recorded run; its file has everything else.", "id of a run"),
        Option("model", "Model; its settings follow the options.", "Hugging Face name"),
        Option("gpus", "GPUs of the model.", "number and name, such as ``8*H100``", read=parse_gpus),
        Option("verl-version", "verl, for the model.", "such as ``v0.7.1``", "newest", version_of),
        choices(
            "Parts, in this order. ``answer``: the verdict, how sure it is, what to change. ``chart``: a bar "
            "for each phase, in HTML, with the table. ``table``: a row for each phase. ``components``: the "
            "formula of each part of the peak phase. ``host``: the same for the memory of a node.",
            ("answer", "chart", "table", "components", "host"),
            ("answer", "chart", "table"),
        ),
        *ABOUT_TABLE,
    )

    def show(self) -> list[nodes.Node]:
        """Return the requested parts, and what the estimate leaves out."""
        if "run" not in self.given and not {"model", "gpus"} <= self.given.keys():
            hint = "name a model, as in '.. verl-memory:: 8B', or set :run:, or :model: and :gpus: 8*H100"
            raise NoAnswerError.because(hint, code="unknown_size")
        found, title, measured = self._of_run() if "run" in self.given else self._of_model()
        own, caption = found.best.estimate, _("{what}: memory per GPU, phase by phase").format(what=title)
        shown, parts = credible(own), self.values["show"]
        if shown is None:  # there are no figures, and the answer says why
            shown, parts = own, ("answer",)
        drawn = partial(phase_chart, shown, caption, measured)
        makers: dict[str, Callable[[], Iterable[nodes.Node]]] = {
            "answer": lambda: pages.answer(found, self.env),
            "chart": lambda: [self.chart(drawn(), self.values["run"] or title)],
            "table": lambda: [self.table(pages.phase_rows(shown), caption)],
            "components": lambda: pages.peak_parts(shown),
            "host": lambda: pages.host_parts(shown),
        }
        content = [node for part in parts for node in makers[part]()]
        if {"components", "host"}.intersection(parts):
            content.append(pages.evidence_legend())
        return [*content, *pages.notes(own)]

    def _of_run(self) -> tuple[Answer, str, Measured | None]:
        """Return the answer, its title, and the measured figures of the run."""
        if self.content or {"model", "gpus", "verl-version"} & self.given.keys():
            message = "the file of the run has model, GPUs, release and settings"
            raise NoAnswerError.because(message, "remove them here, or remove :run:")
        run = recorded_run(self.data, self.values["run"])
        return answer_run(run, self.data), run_title(run), run.measured

    def _of_model(self) -> tuple[Answer, str, None]:
        """Return the answer and its title."""
        settings, (count, gpu), version = self.settings(), self.values["gpus"], self.values["verl-version"]
        if "verl-version" in self.given and version is None:
            raise NoAnswerError.because(
                "no such release of verl", "write it like v0.9.0", key=":verl-version"
            )
        if not count or not gpu:
            raise NoAnswerError.because("write number and name of the GPUs, as in :gpus: 8*H100")
        gpu = gpu_name(gpu, self.data.gpus)
        model, note = known_model(self.values["model"], self.data.architectures)
        request = Request(model, settings, count, gpu, version=version or CURRENT, model_note=note)
        found = answer_settings(request, self.data, version_assumed=version is None)
        self.problems += found.best.estimate.warnings
        return found, _("{model} on {gpus}").format(model=model, gpus=f"{count}×{gpu}"), None


# -- the fewest GPUs

#: Memory of the GPUs used for training, in GB, and the table that is shown first.
MEMORIES, FIRST = (24, 40, 48, 80, 96, 141, 180), "fewest-80-gb"
#: The numbers of GPUs in the table of the largest models.
USUAL_COUNTS = (1, 2, 4, 8, 16, 32)
#: Marks of an estimate: less GPU memory in total than any recorded run of its model; no such run.
UNDERCUTS, NO_RUN = "†", "‡"
#: The meaning of columns and marks.
LEGEND = {
    N_("All parameters, LoRA"): N_(
        "the fewest GPUs on which the whole range of the estimate fits; LoRA has rank {rank}. Weights and "
        "optimizer may be offloaded to host memory; if it takes more GPUs without, their number follows in "
        "brackets. Estimates are for the first GPU in the caption, which has the least memory."
    ),
    N_("Recorded"): N_("the run on the fewest such GPUs that is tagged MIN or has the same task."),
    NO_RUN: N_("no run of this model is recorded; only the estimate says that it fits."),
    UNDERCUTS: N_("less GPU memory in total than any run of this model that ran or was reported."),
    N_("Host memory"): N_("a node is assumed to have {times} times the memory of its GPUs."),
}


def _memories(text: str) -> tuple[int, ...]:
    return each_once(words(text), partial(whole_number, most=10_000), "name at least one number")


class VerlFewest(SettingsDirective):
    """The largest models that fit, and the fewest GPUs of each size class behind a tab for each memory."""

    directive = "verl-fewest"
    takes = (
        Option("memory", "Memory of a GPU in GB.", "numbers", "24 to 180", _memories, MEMORIES),
        Option("task", "Algorithm.", "``GRPO``, ``PPO`` or ``DAPO``", "``GRPO``", value=DEFAULT_TASK),
        Option("sizes", "Size classes to show.", "such as ``7B 14B``", "all with a model", sizes, ()),
    )
    instead_of_argument = "list the size classes in :sizes:"
    reads = (*SettingsDirective.reads, "analysis")  # it has the models of size classes

    def show(self) -> list[nodes.Node]:
        """Return the table of the largest models, the tables behind tabs, and their legend."""
        settings, (memories, task, classes) = self.settings(), self.values.values()
        tables = fewest_tables(self.data, memories=memories, task=task, sizes=classes, config=settings)
        task, _rank = task_of(task)
        panels, largest, links = [], [], ""
        for table in tables:
            memory = f"{table.memory_gb:g} GB"
            largest.append([memory, *(_largest(table, count) for count in USUAL_COUNTS)])
            panel = nodes.container("", self._fewest(table, task, memory), classes=["verl-panel"])
            name = self.reserve(f"fewest-{table.memory_gb:g}-gb", panel)
            links += f'<a class="reference internal" href="#{name}">{memory}</a>'
            panels.append(panel)
        first = next((panel for panel in panels if panel["ids"][0] == FIRST), panels[0])
        first["classes"].append("verl-panel-first")
        label = escape(_("Memory of a GPU"))
        tabs = f'<div class="verl-tabs" role="group" aria-label="{label}">{links}</div>\n'
        behind = nodes.container("", nodes.raw("", tabs, format="html"), *panels, classes=["verl-panels"])
        gpus = (plural("{count} GPU", "{count} GPUs", count).format(count=count) for count in USUAL_COUNTS)
        caption = _("Largest model for {task}, by memory and number of GPUs").format(task=task)
        first_table = self._table(caption, [_("Memory of a GPU"), *gpus], largest)
        return [first_table, behind, *self._legend(settings)]

    def _table(self, caption: str, headings: list[str], rows: Sequence[Any]) -> nodes.table:
        """Return a table whose first column has the headings of the rows."""
        group = table_group(headings, rows)
        next(group.findall(nodes.colspec))["stub"] = 1
        return self.table(group, caption, with_options=False)

    def _fewest(self, table: FewestTable, task: str, memory: str) -> nodes.table:
        """Return the fewest GPUs with one memory size."""
        full, lora = _("All parameters (without offloading)"), _("LoRA (without offloading)")
        models, rows = size_models(self.data), []
        for size, *both in table.rows:
            model = _("{size} ({model})").format(size=size, model=models[size].rpartition("/")[2])
            rows.append([model, *(make(cell) for cell in both for make in (_estimated, self._recorded))])
        caption = _("Fewest GPUs for {task}, {memory} each: {gpus}")
        caption = caption.format(task=task, memory=memory, gpus=listed(table.gpus))
        return self._table(caption, [_("Model"), full, _("Recorded"), lora, _("Recorded")], rows)

    def _recorded(self, cell: Fewest) -> Cell:
        """Return the recorded run on the fewest GPUs, with its task if it is another one."""
        if cell.ran is None:
            return Cell.of("")
        about = listed(filter(None, (cell.task, _("reported") if cell.ran.word == "reported" else "")))
        text = (_("{gpus} ({about})") if about else "{gpus}").format(gpus=cell.ran.gpus, about=about)
        return Cell([], [pages.row_link(self.env, cell.ran.id, crossed(text))])

    def _legend(self, settings: Mapping[str, Any]) -> list[nodes.Node]:
        """Return the meaning of columns and marks, and the settings of the estimates."""
        known = {"rank": USUAL_RANK, "times": HOST_SHARE}
        items = (pages.titled_item(_(name), _(text).format(**known)) for name, text in LEGEND.items())
        defaults = {key: self.data.defaults(CURRENT)[key] for key in LIMITS}
        given = "; ".join(f"{key}: {value}" for key, value in {**defaults, **settings}.items())
        text = _("The estimates are for verl {version} and these settings: {settings}.")
        text = text.format(version=version_text(CURRENT), settings=given)
        return [nodes.bullet_list("", *items, classes=[pages.LEGEND_CLASS]), pages.legend(text)]


def _largest(table: FewestTable, most: int) -> str:
    """Return the largest size class that fits on a number of GPUs, for all parameters and for LoRA."""
    found = ["", ""]
    for size, *both in table.rows:
        for at, cell in enumerate(both):
            if cell.count and cell.count <= most:
                found[at] = _marked((size, _("LoRA {size}").format(size=size))[at], cell)
    return listed(filter(None, found)) or _("none")


def _marked(text: str, cell: Fewest) -> str:
    """Return a text with the mark of an estimate, on the same line."""
    mark = UNDERCUTS if cell.undercuts else "" if cell.recorded else NO_RUN
    return f"{text}\N{NO-BREAK SPACE}{mark}" if mark else text


def _estimated(cell: Fewest) -> str:
    """Return the fewest GPUs, or why no number fits and how many might."""
    if not cell.count:
        text = _("none ({reason}); {count} might") if cell.near else _("none ({reason})")
        return text.format(reason=_(cell.why), count=f"{cell.near:,}") if cell.why else _("unknown")
    others = f"{cell.without:,}" if cell.without else _("none")
    text = "{gpus}" if cell.without == cell.count else _("{gpus} ({others})")
    return text.format(gpus=_marked(f"{cell.count:,}", cell), others=others)


# -- all cases, and all data


class VerlAccuracy(VerlDirective):
    """Every case with its computed and observed value."""

    directive = "verl-accuracy"
    takes = (choices("Groups of cases to include.", CASE_GROUPS, name="group"), *ABOUT_TABLE)
    instead_of_argument = "list groups in :group:"
    reads = ("config_keys", "accuracy", "cases")

    def show(self) -> list[nodes.Node]:
        """Return the table, folded in HTML, with the reasons why some cases do not count."""
        scores, marks = scores_of(self.data, self.values["group"]), {}
        targets = {text: nodes.target() for text in map(pages.reason, scores) if text}
        for number, (text, target) in enumerate(targets.items(), 1):
            marks[text] = f"[{number}]", self.reserve(f"verl-case-note-{number}", target)
        content: list[nodes.Node] = [self.table(pages.case_rows(scores, marks), _("Every case"))]
        if targets:
            content.append(pages.reason_list(targets, targets))
        text = plural("{count} case", "{count} cases", len(scores)).format(count=len(scores))
        return [details([nodes.Text(text)], content)]


class VerlDownloads(VerlDirective):
    """A list of the files to download, which HTML builders write next to the pages."""

    directive = "verl-downloads"
    instead_of_argument = "leave it out"
    reads = ("config_keys", "accuracy")

    def show(self) -> list[nodes.Node]:
        """Return the list, and remember the files for the builder."""
        items = nodes.bullet_list(classes=[self.directive])
        for name, (content, text) in export_files(self.data).items():
            self.domain.note_file(name, text)
            file = domain.link_later(self.env, domain.FILE, name, name, nodes.literal("", name))
            items += nodes.list_item("", nodes.paragraph("", "", *titled(file, _(content))))
        return [items]
