"""The fields of a new run file, from a launch script, a log, and what the person says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..catalog.names import ENGINES, TRAIN_BACKENDS, size_class
from ..catalog.run_names import parse_script_name, suggested_id
from ..diagnostics import Code, Diagnostic, Location, Severity
from ..estimator.parameters import count_parameters
from ..estimator.versions import CURRENT
from .cards import recorded_card
from .checkout import NotCommittedError, committed
from .kept_settings import is_private, kept_settings, tells_of_a_machine
from .measured import measured_of, versions_of
from .model_names import is_hub_name, nearest_model, recorded_models
from .tasks import ESTIMATOR, task_of

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from datetime import date

    from ..estimator.registries import Registries
    from .sources import Sources, UserInput

TODO = "TODO"

_MODEL = "actor_rollout_ref.model.path"
_STRATEGY = ("actor_rollout_ref.actor.strategy", "model_engine")
_ENGINE = "actor_rollout_ref.rollout.name"
_BATCH = "data.train_batch_size"
_NODES, _EACH = "trainer.nnodes", "trainer.n_gpus_per_node"
#: Settings that every run should say.
_ALWAYS = frozenset(
    {
        _BATCH, _NODES, _EACH, ESTIMATOR, _ENGINE, "data.max_prompt_length", "data.max_response_length",
        "actor_rollout_ref.rollout.n", "actor_rollout_ref.rollout.tensor_model_parallel_size",
        "actor_rollout_ref.rollout.gpu_memory_utilization", "actor_rollout_ref.actor.ppo_mini_batch_size",
    }
)  # fmt: skip
#: What verl takes where nothing is set.
_VERL_NODES, _VERL_EACH = 1, 8
_MOST_GPUS = 100_000

_REMARKS = {
    "max_batch": "prompts per step, as run; write more if more fits, delete it if that is not known",
    "tag": "MIN: fits with every memory optimisation on; RECOMMENDED: best throughput",
}
_EVIDENCE_KINDS = {".log": "log", ".txt": "log", ".png": "screenshot", ".jpg": "screenshot"}


@dataclass
class Draft:
    """A run file before it is written.

    Attributes:
        fields: by name, as in the file; ``TODO`` for what is not known.
        remarks: what is said behind a field.
        problems: what is doubtful, missing or left out.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)
    problems: list[Diagnostic] = field(default_factory=list)

    def warn(self, place: Location, code: Code, message: str, hint: str) -> None:
        """Note what the person should know."""
        self.problems.append(Diagnostic(place, code, message, hint, Severity.WARNING))


def draft_run(sources: Sources, said: UserInput, facts: Registries, today: date) -> Draft:
    """The fields of a run, as far as they are known.

    Args:
        sources: script and log.
        said: what the person says; it goes before all that is found.
        facts: the registries.
        today: the day on which the run is added.

    Returns:
        Fields in which only what cannot be known is ``TODO``, each with a problem that says what to do.
    """
    draft = Draft(problems=sources.problems())
    model = _model(draft, sources, said, facts)
    task = _task(draft, sources, said)
    gpus = _gpus(draft, sources, said, facts)
    name = parse_script_name(sources.shown.replace("\\", "/"))
    fields: dict[str, Any] = {
        "size": _size(draft, model, facts),
        "tag": said.tag or TODO,
        "model": model,
        "task": task,
        "gpus": gpus,
        "train": said.train or _train(sources, name.train if name else None),
        "infer": _infer(draft, sources, said, name.engine if name else None),
        **_max_batch(draft, sources, said),
        **_script(draft, sources, said),
        "contributor": _contributor(said),
        "kind": said.kind or "tested",
        "added": today,
        **_versions(draft, sources, said),
        "settings": _settings(draft, sources, facts, model),
        **measured_of(sources.log),
        "evidence": [{"kind": _evidence_kind(said.evidence), "url": said.evidence or TODO}],
    }
    fields["id"] = said.id or id_of(fields)
    draft.fields = {key: value for key, value in fields.items() if value not in ({}, [])}
    if said.tag is None:
        draft.remarks["tag"] = _REMARKS["tag"]
    return draft


def id_of(fields: Mapping[str, Any], more: str = "", taken: Container[str] = ()) -> str:
    """The id of a run of which something may still be TODO, which then is no part of it.

    Args:
        fields: by name, as in the file.
        more: what tells it from another run of the same kind.
        taken: ids that others have.

    >>> id_of({"model": "TODO", "task": "GRPO", "gpus": {"count": "TODO", "type": "H100"}})
    'run-grpo-h100'
    """
    known = {key: None if value == TODO else value for key, value in {**fields, **fields["gpus"]}.items()}
    return suggested_id(
        known["model"] or "run", known["task"] or "", known["count"], known["type"], more, taken
    )


def _model(draft: Draft, sources: Sources, said: UserInput, facts: Registries) -> str:
    names = facts.architectures.names
    left_open = sources.script.unresolved.get(_MODEL)
    written = [
        path
        for path in (sources.script.values.get(_MODEL), sources.printed.get(_MODEL), left_open)
        if isinstance(path, str) and path
    ]
    for path in [said.model] if said.model else written:
        found = recorded_models(path, names)
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(found[:10])
            message = f"the model {path[-80:]!r} may be any of {listed}"
            draft.warn(sources.place(_MODEL), Code.undecided, message, "say which with --model")
            return TODO
    path = said.model or next(iter(written), "")
    near = nearest_model(path, names) if path else None
    hint = f"did you mean {near}? Give it with --model" if near else "name it with --model"
    if is_hub_name(path):
        message = f"no architecture is recorded for {path!r}, so that nothing is computed"
        draft.warn(
            sources.place(_MODEL), Code.unknown_model, message, f"{hint}, or add it to architectures.yaml"
        )
        return path
    if path and path == left_open:
        message = f"the model is {path[-80:]!r}, which the script alone does not decide"
    elif path:
        message = f"no recorded model is called as the path {path[-80:]!r} ends"
    else:
        message = "no model is named"
    draft.warn(sources.place(_MODEL), Code.undecided, message, hint)
    return TODO


def _size(draft: Draft, model: str, facts: Registries) -> str:
    architecture = facts.architectures.get(model)
    return size_class(count_parameters(architecture).total) if architecture else TODO


def _task(draft: Draft, sources: Sources, said: UserInput) -> str:
    if said.task:
        return said.task
    program = f"{sources.text} -m {sources.script.config_name or ''}"
    unknown = sources.open if sources.has_defaults else sources.open | ({ESTIMATOR} - sources.all.keys())
    found = task_of(sources.all, program, unknown=unknown)
    if found is None:
        message = "the algorithm is not known"
        draft.warn(
            sources.place(ESTIMATOR), Code.undecided, message, "say it with --task, for example --task GRPO"
        )
    return found or TODO


def _gpus(draft: Draft, sources: Sources, said: UserInput, facts: Registries) -> dict[str, Any]:
    name = parse_script_name(sources.shown.replace("\\", "/"))
    count, nodes = _count(sources, said)
    if count is None and name and name.count:
        count = name.count
    if count is None:
        message = "how many GPUs there are is not known"
        draft.warn(sources.place(_EACH, _NODES), Code.undecided, message, "say it with --gpus, as in 8*H100")
    card = said.gpus[1]
    if card is None and sources.log and sources.log.card:
        card = recorded_card(sources.log.card, facts.gpus)
        if card is None:
            message = (
                f"the log names the card {sources.log.card!r}, which is not recorded, or not as one size"
            )
            draft.warn(Location(sources.log.shown, 1, 1), Code.unknown_gpu, message, "name it with --gpus")
    if card is None and name and name.device:
        card = recorded_card(name.device, facts.gpus) or recorded_card(name.device.upper(), facts.gpus)
    if card is None:
        message = "which card ran this is not known"
        draft.warn(sources.place(), Code.undecided, message, "name it with --gpus, as in --gpus H100")
    gpus: dict[str, Any] = {"count": count if count is not None else TODO, "type": card or TODO}
    return {**gpus, "nodes": nodes} if nodes else gpus


def _count(sources: Sources, said: UserInput) -> tuple[int | None, int | None]:
    """How many GPUs, and on how many nodes; None for what is not known."""
    nodes, each = _whole(sources, _NODES, _VERL_NODES), _whole(sources, _EACH, _VERL_EACH)
    nodes = said.nodes or nodes
    count = said.gpus[0]
    if count is None:
        if nodes is None or each is None:
            return None, nodes
        count = nodes * each + _rollout_gpus(sources)
    if not 1 <= count <= _MOST_GPUS:
        return None, None
    return count, nodes if nodes and count % nodes == 0 else None


def _rollout_gpus(sources: Sources) -> int:
    """GPUs that only generate, where training has its own."""
    nodes, each = (sources.all.get(f"rollout.{key}") for key in ("nnodes", "n_gpus_per_node"))
    return nodes * each if type(nodes) is int and type(each) is int and min(nodes, each) > 0 else 0


def _whole(sources: Sources, key: str, otherwise: int) -> int | None:
    """A setting that is a whole number above zero; None where it is set to what is not known."""
    usual = otherwise if sources.has_defaults and key not in sources.open else None
    value = sources.all.get(key, usual)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:9])
    return value if type(value) is int and value > 0 else None


def _train(sources: Sources, named: str | None) -> str:
    for key in _STRATEGY:
        if key in sources.open:
            return named or TODO
        value = str(sources.all.get(key, "")).lower()
        if value in TRAIN_BACKENDS:
            return value
    megatron = "megatron" in (sources.script.config_name or "") or any(
        key.startswith("actor_rollout_ref.actor.megatron.") for key in sources.script.places
    )
    if megatron:
        return "megatron"
    return named or ("fsdp" if sources.has_defaults else TODO)


def _infer(draft: Draft, sources: Sources, said: UserInput, named: str | None) -> dict[str, Any]:
    value = sources.all.get(_ENGINE)
    engine = said.engine or (value if value in ENGINES else None) or named
    versions = sources.log.versions if sources.log else {}
    if engine is None and len(found := [each for each in ENGINES if each in versions]) == 1:
        engine = found[0]
    if engine is None:
        message = "the rollout engine is not known"
        draft.warn(
            sources.place(_ENGINE), Code.undecided, message, "name it with --infer, as in --infer vllm"
        )
        return {"engine": TODO}
    version = said.engine_version or versions.get(engine)
    if version is None:
        message = f"the version of {engine} is not known, and left out"
        draft.warn(
            sources.place(_ENGINE), Code.undecided, message, "give it with --infer-version, as in 0.8.3"
        )
        return {"engine": engine}
    return {"engine": engine, "version": version}


def _versions(draft: Draft, sources: Sources, said: UserInput) -> dict[str, Any]:
    found = versions_of(sources.log, said)
    if "verl" not in found.get("versions", {}):
        message = "the version of verl is not known, and left out"
        draft.warn(
            sources.place(), Code.undecided, message, "give it with --verl-version, a release or a commit"
        )
    return found


def _max_batch(draft: Draft, sources: Sources, said: UserInput) -> dict[str, Any]:
    batch = said.max_batch or sources.all.get(_BATCH)
    if type(batch) is not int or not 1 <= batch <= 10_000_000:
        return {}
    if not said.max_batch:
        draft.remarks["max_batch"] = _REMARKS["max_batch"]
    return {"max_batch": batch}


def _script(draft: Draft, sources: Sources, said: UserInput) -> dict[str, Any]:
    if said.ref and said.path:
        return {"script": {"ref": said.ref, "path": said.path}}
    if sources.file is None:
        return {}
    try:
        found = committed(sources.file)
    except NotCommittedError as error:
        message = f"the script is not linked: {error}"
        hint = "commit it in a checkout of verl and run this again there, or give --ref and --path"
        draft.warn(Location(sources.shown, 1, 1), Code.script_place, message, hint)
        return {}
    return {"script": {"ref": said.ref or found.ref, "path": said.path or found.path}}


def _contributor(said: UserInput) -> dict[str, str]:
    if said.contributor is None:
        return {"name": TODO, "url": said.contributor_url or TODO}
    return {"name": said.contributor, **({"url": said.contributor_url} if said.contributor_url else {})}


def _settings(draft: Draft, sources: Sources, facts: Registries, model: str) -> dict[str, Any]:
    values = sources.passed or _unusual(sources, facts)
    kept, left = kept_settings(values)
    left = list(dict.fromkeys([*left, *sorted(filter(is_private, sources.open))]))
    if model != TODO:
        left = [key for key in left if key != _MODEL]  # which a field of its own says
    private = [key for key in left if tells_of_a_machine(key, values.get(key))]
    odd = [key for key in left if key not in private]
    for keys, why in (
        (private, "they name files, accounts or machines"),
        (odd, "a run file holds no such values or keys"),
    ):
        if keys:
            message = f"not written, since {why}: {', '.join(keys)}"
            draft.warn(sources.place(), Code.left_out, message, "add by hand what others need")
    return kept


def _unusual(sources: Sources, facts: Registries) -> dict[str, Any]:
    """Of a printed configuration alone: what decides most, and what changes memory and is not usual."""
    usual = facts.defaults(CURRENT)
    return {
        key: value
        for key, value in sources.printed.items()
        if key in _ALWAYS
        or (key in facts.config_keys and value is not None and (key not in usual or value != usual[key]))
    }


def _evidence_kind(url: str | None) -> str:
    ending = re.search(r"\.\w+(?=\Z|[?#])", url or "")
    return _EVIDENCE_KINDS.get(ending[0].lower() if ending else "", "log")
