"""The directives of estimates, the fewest GPUs, cases and downloads, and the details of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.environment import BuildEnvironment

from .. import nodes as blocks
from ..dataset import replace_file
from ..diagnostics import Location, NoAnswerError
from ..directive import ABOUT_TABLE, Option, VerlDirective, choices
from ..domain import FILE, RUN, digest, link_later
from ..i18n import N_, _, plural
from ..memory.estimate import Estimate
from ..memory.recorded import Score, credible, has_own_rollout_gpus, recorded_run, scores_of, version_of_run
from ..memory.registries import CASE_GROUPS, EstimatorContext, gpu_name, known_model
from ..memory.request import DEFAULT_TASK, MODEL, Request, dotted_leaves, parse_gpus
from ..memory.versions import CURRENT, version_of
from ..records import Run, row_id
from ..selection import FIELDS, sizes
from ..speed.runs import checked_text, is_old, speeds_of_size
from ..strict_yaml import read_yaml
from ..texts import WORD_TEXTS, field_pieces, row_classes, run_title
from ..units import Category, crossed, gib_number, share, signed
from . import bars, words
from .answer import Answer, answer_run, answer_settings
from .command import SEPARATOR, as_arguments, launcher
from .evidence import runs_by_shape, shape_key_of
from .fewest import Fewest, Table, fewest_by_memory, fewest_tables, size_models
from .question import USUAL_RANK, Question, assumptions
from .results import export_files
from .search import HOST_SHARE


def row_link(env: BuildEnvironment, run: str, text: str) -> nodes.Element:
    """Return a link to the row of a run; if no page shows the run, it becomes the text and the id."""
    return link_later(env, RUN, run, text, nodes.Text(f"{text} ({run})"))


def item(content: Iterable[nodes.Node], *below: nodes.Node) -> nodes.list_item:
    """Make a list item of a paragraph and further nodes."""
    return nodes.list_item("", nodes.paragraph("", "", *content), *below)


def titled_item(title: str, content: blocks.Content) -> nodes.list_item:
    """Make a list item that begins with a bold title."""
    return item(blocks.titled(nodes.strong("", title), content))


# -- an answer


def answer_nodes(answer: Answer, env: BuildEnvironment) -> list[nodes.Node]:
    """Return the verdict with its reason, and the other lines about an answer as a list."""
    first, *others = words.lines(answer)
    classes = ["verl-verdict", f"verl-verdict-{answer.verdict}"]  # the style sheet adds a sign
    title = words.as_title(words.label(answer.verdict))
    badge = nodes.strong("", "", nodes.inline("", title, classes=classes))
    stop = nodes.inline("", _("."), classes=["verl-unseen"])
    reason = blocks.fill(words.in_a_row("{verdict}", "{reason}"), verdict=[badge, stop], reason=first.text)
    items, changes, sentences = nodes.bullet_list(classes=["verl-answer"]), nodes.bullet_list(), set[str]()
    for change in answer.changes[: words.MOST]:
        settings = nodes.literal("", " ".join(change.arguments))
        changes += item(blocks.fill(words.change_text(change, "{settings}", sentences), settings=settings))
        sentences.update(change.sentences)
    if changes.children:
        items += item(blocks.fill(_("{title}:"), title=nodes.strong("", words.heading(answer))), changes)
    for line in others:
        links = blocks.between_commas(row_link(env, run.id, run_title(run)) for run in line.runs)
        items += titled_item(line.title, blocks.fill(line.text, runs=links) if links else line.text)
    return [nodes.paragraph("", "", *reason, classes=["verl-answer"]), *([items] if items.children else [])]


def phase_rows(estimate: Estimate) -> nodes.tgroup:
    """Make one row for each phase, in order; the peak phase is bold."""
    columns = [each for each in Category if any(phase.sizes[each] for phase in estimate.phases)]
    quantities, rows = [_("Total"), *(_(each.heading) for each in columns)], []
    for phase in estimate.phases:
        is_peak, sizes = phase is estimate.peak_phase, [phase.total, *(phase.sizes[each] for each in columns)]
        text = _("{phase} (peak phase)") if is_peak else "{phase}"
        numbers = [blocks.Cell.number(gib_number(size) if size else "0") for size in sizes]
        cells = [blocks.Cell.of(text.format(phase=_(phase.label))), *numbers]
        rows.append(blocks.bold(cells) if is_peak else cells)
    headings = (_("{quantity} (GiB)").format(quantity=quantity) for quantity in quantities)
    return blocks.table_group([_("Phase"), *headings], rows)


# -- a recorded run


#: The fields of a run that others may have, too; what they measured is theirs.
_LIKE_IT = {"id", "model", "task", "gpus", "train", "infer", "settings"}


def details_of(directive: VerlDirective, run: Run, remarks: Sequence[nodes.list_item]) -> blocks.verl_details:
    """Return the facts of a run with its estimate and settings, folded below its name and its peak.

    Args:
        directive: the directive that shows the run.
        run: the run.
        remarks: the remarks about the run.
    """
    facts, links, estimate = nodes.bullet_list(classes=["verl-facts"]), directive.domain.links, None
    for field in FIELDS:
        if field.detail and field.value(run) is not None:
            facts += titled_item(_(field.detail), blocks.Cell(field_pieces(run, field.name, links)).inline())
    if last_check := checked_text(run):
        facts += titled_item(_("Last checked"), last_check)
    facts += remarks
    content: list[nodes.Node] = [facts]
    with suppress(NoAnswerError):
        answer = answer_run(run, directive.data)
        if answer.best.estimate.is_complete:
            estimate = answer.best.estimate
            content += answer_nodes(answer, directive.env)
    if estimate and (figures := credible(estimate)):
        content.append(directive.chart(bars.phase_chart(figures, run_title(run)), run.id))
        # Without a caption, the table is not numbered with the page's tables.
        content.append(directive.table(phase_rows(figures), with_options=False, table_class="verl-memory"))
    if estimate is None and run.settings:
        text = _("The source quotes only some of the settings, so there is no estimate.")
        content.append(nodes.paragraph("", text))
    content += _flags(run, directive.data) if run.settings else []
    like_it = run.model_dump(mode="json", include=_LIKE_IT, exclude_none=True)
    if address := directive.domain.part("issue")(like_it):
        content.append(nodes.paragraph("", "", blocks.link(_("Submit a run like this one"), address)))
    word = "" if run.word == "ran" else _(WORD_TEXTS[run.word])
    name = nodes.strong("", blocks.listed([run_title(run), run.train]))
    old = _("checked with an old release") if is_old(run) else ""
    peaks = blocks.listed(filter(None, [word, words.peaks_text(run, estimate), old]))
    summary = blocks.titled(name, peaks) if peaks else [name]
    block = blocks.details(summary, content, f"verl-details {row_classes(run)}")
    directive.reserve(f"{row_id(run.id)}-details", block)
    return block


def _flags(run: Run, data: EstimatorContext) -> list[nodes.Node]:
    """Make the block with the settings to copy: a command, or only overrides for another trainer."""
    files = {"data.train_files": "TODO", "data.val_files": "TODO"}  # verl would take GSM8K
    version, text = version_of_run(run), _("Settings as overrides:")
    arguments = as_arguments({f"{MODEL}.path": run.model, **files, **run.settings}, version, data)
    if not has_own_rollout_gpus(run):
        text = _("Settings as a command:")
        arguments = (*launcher(version, run.settings, is_megatron=run.train == "megatron"), *arguments)
    return [blocks.notes_title(text), blocks.code_block(SEPARATOR.join(arguments), "bash", "verl-flags")]


# -- one estimate


class VerlEstimate(VerlDirective):
    """The estimate of a run, or of settings below the options."""

    directive = "verl-memory"
    takes_text = True
    instead_of_argument = "remove it, or remove :run: and :model: for the rule of thumb"
    takes = (
        Option("run", "Recorded run; its file has everything else.", "id of a run"),
        Option("model", "Model; its settings follow the options.", "Hugging Face name"),
        Option("gpus", "GPUs of the model.", "number and name, such as ``8*H100``", "", parse_gpus, ("", "")),
        Option("verl-version", "verl, for the model.", "such as ``v0.7.1``", "newest", version_of),
        choices("Parts, in order; a chart needs the table.", ("answer", "chart", "table")),
        *ABOUT_TABLE,
    )
    reads = ("config_keys", "accuracy")
    #: The place of each setting on the page, by dotted key.
    places: dict[str, Location] = {}  # noqa: RUF012 - replaced, never changed

    def show(self) -> list[nodes.Node]:
        """Return the requested parts, and what the estimate leaves out."""
        answer = self._answer()
        run, request, estimate = answer.own, answer.request, answer.best.estimate
        text, gpus = _("{model} on {gpus}"), f"{request.gpus}×{request.gpu}"
        title = run_title(run) if run else text.format(model=request.model, gpus=gpus)
        caption = _("{what}: memory per GPU, phase by phase").format(what=title)
        figures, content = credible(estimate), list[nodes.Node]()
        for part in self.values["show"] if figures else ("answer",):  # which says why
            if part == "answer":
                content += answer_nodes(answer, self.env)
            elif figures and part == "chart":
                content.append(self.chart(bars.phase_chart(figures, caption), run.id if run else title))
            elif figures:
                content.append(self.table(phase_rows(figures), caption))
        if notes := [*estimate.unsupported, *(problem.named_message for problem in estimate.warnings)]:
            title = _("What the estimate leaves out or assumes:")
            content += [blocks.notes_title(title), _key_list(notes)]
        return content

    def _answer(self) -> Answer:
        """Return the answer for the run, or for the model with the settings below the options."""
        name, model, (count, gpu), version, *_others = self.values.values()
        if name:
            if self.content or {"model", "gpus", "verl-version"} & self.texts.keys():
                message = "a recorded run already sets model, GPUs, release and settings"
                raise NoAnswerError.because(message, "remove them here, or remove :run:")
            return answer_run(recorded_run(self.data, name), self.data)
        if not (model and count and gpu):
            message = "set :run:, or :model: and number and name of its GPUs, as in :gpus: 8*H100"
            remedy = "for the rule of thumb, name a size, as in '.. verl-memory:: 8B'"
            raise NoAnswerError.because(message, remedy, code="unknown_size")
        if "verl-version" in self.texts and version is None:
            raise NoAnswerError.because("no such release", "write it like v0.9.0", key=":verl-version")
        gpu, settings = gpu_name(gpu, self.data.gpus), self._settings()
        model, note = known_model(model, self.data.architectures)
        request = Request(model, settings, count, gpu, version=version or CURRENT, model_note=note)
        answer = answer_settings(request, self.data, version_assumed=version is None)
        self.problems += answer.best.estimate.warnings
        return answer

    def _settings(self) -> dict[str, Any]:
        """Return the settings by dotted key, and note their places."""
        document = read_yaml("\n".join(self.content).encode("utf-8", "surrogatepass"))
        for problem in document.problems:
            raise NoAnswerError(replace(problem, place=self._place(problem.place.line)))
        if not isinstance(data := document.data or {}, dict):
            hint = "write keys and values, as in data.train_batch_size: 64"
            raise NoAnswerError.because("the text has no settings", hint, code="wrong_type")
        settings, self.places = dict[str, Any](), {}
        for name, value in dotted_leaves(data):
            key = name.lstrip("+")  # Hydra's plus marks a new key; it is not part of the name
            settings[key], self.places[key] = value, self._place(document.key_place((name,)).line, key)
        return settings

    def _place(self, line: int, key: str = "") -> Location:
        """Return the place on the page of a line of the text, counted from 1."""
        source, first = self.content.items[0]
        # MyST counts the lines of the text only, docutils those of the page.
        offset = first or self.lineno + self.content_offset
        return Location(str(source), offset + min(line, len(self.content)), key=key)

    @contextmanager
    def note_errors(self, option: str = "") -> Iterator[None]:
        """Record an error of the block; problems get the places of their settings, warnings are printed."""
        with super().note_errors(option):
            yield
        issues = [replace(each, place=self.places.get(each.place.key, each.place)) for each in self.problems]
        self.problems = [issue for issue in issues if issue.is_error]
        for issue in issues:
            if not issue.is_error and issue.place.path:
                self.log(issue)


def _key_list(texts: Iterable[str]) -> nodes.bullet_list:
    """List recorded texts; what comes before the first colon is a key."""
    items = nodes.bullet_list(classes=[blocks.NOTES_CLASS])
    for key, _colon, text in (text.partition(": ") for text in texts):
        items += nodes.list_item("", blocks.recorded("", nodes.literal("", key), nodes.Text(f": {text}")))
    return items


# -- answers that are kept


class AnswersFile(NamedTuple):
    """Answers in a file beside the doctrees; its last line is the key of all that decides them."""

    path: Path
    key: str

    def read(self) -> str | None:
        """Return the answers; None if there are none, if a part is missing, or if the key is another one."""
        content, end = self.path.read_bytes() if self.path.is_file() else b"", f"\n//{self.key}".encode()
        return content.removesuffix(end).decode() if content.endswith(end) else None

    def write(self, text: str) -> None:
        """Keep answers."""
        replace_file(self.path, f"{text}\n//{self.key}")


@lru_cache(maxsize=1)
def _code() -> list[bytes]:
    """Return the code and the translations of the package."""
    return [path.read_bytes() for path in sorted(Path(__file__).parents[1].rglob("*.[mp][oy]"))]


def answers_file(directive: VerlDirective, model: str, *question: object) -> AnswersFile:
    """Return the file for the answers for a model and the rest of a question."""
    app, data, name = directive.domain.app, directive.data, digest(model, question)[:16]
    files = *data.files["gpus.yaml"], *data.files["config_keys.yaml"], *data.files["accuracy.yaml"]
    runs = runs_by_shape(data).get(shape_key_of(data, model))
    own = data.architectures.get(model), runs, speeds_of_size(model, data), [file.content for file in files]
    key = digest(_code(), app.config.language, name, own)[:16]
    return AnswersFile(Path(app.doctreedir, f"{directive.directive}-{name}"), key)


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
        "the fewest GPUs on which the whole range fits, if need be with state in host memory or bfloat16 and "
        "Adam on the CPU; in brackets, those without. The caption's first GPU counts; LoRA has rank {rank}."
    ),
    N_("Recorded"): N_("the smallest run with this task or tag MIN, on GPUs with at most this memory."),
    NO_RUN: N_("no uncontested run of this model on known GPUs is recorded; this is an estimate alone."),
    UNDERCUTS: N_("less GPU memory in total than any such run had."),
    N_("Host memory"): N_("a node is assumed to have {times} times the memory of its GPUs."),
}


class VerlFewest(VerlDirective):
    """The largest models that fit, and the fewest GPUs of each size class behind a tab for each memory."""

    directive = "verl-fewest"
    takes = (Option("sizes", "Size classes to show.", "such as ``7B 14B``", "all with a model", sizes, ()),)
    instead_of_argument = "list the size classes in :sizes:"
    reads = ("config_keys", "accuracy", "analysis")  # this has the models of size classes

    def show(self) -> list[nodes.Node]:
        """Return the table of the largest models, the tables behind tabs, and their legend."""

        def by_memory(model: str, rank: int) -> list[Fewest]:
            file = answers_file(self, model, rank)
            if (text := file.read()) is None:
                fewest = fewest_by_memory(Question(model, lora=rank), self.data, MEMORIES)
                text = json.dumps([*map(vars, fewest)])
                file.write(text)
            return [Fewest(**item) for item in json.loads(text)]

        tables = fewest_tables(self.data, self.values["sizes"], by_memory)
        panels, largest, values, links = [], [], [], ""
        for table in tables:
            memory = f"{table[0][1].memory_gb:g} GB"
            largest.append([memory, *(_largest(table, count) for count in USUAL_COUNTS)])
            panel = nodes.container("", self._fewest(table, memory), classes=["verl-panel"])
            name = self.reserve(f"fewest-{table[0][1].memory_gb:g}-gb", panel)
            links += f'<a class="reference internal" href="#{name}">{memory}</a>'
            panels.append(panel)
            for size, full, lora in table:
                for rank, cell in (0, full), (USUAL_RANK, lora):
                    values.append({"size": size, "lora_rank": rank, **cell.result})
        min(panels, key=lambda panel: FIRST not in panel["ids"])["classes"].append("verl-panel-first")
        label = escape(_("Memory of a GPU"))
        tabs = f'<div class="verl-tabs" role="group" aria-label="{label}">{links}</div>\n'
        behind = nodes.container("", nodes.raw("", tabs, format="html"), *panels, classes=["verl-panels"])
        gpus = (plural("{count} GPU", "{count} GPUs", count).format(count=count) for count in USUAL_COUNTS)
        caption = _("Largest model for {task}, by memory and number of GPUs").format(task=DEFAULT_TASK)
        return [self._table(caption, [_("Memory of a GPU"), *gpus], largest), behind, self._legend(values)]

    def _table(self, caption: str, headings: list[str], rows: Sequence[Any]) -> nodes.table:
        """Return a table whose first column has the headings of the rows."""
        group = blocks.table_group(headings, rows)
        next(group.findall(nodes.colspec))["stub"] = 1
        return self.table(group, caption, with_options=False)

    def _fewest(self, table: Table, memory: str) -> nodes.table:
        """Return the fewest GPUs with one memory size."""
        full, lora = _("All parameters (without offloading)"), _("LoRA (without offloading)")
        models, rows = size_models(self.data), []
        for size, *both in table:
            model = _("{size} ({model})").format(size=size, model=models[size].rpartition("/")[2])
            rows.append([model, *(make(cell) for cell in both for make in (_count_text, self._run_cell))])
        caption = _("Fewest GPUs for {task}, {memory} each: {gpus}")
        caption = caption.format(task=DEFAULT_TASK, memory=memory, gpus=blocks.listed(table[0][1].types))
        return self._table(caption, [_("Model"), full, _("Recorded"), lora, _("Recorded")], rows)

    def _run_cell(self, cell: Fewest) -> blocks.Cell:
        """Return the recorded run on the fewest GPUs, with its task if it is another one."""
        if not cell.ran:
            return blocks.Cell.of("")
        word = _("reported") if cell.ran["word"] == "reported" else ""
        about = blocks.listed(filter(None, (cell.ran["task"], word)))
        text = (_("{gpus} ({about})") if about else "{gpus}").format(gpus=cell.ran["gpus"], about=about)
        return blocks.Cell([], [row_link(self.env, cell.ran["id"], crossed(text))])

    def _legend(self, values: list[Any]) -> nodes.bullet_list:
        """Return the meaning of columns and marks, what the estimates assume, and the values as JSON."""
        numbers = {"rank": USUAL_RANK, "times": HOST_SHARE}
        items = [titled_item(_(name), _(text).format(**numbers)) for name, text in LEGEND.items()]
        defaults = blocks.listed(assumptions(Question("", gpus=1), self.data))
        file = _file_link(self.env, note_json(self, map(json.dumps, values)))
        items += [titled_item(_("Assumed"), defaults), titled_item(_("The same as JSON"), file)]
        return nodes.bullet_list("", *items, classes=["verl-legend"])


def _largest(table: Table, most: int) -> str:
    """Return the largest size class that fits on a number of GPUs, for all parameters and for LoRA."""
    text = _("LoRA {size}")
    full = [_with_mark(size, cell) for size, cell, _lora in table if 0 < cell.count <= most]
    lora = [_with_mark(text.format(size=size), cell) for size, _full, cell in table if 0 < cell.count <= most]
    return blocks.listed([*full[-1:], *lora[-1:]]) or _("none")


def _with_mark(text: str, cell: Fewest) -> str:
    """Return a text with the mark of an estimate, on the same line."""
    mark = {"undercuts": UNDERCUTS, "unrecorded": NO_RUN}.get(cell.support)
    return f"{text}\N{NO-BREAK SPACE}{mark}" if mark else text


def _count_text(cell: Fewest) -> str:
    """Return the fewest GPUs, or why no number fits and how many might."""
    if not cell.count:
        text = _("none ({reason}); {count} might") if cell.near else _("none ({reason})")
        return text.format(reason=_(cell.why), count=f"{cell.near:,}")
    others = f"{cell.without:,}" if cell.without else _("none")
    text = "{gpus}" if cell.without == cell.count else _("{gpus} ({others})")
    return text.format(gpus=_with_mark(f"{cell.count:,}", cell), others=others)


# -- all cases, and all data


class VerlAccuracy(VerlDirective):
    """Every case with its computed and observed value."""

    directive = "verl-accuracy"
    takes = (choices("Groups of cases to include.", CASE_GROUPS, name="group"), *ABOUT_TABLE)
    instead_of_argument = "list groups in :group:"
    reads = ("config_keys", "accuracy", "cases")

    def show(self) -> list[nodes.Node]:
        """Return the table, folded in HTML, with the reasons why some cases do not count."""
        scores = scores_of(self.data, self.values["group"])
        reasons = {item.case.id: item.case.contested or item.case.not_scored or item.error for item in scores}
        notes = [f"{case}: {reason}" for case, reason in reasons.items() if reason]
        headings = (
            *(_("Case and source"), _("Kind"), _("Model"), _("GPUs"), _("Computed (GiB)"), _("Range (GiB)")),
            *(_("Observed (GiB)"), _("Error"), _("Inside, or verdict")),
        )
        table = self.table(blocks.table_group(headings, map(_case, scores)), _("Every case"))
        text = plural("{count} case", "{count} cases", len(scores)).format(count=len(scores))
        return [blocks.details([nodes.Text(text)], [table, *([_key_list(notes)] if notes else [])])]


def _case(item: Score) -> Iterator[blocks.Cell | str]:
    """Yield the cells of a case."""
    case, own, observation = item.case, item.estimate, item.observed
    yield blocks.Cell([(case.id, case.source.address if case.source else None)], [], (blocks.PATH_CLASS,))
    yield own.kind if own else ""
    yield case.model.rpartition("/")[2]
    yield "*".join(filter(None, (str(case.gpus.count or "?"), case.gpus.type)))
    sizes = (item.computed, item.low, item.high) if observation else own and (own.peak, own.low, own.high)
    yield blocks.Cell.number(gib_number(sizes[0]) if sizes else "")
    yield words.span(*sizes[1:]) if sizes else ""
    outcome = _("out of memory") if case.outcome == "oom" else _("ran") if case.outcome else ""
    yield blocks.Cell.number(gib_number(observation)) if observation else outcome
    error = item.deviation
    yield blocks.Cell.number("" if error is None else signed(round(error, 3) + 0.0, share))  # no -0.0
    if case.contested or case.not_scored or not own:
        yield _("contested") if case.contested else _("not scored")
    elif observation:
        yield _("yes") if item.inside else _("no")
    else:
        agrees = {True: _("{verdict}: agrees"), False: _("{verdict}: contradicts"), None: "{verdict}"}
        yield agrees[item.agrees].format(verdict=words.short(own.verdict, own.fits_up_to_tokens))


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
            items += item(blocks.titled(_file_link(self.env, name), _(content)))
        return [items]


def note_json(directive: VerlDirective, values: Iterable[str]) -> str:
    """Note a file for the builder with values as JSON, one per line, and return its name."""
    options, text = f"-{digest(directive.texts)[:8]}" if directive.texts else "", ",\n".join(values)
    name = f"{directive.directive}{options}.json"
    directive.domain.note_file(name, f"[\n{text}\n]\n")
    return name


def _file_link(env: BuildEnvironment, name: str) -> nodes.Element:
    """Return a link to a file in the output; elsewhere, its name."""
    return link_later(env, FILE, name, name, nodes.literal("", name))
