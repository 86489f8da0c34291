"""A form that answers whether a model fits."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from jinja2 import Environment
from sphinx.util.display import status_iterator
from sphinx.util.parallel import ParallelTasks, SerialTasks, parallel_available

from ..diagnostics import NoAnswerError
from ..directive import Option
from ..domain import ESTIMATOR, LABEL, MODEL, OUT_OF_MEMORY, RUN, VerlDomain, digest, is_for_browsers
from ..i18n import N_, _
from ..memory.phases import LABELS as PHASES
from ..memory.registries import capacity_of
from ..nodes import code_block
from ..record_tables import entries_named
from ..rows import as_script
from ..selection import each_once, phrases
from ..units import GIB, Category
from .answer import answer
from .charts import phase_chart
from .command import SEPARATOR, command_of
from .directives import SettingsDirective
from .evidence import figures_of
from .fewest import POWERS
from .grid import CHOSEN, RANKS, RESPONSES, answers_text, form_models, gpu_groups, html
from .pages import answer as answer_nodes
from .question import Question
from .words import LABELS, as_title, lines, run_name, title, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sphinx.application import Sphinx

    from ..registries import Gpu

#: The attribute of a form with what its template needs, until ``settle_forms`` writes it.
FORM = "verl_form"
#: The choices of a form when it opens; the model if it is offered.
_MODEL, _COUNT, _MEMORY_GB = "Qwen/Qwen2.5-7B", 8, 80
#: The values of the option for models, and its default.
_MODELS = "Hugging Face names, separated by commas", "the models of recorded runs and of all size classes"
#: The files, besides runs and architectures, that decide answers.
_REGISTRIES = ("gpus.yaml", "config_keys.yaml", "accuracy.yaml")
#: The command that answers the same question, and its option for adapters.
_PLAN, _PLAN_LORA = "verl-resources plan {model} --gpus {count}x{gpu} --response {response}", " --lora {lora}"
_FILE = Path(__file__).parents[1] / "templates" / "form.html.jinja"
_TEMPLATE = Environment(autoescape=True, trim_blocks=True).from_string(_FILE.read_text("utf-8"))
#: What the script says besides the lines of an answer.
_WORDS: Mapping[str, str] = {
    "asked": N_("{model} on {count} GPUs of {gpu}, {lora}, responses of up to {response} tokens"),
    "below": N_("This is for {label} of these GPUs; with fewer, each needs more memory."),
    "above": N_("This is for {label} of these GPUs; with more, each needs no more memory."),
    "noEstimate": N_("There is no estimate: {reason}."),
    "noWay": N_("shorter responses, LoRA or more GPUs alone are not enough"),
    "response": N_("responses of up to {label} tokens"),
    "count": N_("{label} GPUs"),
    "or": N_(" or "),
    "between": N_(", "),
    "peak": N_("{phase} (peak)"),
    "range": N_("Range of the peak: {low} to {high} GiB"),
    "capacity": N_("GPU capacity: {size} GiB"),
    "strange": N_("The form does not offer {asked}. The answer is for the choices shown."),
    "loading": N_("Loading …"),
    "failed": N_("The answers for {model} could not be loaded. Run the command below instead."),
    "copied": N_("Copied"),
    "notCopied": N_("The browser did not allow copying."),
}


def _names(text: str) -> tuple[str, ...]:
    found = phrases(text)
    each_once(found, str.casefold, "name at least one, or leave the option out")
    return tuple(found)


class VerlWhatIf(SettingsDirective):
    """A form for model, GPUs and response length, with an answer."""

    directive = "verl-what-if"
    takes = (Option("models", "Models to choose from.", *_MODELS, _names, ()),)
    instead_of_argument = "list the models in :models:"

    def show(self) -> list[nodes.Node]:
        """Return the form with its first answer, and remember the files with all answers."""
        models, settings = self.values["models"] or form_models(self.data), self.settings()
        with self.noted("models"):
            entries_named(self.data, MODEL, models)
        for key in settings.keys() & CHOSEN:
            raise NoAnswerError.because("the form sets this key", "leave it out", key=key, code="directive")
        if self.problems:
            return []
        groups = gpu_groups(self.data)
        fields = _fields(models, groups)
        values, labels = ({field[0]: field[2][field[3]][side] for field in fields} for side in (0, 1))
        model, count, gpu, lora, response = values.values()
        asked = Question(model, int(count), gpu, None, int(lora), None, int(response), settings)
        found = answer(asked, self.data)
        best, fits = found.best.estimate, found.verdict != "does-not-fit"
        self.problems += best.warnings
        command = command_of(found.best, self.data) if fits else ""
        form = nodes.container("", *answer_nodes(found, self.env), classes=[self.directive])
        form += code_block(command, "shell", "verl-flags") if fits else []
        script_url, runs = self.domain.links.file, self.data.runs.values()
        scripts = {run.id: script_url(run.script.ref, run.script.path) for run in runs if run.script}
        words = {name: _(text) for name, text in _WORDS.items()}
        words["change"] = html(_("To make it fit"), "{ways}.")
        # In whole GiB, as the script has them.
        drawing = phase_chart(best, _("Memory per GPU by phase"))
        sizes = [f"{whole(phase.total)} GiB" for phase in best.phases]
        bars = [bar._replace(value=size) for bar, size in zip(drawing.bars, sizes, strict=True)]
        form[FORM] = {
            "fields": fields,
            "asked": words["asked"].format(**labels),
            "badge": (found.verdict, title(found.verdict)),
            "lines": [(html(line.title, line.text), [run.id for run in line.runs]) for line in lines(found)],
            "chart": drawing._replace(bars=bars).node("").astext(),
            "plan": _PLAN.format(**values),
            "command": command,
            "script": next((scripts[run.id] for run in found.proof if run.word == "ran" and run.script), ""),
            "data": {
                "files": self._files(models, settings),
                "words": words,
                "plan": (_PLAN, _PLAN_LORA),
                "separator": SEPARATOR,
                "scripts": scripts,
                "titles": {verdict: as_title(_(text)) for verdict, text in LABELS.items()},
                "capacities": [round(capacity_of(group[0]) / GIB) for group in groups],
                "phases": [_(text) for text in PHASES.values()],
                "categories": [(each.colour, each.letter) for each in Category],
            },
        }
        return [form]

    def _files(self, models: Iterable[str], settings: Mapping[str, Any]) -> list[str]:
        """Note the file with the answers for each model, and return the files' names.

        Answers are kept beside the doctrees until something that decides them changes. If Sphinx uses several
        processes, they share the work.
        """
        app, data, keys = self.domain.app, self.data, dict[str, str]()
        code = [path.read_bytes() for path in sorted(Path(__file__).parents[1].rglob("*.[mp][oy]"))]
        registries = [[file.content for file in data.files[name]] for name in _REGISTRIES]
        common = digest(code, registries, settings, app.config.language)
        for model in models:
            figures = figures_of(data, model)
            runs = [run for run in data.runs.values() if figures_of(data, run.model) == figures]
            keys[model] = digest(common, data.architectures.get(model), runs)[:16]
        kept = {model: Path(app.doctreedir, f"verl-form-{digest(model, settings)[:16]}.js") for model in keys}
        texts = {model: file.read_text("utf-8") if file.is_file() else "" for model, file in kept.items()}
        # The key comes last, so that a file of which a part is missing does not count.
        missing = [model for model, text in texts.items() if not text.endswith(keys[model])]
        progress = status_iterator(missing, "answering the form... ", "brown", len(missing), app.verbosity)

        def compute(model: str) -> None:
            text, key = answers_text(model, settings, data), keys[model]
            kept[model].write_text(f'(globalThis.verlWhatIf ??= {{}})["{key}"]={text};\n//{key}', "utf-8")

        tasks: Any = ParallelTasks(app.parallel) if parallel_available and app.parallel > 1 else SerialTasks()
        for model in missing:
            tasks.add_task(compute, model, lambda *_results: next(progress))
        tasks.join()
        next(progress, None)
        for model, file in kept.items():
            self.domain.note_file(f"_static/verl-what-if-{keys[model]}.js", file.read_text("utf-8"))
        return [*keys.values()]


def _fields(models: Sequence[str], groups: Sequence[Sequence[Gpu]]) -> list[tuple[Any, ...]]:
    """Return the fields: name, label, pairs of value and label, and the index of the first choice."""
    gpus = []
    for group in groups:
        names = ", ".join(gpu.name.removesuffix(f"-{gpu.memory_gb:g}GB") for gpu in group)
        gpus.append((group[0].name, f"{group[0].memory_gb:g} GB ({names})"))
    adapters = [(str(rank), _("LoRA (rank {rank})").format(rank=rank)) for rank in RANKS if rank]
    counts, lengths = ([(str(count), f"{count:,}") for count in counts] for counts in (POWERS, RESPONSES))
    first_gpu = [group[0].memory_gb for group in groups].index(_MEMORY_GB)
    first_model = models.index(_MODEL) if _MODEL in models else 0
    return [
        ("model", _("Model"), [(model, model.rpartition("/")[2]) for model in models], first_model),
        ("count", _("GPUs"), counts, POWERS.index(_COUNT)),
        ("gpu", _("GPU memory"), gpus, first_gpu),
        ("lora", _("Trained"), [("0", _("all parameters")), *adapters], 0),
        ("response", _("Longest response"), lengths, 0),
    ]


def settle_forms(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Write forms as HTML; other formats show the first answer."""
    domain = VerlDomain.of(app.env)

    def address(kind: str, name: str) -> str:
        """Return the address of an object from this page; empty if no page shows it."""
        page, target = domain.find(kind, name, docname) or (docname, None)
        # In a single page, the address of a document is only an anchor.
        own = "" if page == docname else app.builder.get_relative_uri(docname, page).partition("#")[0]
        return f"{own}#{target.anchor}".rstrip("#") if target else ""

    for form in list(doctree.findall(nodes.container)):
        about = form.attributes.pop(FORM, None)
        if about and is_for_browsers(app.builder):
            rows = {run: place for run in domain.records.runs if (place := address(RUN, run))}
            names = {run: escape(run_name(record)) for run, record in domain.records.runs.items()}
            names |= {run: f'<a href="{place}">{names[run]}</a>' for run, place in rows.items()}
            about["lines"] = [
                text.replace("{runs}", _(", ").join(names[run] for run in runs))
                for text, runs in about["lines"]
            ]
            about["data"] = as_script({**about["data"], "rows": rows})
            about |= {"remedies": address(LABEL, OUT_OF_MEMORY), "more": address(LABEL, ESTIMATOR)}
            text = _TEMPLATE.render(about, _=_)
            form.parent.replace(form, nodes.raw("", text, format="html"))
