"""The form that answers whether a model fits, and the answers that its script looks up."""

from __future__ import annotations

import gc
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import accumulate, count, pairwise, product
from pathlib import Path
from typing import Any

from docutils import nodes
from jinja2 import Template
from sphinx.application import Sphinx
from sphinx.util.display import status_iterator
from sphinx.util.parallel import ParallelTasks, SerialTasks, parallel_available

from ..diagnostics import NoAnswerError
from ..directive import Option, VerlDirective
from ..domain import ESTIMATOR, LABEL, MODEL, OUT_OF_MEMORY, RUN, VerlDomain, file_address, is_for_browsers
from ..i18n import N_, _
from ..memory.phases import Phase
from ..memory.registries import EstimatorContext, capacity_of
from ..record_tables import entries_named
from ..registries import Gpu
from ..rows import as_script
from ..selection import each_once, phrases
from ..texts import run_title
from ..units import GIB, Category
from .answer import Answer, Answers, answer
from .bars import phase_chart
from .directives import answer_nodes, answers_file, note_json
from .evidence import shape_key_of
from .fewest import POWERS, size_models, window_of
from .question import USUAL_RANK, Question
from .results import figures_of_fewest
from .words import LABELS, Line, as_title, lines

#: The attribute of a form with what its template needs, until ``settle_forms`` writes it.
FORM = "verl_form"
#: The choices, besides model and GPU: longest responses in tokens, and ranks of adapters (0: none).
RESPONSES, RANKS = (1024, 4096, 16384), (0, USUAL_RANK)
_MEMORIES_GB = (24, 32, 40, 48, 64, 80, 96, 141, 180, 192, 288)
#: The choices of a form when it opens; the model if it is offered.
_MODEL, _COUNT, _MEMORY_GB = "Qwen/Qwen2.5-7B", 8, 80
#: The values of the option for models, and its default.
_MODELS = "Hugging Face names, separated by commas", "the models of recorded runs and of all size classes"
#: The command that answers the same question, and its option for adapters.
_PLAN, _PLAN_LORA = "verl-resources plan {model} --gpus {count}x{gpu} --response {response}", " --lora {lora}"
_FILE = Path(__file__).parents[1] / "templates" / "form.html.jinja"
_TEMPLATE = Template(_FILE.read_text("utf-8"), autoescape=True, trim_blocks=True)
#: What the script says besides the lines of an answer.
_WORDS: Mapping[str, str] = {
    "asked": N_("{model} on {count} GPUs of {gpu}, {lora}, responses of up to {response} tokens"),
    "below": N_("This is for {label} of these GPUs; fewer do not fit either."),
    "above": N_("This is for {label} of these GPUs. It fits on more, too: run the command below for those."),
    "noEstimate": N_("There is no estimate: {reason}."),
    "noWay": N_("shorter responses, LoRA or more GPUs alone are not enough"),
    "response": N_("responses of up to {label} tokens"),
    "count": N_("{label} GPUs"),
    "or": N_(" or "),
    "peak": N_("{phase} (peak)"),
    "range": N_("Range of the peak: {low} to {high} GiB"),
    "capacity": N_("GPU capacity: {size} GiB"),
    "strange": N_("The form does not offer {asked}. The answer is for the choices shown."),
    "loading": N_("Loading …"),
    "failed": N_("The answers for {model} could not be loaded. Run the command below instead."),
    "copied": N_("Copied"),
    "notCopied": N_("The browser did not allow copying."),
}
#: The lines whose numbers differ in nearly every answer, and the placeholder of a number.
_VARYING, _HOLE = ("verdict", "layout", "host", "release"), "{#}"
_NUMBER = re.compile(r"(?<![\w#.])\d[\d,.]*(?<=\d)(?!\w)", re.ASCII)
#: The place of a link to a run in the HTML of a line.
_RUN = re.compile(r"{([a-z0-9-]+)}")
_Tables = defaultdict[str, defaultdict[Any, int]]


def _names(text: str) -> tuple[str, ...]:
    return each_once(phrases(text), str, "name at least one, or leave the option out")


class VerlWhatIf(VerlDirective):
    """A form for model, GPUs and response length, with an answer."""

    directive = "verl-what-if"
    takes = (Option("models", "Models to choose from.", *_MODELS, _names, ()),)
    instead_of_argument = "list the models in :models:"
    reads = ("config_keys", "accuracy")

    def show(self) -> list[nodes.Node]:
        """Return the form with its first answer, and remember the files with all answers."""
        models = self.values["models"] or form_models(self.data)
        with self.note_errors("models"):
            entries_named(self.data, MODEL, models)
        if self.problems:
            return []
        fields = self._fields(models)
        values = {name: value for name, (_label, _options, value) in fields.items()}
        labels = {name: options[value] for name, (_label, options, value) in fields.items()}
        model, count, gpu, lora, response = values.values()
        first = answer(Question(model, count, gpu, lora=lora, response=response), self.data)
        group = next(group for group in gpu_groups(self.data) if group[0].name == gpu)
        form = nodes.container("", *answer_nodes(first, self.env), classes=[self.directive])
        files, records = self._files(models)
        words = {name: _(text) for name, text in _WORDS.items()}
        words["change"] = html(Line("change", _("To make it fit"), "{ways}."))
        form[FORM] = {
            "fields": fields,
            "asked": words["asked"].format(**labels),
            "verdict": first.verdict,
            "lines": [html(line) for line in lines(first, group)],
            "chart": phase_chart(first.best.estimate, _("Memory per GPU by phase")).node("").astext(),
            "plan": _PLAN.format(**values),
            "file": note_json(self, records),
            "command": first.command or "",
            "data": {
                "files": files,
                "words": words,
                "plan": (_PLAN, _PLAN_LORA),
                "titles": {verdict: as_title(_(text)) for verdict, text in LABELS.items()},
                "categories": [(each.colour, each.letter) for each in Category],
            },
        }
        return [form]

    def _fields(self, models: Sequence[str]) -> dict[str, tuple[str, dict[Any, str], Any]]:
        """Return the fields by name: label, the label of each value, and the first choice."""
        gpus = {}
        for group in gpu_groups(self.data):
            names = ", ".join(gpu.name.removesuffix(f"-{gpu.memory_gb:g}GB") for gpu in group)
            gpus[group[0].name] = f"{group[0].memory_gb:g} GB ({names})"
        first_gpu = next(name for name, label in gpus.items() if label.startswith(f"{_MEMORY_GB} GB "))
        first_model = _MODEL if _MODEL in models else models[0]
        rank_labels = _("all parameters"), _("LoRA (rank {rank})").format(rank=USUAL_RANK)
        return {
            "model": (_("Model"), {model: model.rpartition("/")[2] for model in models}, first_model),
            "count": (_("GPUs"), {count: f"{count:,}" for count in POWERS}, _COUNT),
            "gpu": (_("GPU memory"), gpus, first_gpu),
            "lora": (_("Trained"), dict(zip(RANKS, rank_labels, strict=True)), 0),
            "response": (_("Longest response"), {count: f"{count:,}" for count in RESPONSES}, RESPONSES[0]),
        }

    def _files(self, models: Sequence[str]) -> tuple[list[str], list[str]]:
        """Note the file with the answers for each model; return the files' keys, and all answers as JSON.

        If Sphinx uses several processes, they share the work.
        """
        app, files = self.domain.app, {model: answers_file(self, model) for model in models}
        todo = [model for model, file in files.items() if file.read() is None]

        def compute(model: str) -> None:
            files[model].write("\n".join(answers_texts(model, self.data)))

        tasks: Any = ParallelTasks(app.parallel) if parallel_available and app.parallel > 1 else SerialTasks()
        for model in status_iterator(todo, "answering the form... ", "brown", len(todo), app.verbosity):
            tasks.add_task(compute, model)
        tasks.join()
        records = []
        for file in files.values():
            text, *more = str(file.read()).split("\n")
            text = f'(globalThis.verlWhatIf ??= {{}})["{file.key}"]={text};\n'
            self.domain.note_file(f"_static/verl-what-if-{file.key}.js", text)
            records += more
        return [file.key for file in files.values()], records


def settle_forms(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Write forms as HTML; other formats show the first answer."""
    domain = VerlDomain.of(app.env)

    def address(kind: str, name: str) -> str:
        """Return the address of an object from this page; empty if no page shows it."""
        page, target = domain.find(kind, name, docname) or (docname, None)
        # In a single page, the address of a document is only an anchor.
        own = "" if page == docname else app.builder.get_relative_uri(docname, page).partition("#")[0]
        return f"{own}#{target.anchor}".rstrip("#") if target else ""

    forms, links = [node for node in doctree.findall(nodes.container) if FORM in node.attributes], {}
    for run in domain.records.runs.values() if forms else ():
        name, place = escape(run_title(run)), address(RUN, run.id)
        links[run.id] = f'<a href="{place}">{name}</a>' if place else name
    for form in forms:
        about = form.attributes.pop(FORM)
        if is_for_browsers(app.builder):
            texts = (_RUN.sub(lambda run: links.get(run[1], run[0]), line) for line in about["lines"])
            about["lines"] = [*texts]
            about["json"] = as_script({**about["data"], "links": links})
            about["file"] = file_address(app.builder, docname, about["file"])
            about |= {"remedies": address(LABEL, OUT_OF_MEMORY), "more": address(LABEL, ESTIMATOR)}
            form.parent.replace(form, nodes.raw("", _TEMPLATE.render(about, _=_), format="html"))


# -- choices and answers


def form_models(data: EstimatorContext) -> list[str]:
    """Return a model for each size class, and every model of recorded runs, the smallest first.

    Of several models with the same shape, only the one that most runs load is returned.
    """
    names = [*size_models(data).values(), *(run.model for run in data.runs.values())]
    counts = Counter(entry.hf_id for name in names if (entry := data.architectures.get(name)))
    models = {shape_key_of(data, model): model for model, _count in reversed(counts.most_common())}
    return sorted(models.values(), key=lambda model: data.known_shape(model).parameters)


def gpu_groups(data: EstimatorContext) -> list[tuple[Gpu, ...]]:
    """Return the GPUs to choose from, by memory size and vendor; the smallest capacity comes first.

    Where some GPUs of a group have fast links, the others are left out, because layouts depend on the link.
    """
    groups: defaultdict[tuple[float, str], list[Gpu]] = defaultdict(list)
    for gpu in sorted(data.gpus, key=lambda gpu: (not gpu.fast_link, capacity_of(gpu))):
        if gpu.bfloat16 and gpu.memory_gb in _MEMORIES_GB:
            groups[gpu.memory_gb, gpu.vendor].append(gpu)
    every = (group for _, group in sorted(groups.items()))
    return [tuple(gpu for gpu in group if gpu.fast_link == group[0].fast_link) for group in every]


def html(line: Line) -> str:
    """Return a line of an answer in HTML, with a bold title, and with ids in braces for links to runs."""
    runs = _(", ").join(f"{{{run.id}}}" for run in line.runs)
    text, title = escape(line.text, quote=False).replace("{runs}", runs), escape(line.title)
    return _("{title}: {text}").format(title=f"<strong>{title}</strong>", text=text) if title else text


def pieces_of(phase: Phase) -> list[int]:
    """Return the categories of a phase in GiB; their sum is the rounded total."""
    ends = [0, *(round(size / GIB) for size in accumulate(phase.sizes.values()))]
    return [end - start for start, end in pairwise(ends)]


def answers_texts(model: str, data: EstimatorContext) -> list[str]:
    """Return the answers to every combination of choices for a model as JSON: for the form, then one by one.

    For the form, ``windows`` has an entry for each GPU, rank and response: the index in ``POWERS`` of the
    most GPUs on which the model does not fit; the index of the fewest on which it fits; and a cell, or the
    reason why there is no estimate, for each number of GPUs from the first on.

    A cell has the indices of its kind, bars and command in tables; the ends of its range and the GPU's
    capacity in GiB; then the numbers that replace each ``{#}`` in its texts, with commas, and its command.

    - ``kinds``: the verdict, and indices of texts, the reason first.
    - ``texts``: lines in HTML, with the GPU's name and the links to runs as ``{GPU}`` and ``{id}``; phases.
    - ``bars``: indices of pieces. ``pieces``: index of the phase in texts, and the GiB of each category.
    - ``commands``: indices of words. ``words``: the lines of commands.

    Args:
        model: its Hugging Face name, which must be known.
        data: the records.
    """
    tables: _Tables = defaultdict(lambda: defaultdict(count().__next__))
    windows, records = list[list[Any]](), list[str]()
    gc.disable()  # the collector takes a fifth of the time, and nothing here has reference cycles
    questions = [
        (rank, response, Answers(Question(model, gpus=1, lora=rank, response=response), data))
        for rank, response in product(RANKS, RESPONSES)
    ]
    for group, (rank, response, answers) in product(gpu_groups(data), questions):
        first, fits, cells = window_of(answers, group[0].name)
        windows.append([first, fits, *(_cell(each, group, tables) for each in cells)])
        figures = (figures_of_fewest(each) for each in cells if isinstance(each, Answer))
        records += (json.dumps({**each, "lora_rank": rank, "response": response}) for each in figures)
    gc.enable()
    return [as_script({"windows": windows, **{name: [*table] for name, table in tables.items()}}), *records]


def _cell(answer: Answer | NoAnswerError, group: Iterable[Gpu], tables: _Tables) -> list[int | str] | str:
    """Return the cell of an answer, and add its texts, bars and command to the tables if they are new."""
    if isinstance(answer, NoAnswerError):
        return escape(str(answer))
    best, numbers = answer.best.estimate, list[str]()
    kind: list[Any] = [answer.verdict]
    for line in lines(answer, group):
        text = html(line)
        if line.name in _VARYING:
            text = text.replace(str(answer.request.gpu), "{GPU}")
            numbers += (number.replace(",", "") for number in _NUMBER.findall(text))
            text = _NUMBER.sub(_HOLE, text)
        kind.append(tables["texts"][text])
    command = answer.command or ""
    numbers += _NUMBER.findall(command)
    words = (tables["words"][word] for word in _NUMBER.sub(_HOLE, command).split("\n"))
    phases = [(tables["texts"][escape(_(phase.label))], *pieces_of(phase)) for phase in best.phases]
    return [
        tables["kinds"][tuple(kind)],
        tables["bars"][tuple(tables["pieces"][pieces] for pieces in phases)],
        tables["commands"][tuple(words)],
        *(round(size / GIB) for size in (best.low, best.high, best.capacity or 0)),
        *(int(number) if number.isdecimal() and number[0] != "0" else number for number in numbers),
    ]
