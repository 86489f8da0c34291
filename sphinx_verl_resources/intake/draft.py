"""Derive the fields of a new run file from a launch script, a log and the user's options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ..check import Repository
from ..diagnostics import Diagnostic, Location, warning
from ..logs.facts import measured_fields
from ..memory.registries import gpu_named
from ..memory.settings import TRAINER_GPUS, all_gpus
from ..memory.shape import Counts
from ..memory.versions import CURRENT
from ..records import ENGINES, MOST_GPUS, TRAIN_BACKENDS, size_class
from ..scripts.script_names import ScriptName, parse_script_name
from .log_facts import measured_fields
from .recorded_names import model_of, recorded_gpu
from .run_text import TODO, suggested_id
from .sources import ONE_RUN, is_private, public_settings, tells_of_a_machine
from .tasks import ESTIMATOR, program_of, task_of

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from datetime import date
    from pathlib import Path

    from ..memory.registries import EstimatorContext
    from .sources import Sources, UserInput

_MODEL = "actor_rollout_ref.model.path"
_STRATEGY = ("actor_rollout_ref.actor.strategy", "model_engine")
_ENGINE = "actor_rollout_ref.rollout.name"
#: Settings that every run should state.
_ALWAYS = frozenset(
    {
        "data.train_batch_size", *TRAINER_GPUS, ESTIMATOR, _ENGINE,
        "data.max_prompt_length", "data.max_response_length",
        "actor_rollout_ref.rollout.n", "actor_rollout_ref.rollout.tensor_model_parallel_size",
        "actor_rollout_ref.rollout.gpu_memory_utilization", "actor_rollout_ref.actor.ppo_mini_batch_size",
    }
)  # fmt: skip
_MEGATRON = "actor_rollout_ref.actor.megatron."

_ADD_MODEL = "add it to architectures.yaml"
_REMARKS = {
    "tag": "MIN: settings that save memory, or the least hardware; RECOMMENDED: settings for throughput",
}
#: For each field: the message if it is unknown, the remedy, and the settings that determine it.
_UNKNOWN: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "task": ("unknown algorithm", "give it with --task, for example --task GRPO", (ESTIMATOR,)),
    "count": (
        "unknown number of GPUs, since the value of {key} is unknown",
        "give it with --gpus, as in 8*H100",
        (*TRAINER_GPUS,),
    ),
    "engine": ("unknown rollout engine", "give it with --infer, as in --infer vllm", (_ENGINE,)),
}
#: Fields that are often in a log but rarely in a script: their descriptions and options.
_UNTOLD: dict[str, tuple[str, str]] = {
    "gpu": ("the GPU's type", "--gpus"),
    "engine version": ("the version of {engine}", "--infer-version"),
    "verl": ("the version of verl", "--verl-version"),
}


class Draft(NamedTuple):
    """A run file before it is written.

    Attributes:
        fields: values by field name; ``TODO`` if unknown.
        remarks: comments after fields, by name.
        problems: doubtful, missing or omitted values.
    """

    fields: dict[str, Any]
    remarks: dict[str, str]
    problems: list[Diagnostic]


def draft_run(sources: Sources, user: UserInput, registries: EstimatorContext, today: date) -> Draft:
    """Return the known fields of a run.

    Args:
        sources: script and log.
        user: the user's options, which override script and log.
        registries: known models, GPUs and configuration keys.
        today: the date of the run file.

    Returns:
        The fields, in which unknown values are ``TODO``, with problems that say what to do.
    """
    found, problems = _found(sources, user, registries)
    to_do = {name: value or TODO for name, value in found.items()}
    fields = _known(
        task=to_do["task"],
        gpus=_known(count=to_do["count"], type=to_do["gpu"], nodes=found["nodes"]),
        size=to_do["size"],
        tag=TODO,
        model=to_do["model"],
        train=user.train or to_do["train"],
        infer=_known(engine=to_do["engine"], version=found["engine version"]),
        script=found["script"],
        contributor={"name": TODO, "url": TODO},
        kind="tested",
        added=today,
        versions=_known(verl=found["verl"], torch=found["torch"]),
        settings=found["settings"],
        measured=measured_fields(sources.log.figures) if sources.log else {},
        evidence=[{"kind": "log", "url": TODO}],
    )
    fields["id"] = user.id or id_of(fields)
    remarks = {name: text for name, text in _REMARKS.items() if name in fields}
    return Draft(fields, remarks, [*sources.problems(), *problems])


def _known(**values: Any) -> dict[str, Any]:
    """Return the values that are known."""
    return {name: value for name, value in values.items() if value}


def _found(
    sources: Sources, user: UserInput, registries: EstimatorContext
) -> tuple[dict[str, Any], list[Diagnostic]]:
    """Return the values for the fields, None if unknown, and the doubtful or omitted ones as problems."""
    named = parse_script_name(sources.shown.replace("\\", "/")) or ScriptName("", "")
    versions = sources.log.versions if sources.log else {}
    model, about_model = _model(sources, user, registries)
    architecture = registries.architectures.get(model)
    count, nodes, open_key = _gpu_count(sources, user, registries)
    gpu, about_gpu = _gpu(sources, user, registries, named)
    engine = user.engine or _engine(sources, named)
    script, about_script = _script(sources)
    settings, about_settings = _settings(sources, registries, model)
    found = {
        "model": model,
        "size": size_class(Counts(architecture).total) if architecture else None,
        "task": user.task or _task(sources),
        "count": count or named.count,
        "nodes": nodes,
        "gpu": gpu,
        "train": _train(sources, named),
        "engine": engine,
        # Do not ask for the version of an unknown engine.
        "engine version": user.engine_version or versions.get(engine) if engine else "",
        "verl": user.verl_version or versions.get("verl"),
        "torch": versions.get("torch"),
        "script": script,
        "settings": settings,
    }
    undecided = [
        warning(sources.place(*keys), "undecided", message.format(engine=engine, key=open_key), remedy)
        for name, (message, remedy, keys) in _UNKNOWN.items()
        if found[name] is None
    ]
    untold = [value for name, value in _UNTOLD.items() if found[name] is None]
    if untold:
        message = f"unknown: {', '.join(what for what, _ in untold)}".format(engine=engine)
        remedy = f"add {', '.join(option for _, option in untold)}"
        undecided.append(warning(sources.place(), "undecided", message, remedy))
    return found, [*about_model, *about_gpu, *undecided, *about_script, *about_settings]


def id_of(fields: Mapping[str, Any], more: str = "", taken: Container[str] = ()) -> str:
    """Return the id of a run, without fields that are still TODO.

    Args:
        fields: values by field name.
        more: suffix that distinguishes it from another run of the same kind.
        taken: ids of other runs.

    >>> id_of({"model": "TODO", "task": "GRPO", "gpus": {"count": "TODO", "type": "H100"}})
    'run-grpo-h100'
    """
    known = {key: None if value == TODO else value for key, value in {**fields, **fields["gpus"]}.items()}
    return suggested_id(
        known["model"] or "run", known["task"] or "", known["count"], known["type"], more, taken
    )


def _model(sources: Sources, user: UserInput, registries: EstimatorContext) -> tuple[str, list[Diagnostic]]:
    """Return the model, TODO if it is unknown or ambiguous, and the problems with it."""
    known, place = registries.architectures, sources.place(_MODEL)
    in_script, in_log = sources.script.values.get(_MODEL), sources.printed.get(_MODEL)
    left_open = sources.script.unresolved.get(_MODEL)
    if user.model:
        meant = model_of(known, user.model)
    else:
        meant = model_of(known, in_script, in_log, left_open=left_open)
    if meant.found:
        name, note = meant.found
        remedy = f"give another with --model, or {_ADD_MODEL}"
        found = [warning(place, "unknown_model", note, remedy)] if note else []
        one, other = (model_of(known, text).model for text in (in_script or left_open, in_log))
        if not user.model and one and other and one != other:
            message = f"the model is {one} in the script and {other} in the log; {name} is used"
            found.append(warning(place, "log_differs", message, ONE_RUN))
        return name, found
    code, message, remedy = meant.why_none(known, "with --model")
    if not meant.is_hub_name:
        return TODO, [warning(place, "undecided", message, remedy)]
    more = f"{remedy}, or {_ADD_MODEL}"
    return meant.text, [warning(place, code, f"{message}, so there is no estimate", more)]


def _task(sources: Sources) -> str | None:
    """Return the algorithm and its variant."""
    unset = frozenset() if sources.has_defaults else {ESTIMATOR} - sources.all.keys()
    return task_of(sources.all, program_of(sources.script), unknown=sources.open | unset)


def _gpu_count(
    sources: Sources, user: UserInput, registries: EstimatorContext
) -> tuple[int | None, int | None, str]:
    """Return the numbers of GPUs and nodes, None if unknown, and the key whose value is missing.

    If some GPUs do not train, no setting determines the number of nodes.
    """
    unread = sources.open
    if not sources.has_defaults:  # a log may be cut off
        unread |= {*TRAINER_GPUS} - sources.all.keys()
    in_script = dict.fromkeys(sources.open) | sources.all
    pools = all_gpus(in_script, unread, registries)
    count = user.gpus[0] or (None if pools.open_key else pools.total)
    if count is None or not 1 <= count <= MOST_GPUS:
        return None, None, pools.open_key
    nodes = pools.nodes if not pools.others and count % pools.nodes == 0 else None
    return count, None if TRAINER_GPUS[0] in unread else nodes, ""


def _gpu(
    sources: Sources, user: UserInput, registries: EstimatorContext, named: ScriptName
) -> tuple[str | None, list[Diagnostic]]:
    """Return the user's GPU, or the one in the log or the script, and the problems with it."""
    if asked := user.gpus[1]:
        known = gpu_named(asked, registries.gpus)
        return known.name if known and asked not in registries.gpus else asked, []
    printed = sources.log.gpu if sources.log else ""
    device = named.device or ""
    texts = (printed, device, device.upper())
    found = next(filter(None, (recorded_gpu(text, registries.gpus) for text in texts)), None)
    if not sources.log or not printed or recorded_gpu(printed, registries.gpus):
        return found, []
    message = f"the log contains the GPU {printed!r}, which is unknown or has several memory sizes"
    place = Location(sources.log.shown, 1, 1)
    return found, [warning(place, "unknown_gpu", message, "give it with --gpus")]


def _train(sources: Sources, named: ScriptName) -> str | None:
    """Return the training backend."""
    for key in _STRATEGY:
        if key in sources.open:
            return named.train
        value = str(sources.all.get(key, "")).lower()
        if value in TRAIN_BACKENDS:
            return value
    megatron_keys = any(key.startswith(_MEGATRON) for key in sources.script.places)
    if megatron_keys or "megatron" in (sources.script.config_name or ""):
        return "megatron"
    return named.train or ("fsdp" if sources.has_defaults else None)


def _engine(sources: Sources, named: ScriptName) -> str | None:
    """Return the rollout engine."""
    value = sources.all.get(_ENGINE)
    in_log = [name for name in ENGINES if sources.log and name in sources.log.versions]
    only = in_log[0] if len(in_log) == 1 else None
    return (value if value in ENGINES else None) or named.engine or only


def _script(sources: Sources) -> tuple[dict[str, str], list[Diagnostic]]:
    """Return the commit and the path of the script; empty if they are unknown."""
    if sources.file is None:
        return {}, []
    try:
        ref, path = committed(sources.file)
    except OSError as error:
        message = f"the script is not linked: {error}"
        remedy = "commit it in a checkout of verl and give that path, or add 'script' to the file"
        return {}, [warning(sources.place(), "script_place", message, remedy)]
    return {"ref": ref, "path": path}, []


def committed(file: Path) -> tuple[str, str]:
    """Return the commit of a file's verl checkout, and the file's path in it.

    Raises:
        OSError: the file is not in a checkout of verl, or differs from its committed version.
    """
    repository = Repository(file.parent, str(file.parent))
    output = repository.ask("rev-parse", "--show-prefix", "HEAD") or b""
    prefix, _, ref = output.decode("utf-8", "surrogateescape").rstrip("\n").rpartition("\n")
    remote = (repository.ask("config", "--get", "remote.origin.url") or b"").decode("utf-8", "replace")
    elsewhere = remote and not re.search(r"(?:^|[/:])verl(?:\.git)?/*$", remote.strip())
    if elsewhere or not repository.objects(["HEAD:verl/__init__.py"]):
        raise OSError("it is not in a git checkout of verl")
    path = f"{prefix}{file.name}"
    content = repository.ask("cat-file", "blob", f"HEAD:{path}")
    # Git may have converted line endings at checkout.
    if content is None or content.replace(b"\r\n", b"\n") != file.read_bytes().replace(b"\r\n", b"\n"):
        raise OSError("it differs from the version that is committed in its checkout")
    return ref, path


def _settings(
    sources: Sources, registries: EstimatorContext, model: str
) -> tuple[dict[str, Any], list[Diagnostic]]:
    """Return the settings to publish, and a warning about omitted ones."""
    values = sources.passed or _unusual(sources.printed, registries)
    public, left_out = public_settings(values)
    left_out = list(dict.fromkeys([*left_out, *sorted(filter(is_private, sources.open))]))
    if model != TODO:
        left_out = [key for key in left_out if key != _MODEL]  # it has its own field
    private = [key for key in left_out if tells_of_a_machine(key, values.get(key))]
    reasons = {
        "they contain files, accounts or machines": private,
        "a run file cannot contain such values or keys": [key for key in left_out if key not in private],
    }
    return public, [
        warning(
            sources.place(),
            "left_out",
            f"settings left out, because {reason}: {', '.join(keys)}",
            "add by hand those that others need",
        )
        for reason, keys in reasons.items()
        if keys
    ]


def _unusual(printed: Mapping[str, Any], registries: EstimatorContext) -> dict[str, Any]:
    """Return the printed settings that every run should state, and non-default ones that affect memory."""
    defaults, keys = registries.defaults(CURRENT), registries.config_keys
    return {
        key: value
        for key, value in printed.items()
        if key in _ALWAYS
        or (key in keys and value is not None and (key not in defaults or value != defaults[key]))
    }
