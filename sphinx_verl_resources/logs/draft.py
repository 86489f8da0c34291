"""The fields of a new run file, from a launch script, a log and the user's options, or from an issue form."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..check import Repository
from ..diagnostics import FORBIDDEN, Code, Diagnostic, Location, NoAnswerError, counted, warning
from ..fit.arguments import gpus_of
from ..fit.names import model_of, program_of, recorded_gpu, task_in, trainer_of
from ..fit.question import ESTIMATOR
from ..memory.registries import EstimatorContext
from ..memory.request import ACTOR, MODEL, ROLLOUT, parse_gpus
from ..memory.settings import TRAINER_GPUS, all_gpus
from ..memory.versions import CURRENT, version_of
from ..records import ENGINES, MOST_GPUS, TRAIN_BACKENDS, Run
from ..scripts.rules import ScriptName, parse_script_name
from ..scripts.settings import SettingsText
from ..selection import as_text
from ..speed.steps import speed_of
from ..strict_yaml import read_yaml
from ..validation import try_model
from .facts import memory_fields
from .log import Log
from .run_file import TODO

_MODEL, _ENGINE = f"{MODEL}.path", f"{ROLLOUT}.name"
_STRATEGY = (f"{ACTOR}.strategy", "model_engine")
#: Settings that a row has even with verl's defaults.
_ALWAYS = {
    "data.train_batch_size", "data.max_prompt_length", "data.max_response_length", *TRAINER_GPUS, ESTIMATOR,
    _ENGINE, f"{ROLLOUT}.n", f"{ROLLOUT}.tensor_model_parallel_size", f"{ROLLOUT}.gpu_memory_utilization",
    f"{ACTOR}.ppo_mini_batch_size",
}  # fmt: skip
#: The settings that options replace.
_REPLACED = {"task": [ESTIMATOR], "gpus": TRAINER_GPUS, "model": [_MODEL]}
#: Keys about files, accounts and machines, and such values under any key.
_PRIVATE = re.compile(
    r"(?i)data\.(train|val|test)_files$|trainer\.(logger|project_name|experiment_name)$|.*wandb"
    r"|(ray_init|ray_kwargs|global_profiler)\.|(.*[._])?(paths?|dirs?|files?|folder|home|host|hostname|ip|addr"
    r"|address|url|port|user|username|email|password|secret|credentials?)$"
    r"|(.*[._-])?(api_?key|access_?key|secret_?key|(auth_?|access_?)?token)$"
)
_PRIVATE_VALUE = re.compile(
    r"(?i)\A[~/\\]|\A[A-Z]:\\|\A\.{1,2}/|://|@\w|\$|(?<!\d)\d{1,3}(\.\d{1,3}){3}(?!\d)|\A(hf|sk|ghp)[_-]\w{16}"
    r"|(^|/)(home|root|mnt|data|users)/"
)
#: Values that no run file contains: invisible characters, and numbers that are not finite.
_UNWRITABLE = re.compile(rf"{FORBIDDEN.pattern}|\A(-?inf|nan)\Z")
#: The fields of a run by the labels of the issue form, where these differ.
_LABELS = {
    "training backend": "train", "rollout engine": "infer", "largest batch": "max_batch", "remarks": "notes",
}  # fmt: skip
_ONE_RUN = "give the script and the log of one run, or correct the file"


@dataclass(frozen=True)
class Sources:
    """A script and a log of one run; either may be missing.

    Attributes:
        script: the settings in the script, and in the configuration beside it that it selects.
        path: the path of the script.
        log: the log; an empty one if there is none.
        has_defaults: whether unset options have verl's defaults; a log may be cut off.
        problems: what is doubtful or left out.
    """

    script: SettingsText = field(default_factory=SettingsText)
    path: str = ""
    log: Log = field(default_factory=Log)
    has_defaults: bool = False
    problems: list[Diagnostic] = field(default_factory=list)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The known settings. The log is what ran: it overrides the script."""
        return {**self.script.values, **self.log.settings}

    def warn(self, code: Code, message: str, remedy: str, key: str = "") -> None:
        """Add a problem at the place of a key in the script; without one, in the script or the log."""
        place = self.script.places.get(key) or Location(self.path or self.log.label)
        self.problems.append(warning(place, code, message, remedy))


def fields_of_run(sources: Sources, options: argparse.Namespace, data: EstimatorContext) -> dict[str, Any]:
    """Return the fields of a run; values that every run needs are ``TODO`` if they are unknown.

    Options override the log, and the log overrides the script.

    Raises:
        NoAnswerError: an option names an unknown GPU.
    """
    script, log, settings = sources.script, sources.log, sources.settings
    label = parse_script_name(sources.path.replace("\\", "/")) or ScriptName("", "")
    versions = log.versions
    gpus, nodes = gpus_of(options, data)
    lacking = set() if sources.has_defaults else {ESTIMATOR, *TRAINER_GPUS}
    unread = frozenset({*script.unresolved, *lacking} - {*settings, *nodes})
    pools = all_gpus({**dict.fromkeys(unread - lacking), **settings, **nodes}, unread, data)
    count = gpus.get("gpus") or (label.count if pools.open_key else pools.total)
    count = count if count and count <= MOST_GPUS else None
    gpu = gpus.get("gpu") or recorded_gpu(log.gpu or label.device or "", data.gpus)
    if log.gpu and not gpu:
        message = f"the GPU {log.gpu!r} is not recorded, or has several memory sizes"
        sources.warn("unknown_gpu", message, "give it with --gpu")
    in_log = [name for name in ENGINES if name in versions]
    engines = (settings.get(_ENGINE), label.engine, in_log[0] if len(in_log) == 1 else None)
    engine = next((name for name in engines if name in ENGINES), TODO)
    fields: dict[str, Any] = {
        "model": _model(sources, options.model, data),
        "task": options.task or task_in(settings, program_of(script), unread) or TODO,
        "gpus": {"count": count or TODO, "type": gpu or TODO},
        "train": _train(sources, label) or TODO,
        "infer": {"engine": engine, "version": versions.get(engine, TODO)},
        "versions": {"verl": TODO} | {name: versions[name] for name in ("verl", "torch") if name in versions},
        "script": _link(sources),
        "measured": {**memory_fields(log.figures), **_speed(sources, count)},
        "trainer": trainer_of(settings, program_of(script)),
        "settings": _settings(sources, data),
    }
    if count and not (pools.others or TRAINER_GPUS[0] in unread or count % pools.nodes):
        fields["gpus"]["nodes"] = pools.nodes
    settled = {*settings, *filter(is_private, script.unresolved)}
    settled |= {key for name, keys in _REPLACED.items() if getattr(options, name) for key in keys}
    sources.problems[:0] = [*script.problems_besides(settled), *log.problems]
    return {name: value for name, value in fields.items() if value}


def _model(sources: Sources, option: str | None, data: EstimatorContext) -> str:
    """Return the model, TODO if it is unknown."""
    registry, script, log = data.architectures, sources.script, sources.log
    in_log = log.settings.get(_MODEL) or log.model
    in_script = model_of(registry, script.values.get(_MODEL), left_open=script.unresolved.get(_MODEL))
    mention = model_of(registry, option) if option else model_of(registry, in_log, in_script.text)
    if not mention.model:
        sources.warn(*mention.why_none(registry, "with --model"), _MODEL)
        return mention.text if mention.is_hub_name else TODO
    name, note = mention.model
    if note:
        sources.warn("unknown_model", note, "give another with --model", _MODEL)
    if in_log and not option and in_script.model and in_script.model.name != name:
        message = f"the model is {in_script.model.name} in the script but {name} in the log"
        sources.warn("log_differs", f"{message}; the log's is recorded", _ONE_RUN, _MODEL)
    return name


def _train(sources: Sources, label: ScriptName) -> str | None:
    """Return the training backend."""
    script = sources.script
    strategies = (str(sources.settings.get(key)).lower() for key in _STRATEGY)
    is_megatron = any(key.startswith(f"{ACTOR}.megatron.") for key in script.places)
    is_default = sources.has_defaults and not script.unresolved.keys() & {*_STRATEGY}
    otherwise = label.train or ("fsdp" if is_default else None)
    otherwise = "megatron" if is_megatron or "megatron" in (script.config_name or "") else otherwise
    return next((value for value in strategies if value in TRAIN_BACKENDS), otherwise)


def _speed(sources: Sources, gpus: int | None) -> dict[str, Any]:
    """Return the speed as fields of ``measured``."""
    speed = speed_of(sources.log.figures.steps, gpus, version_of(sources.log.versions.get("verl")))
    if speed.missing:
        sources.warn("left_out", f"no tokens per second are recorded, because {speed.missing}", speed.remedy)
    if speed.note:
        remedy = "check the number of GPUs, with those of rollout, reward models and teachers"
        sources.warn("log_differs", speed.note, remedy)
    return speed.fields


def _link(sources: Sources) -> dict[str, str]:
    """Return the commit and the path of the script, if it is committed in a checkout of verl."""
    path = Path(sources.path)
    repository = Repository(path.parent, sources.path)
    where = repository.ask("rev-parse", "--show-prefix", "HEAD") or b""
    prefix, _, ref = where.decode("utf-8", "surrogateescape").rstrip("\n").rpartition("\n")
    is_verl = repository.objects(["HEAD:verl/__init__.py"])
    committed = repository.ask("cat-file", "blob", f"HEAD:{prefix}{path.name}") if is_verl else None
    # Compared here, since `git diff` may run programs; git may have converted line endings at checkout.
    if committed is not None and committed.splitlines() == path.read_bytes().splitlines():
        return {"ref": ref, "path": f"{prefix}{path.name}"}
    if sources.path:
        message = "the script is not linked, because it is not committed in a checkout of verl"
        remedy = "commit it there and give that path, or add 'script' to the file"
        sources.warn("script_place", message, remedy)
    return {}


# -- settings


def is_private(key: str, value: Any = None) -> bool:
    """Return whether a setting is about a file, an account or a machine.

    >>> is_private("data.train_files"), is_private("trainer.x", "/home/me"), is_private("trainer.nnodes", 2)
    (True, True, False)
    """
    items = value if isinstance(value, tuple) else (value,)
    return bool(
        _PRIVATE.match(key) or any(_PRIVATE_VALUE.search(item) for item in items if isinstance(item, str))
    )


def _settings(sources: Sources, data: EstimatorContext) -> dict[str, Any]:
    """Return the settings of the script, and those of the log that are not verl's defaults.

    Those that are private or that no run file can contain are left out.
    """
    script, log, settings = sources.script, sources.log.settings, sources.settings
    defaults, every = data.defaults(version_of(sources.log.versions.get("verl")) or CURRENT), data.config_keys
    changed = {key for key in log if key in every and log[key] not in (None, defaults.get(key, TODO))}
    keys = [*script.places, *(key for key in log if key in _ALWAYS | changed)]
    private = {key for key in keys if is_private(key, settings.get(key))}
    public = {key: settings[key] for key in keys if key in settings and key not in private}
    errors = try_model({"settings": public}, Run)[1]
    wrong = {str(error["loc"][1]) for error in errors if error["loc"][0] == "settings"}
    wrong |= {key for key, value in public.items() if _UNWRITABLE.search(str(value))}
    reasons = {"they contain files, accounts or machines": private, "a run file cannot contain them": wrong}
    for reason, omitted in reasons.items():
        if names := ", ".join(sorted(omitted - {_MODEL})):  # the model has its own field
            message = f"settings left out, because {reason}: {names}"
            sources.warn("left_out", message, "add by hand those that others need")
    public = {key: value for key, value in public.items() if key not in wrong}
    before = script.values
    if differing := [key for key in public if key in before and before[key] != public[key]]:
        pairs = [f"{key} (script {as_text(before[key])}, log {as_text(public[key])})" for key in differing]
        message = f"script and log differ in {counted(len(pairs), 'setting')}, and the log's are recorded"
        sources.warn("log_differs", f"{message}: {', '.join(pairs)}", _ONE_RUN, differing[0])
    return public


# -- issues


def fields_of_issue(body: str, label: str) -> dict[str, Any]:
    r"""Return the fields in the text of an issue, with a heading for each field and YAML below it.

    Args:
        body: the text.
        label: its name in messages.

    Raises:
        NoAnswerError: the answers are not YAML.

    >>> fields_of_issue("### Model\n\nQwen/Qwen3-8B\n\n### GPUs\n\n8xH100\n", "issue")["gpus"]
    {'count': 8, 'type': 'H100'}
    """
    text = re.sub("(?m)^(?!### )", "  ", body.replace("\r\n", "\n"))
    text = re.sub("(?m)^  (```.*|_No response_)$", "", text)
    text = re.sub("(?m)^### (.+)$", lambda match: f"{_LABELS.get(match[1].lower(), match[1].lower())}:", text)
    document = read_yaml(text.encode(), label)
    if document.problems or not isinstance(document.data, dict):
        message = "the text has no headings of the form"
        nothing = Diagnostic(Location(label), "file_empty", message, "give all of it")
        raise NoAnswerError(*(document.problems or [nothing]))
    answers = {name: value for name, value in document.data.items() if value is not None}
    fields = {"model": TODO, "task": TODO, "gpus": "", **answers}
    if not isinstance(fields["gpus"], dict):
        count, gpu = parse_gpus(str(fields["gpus"]))
        fields["gpus"] = {"count": count or TODO, "type": gpu or TODO}
    return fields
