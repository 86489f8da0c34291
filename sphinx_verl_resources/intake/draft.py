"""The fields of a new run file, from a launch script, a log, and what the user says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..catalog.names import ENGINES, TRAIN_BACKENDS, size_class
from ..catalog.run_names import ScriptName, parse_script_name, suggested_id
from ..catalog.run_text import TODO
from ..diagnostics import Code, Diagnostic, Location, Severity
from ..estimator.parameters import count_parameters
from ..estimator.versions import CURRENT
from ..git import GitError, committed
from .log_facts import measured_fields
from .sources import (
    ESTIMATOR,
    is_hub_name,
    is_private,
    nearest_model,
    public_settings,
    recorded_gpu,
    recorded_models,
    task_of,
    tells_of_a_machine,
)

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from datetime import date

    from ..estimator.registries import Registries
    from .sources import Sources, UserInput

_MODEL = "actor_rollout_ref.model.path"
_STRATEGY = ("actor_rollout_ref.actor.strategy", "model_engine")
_ENGINE = "actor_rollout_ref.rollout.name"
_BATCH = "data.train_batch_size"
_NODES, _PER_NODE = "trainer.nnodes", "trainer.n_gpus_per_node"
#: Settings that every run should state.
_ALWAYS = frozenset(
    {
        _BATCH, _NODES, _PER_NODE, ESTIMATOR, _ENGINE, "data.max_prompt_length", "data.max_response_length",
        "actor_rollout_ref.rollout.n", "actor_rollout_ref.rollout.tensor_model_parallel_size",
        "actor_rollout_ref.rollout.gpu_memory_utilization", "actor_rollout_ref.actor.ppo_mini_batch_size",
    }
)  # fmt: skip
#: verl's defaults.
_DEFAULT_NODES, _DEFAULT_PER_NODE = 1, 8
_MAX_GPUS = 100_000
_MEGATRON = "actor_rollout_ref.actor.megatron."

_REMARKS = {
    "max_batch": "prompts per step, as run; write more if more fits, delete it if that is not known",
    "tag": "MIN: fits with every memory optimisation on; RECOMMENDED: best throughput",
}
_EVIDENCE_KINDS = {".log": "log", ".txt": "log", ".png": "screenshot", ".jpg": "screenshot"}


@dataclass(frozen=True)
class Draft:
    """A run file before it is written.

    Attributes:
        fields: by name, as in the file; ``TODO`` for what is not known.
        remarks: comments behind fields.
        problems: what is doubtful, missing or left out.
    """

    fields: dict[str, Any]
    remarks: dict[str, str]
    problems: list[Diagnostic]


def draft_run(sources: Sources, user: UserInput, registries: Registries, today: date) -> Draft:
    """Return the fields of a run, as far as they are known.

    Args:
        sources: script and log.
        user: what the user says; it goes before all that script and log say.
        registries: known models, GPUs and configuration keys.
        today: the day on which the run is added.

    Returns:
        Fields in which only what cannot be known is ``TODO``, each with a problem that says what to do.
    """
    drafter = _Drafter(sources, user, registries, sources.problems())
    model = drafter.model()
    profile = user.contributor_url or ("" if user.contributor else TODO)
    fields = {
        "task": drafter.task(),
        "gpus": drafter.gpus(),
        "size": drafter.size(model),
        "tag": user.tag or TODO,
        "model": model,
        "train": user.train or drafter.train(),
        "infer": drafter.infer(),
        "max_batch": user.max_batch or drafter.batch(),
        "script": drafter.script(),
        "contributor": {"name": user.contributor or TODO, **({"url": profile} if profile else {})},
        "kind": user.kind or "tested",
        "added": today,
        "versions": drafter.versions(),
        "settings": drafter.settings(model),
        "measured": measured_fields(sources.log.figures) if sources.log else {},
        "evidence": [{"kind": _evidence_kind(user.evidence), "url": user.evidence or TODO}],
    }
    fields["id"] = user.id or id_of(fields)
    known = {name: value for name, value in fields.items() if value}
    given = {"tag": user.tag, "max_batch": user.max_batch}
    remarks = {name: text for name, text in _REMARKS.items() if name in known and not given[name]}
    return Draft(known, remarks, drafter.problems)


def id_of(fields: Mapping[str, Any], more: str = "", taken: Container[str] = ()) -> str:
    """Return the id of a run; what is still TODO is no part of it.

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


def _evidence_kind(url: str | None) -> str:
    ending = re.search(r"\.\w+(?=\Z|[?#])", url or "")
    return _EVIDENCE_KINDS.get(ending[0].lower() if ending else "", "log")


@dataclass(frozen=True)
class _Drafter:
    """Finds the fields of one run, and collects problems on the way.

    Attributes:
        sources: script and log.
        user: what the user says.
        registries: known models, GPUs and configuration keys.
        problems: what is doubtful, missing or left out.
    """

    sources: Sources
    user: UserInput
    registries: Registries
    problems: list[Diagnostic]

    def model(self) -> str:
        """Return the checkpoint; TODO where it is unknown or one of several."""
        names = self.registries.architectures.names
        script = self.sources.script
        left_open = script.unresolved.get(_MODEL)
        in_sources = (script.values.get(_MODEL), self.sources.printed.get(_MODEL), left_open)
        paths = [path for path in in_sources if isinstance(path, str) and path]
        paths = [self.user.model] if self.user.model else paths
        for path in paths:
            models = recorded_models(path, names)
            if len(models) == 1:
                return models[0]
            if models:
                message = f"the model {path[-80:]!r} may be any of {', '.join(models[:10])}"
                return self._open(message, "say which with --model", _MODEL)
        path = next(iter(paths), "")
        near = nearest_model(path, names)
        remedy = f"did you mean {near}? Give it with --model" if near else "name it with --model"
        if is_hub_name(path):
            message = f"no architecture is recorded for {path!r}, so that nothing is computed"
            self._warn(Code.unknown_model, message, f"{remedy}, or add it to architectures.yaml", _MODEL)
            return path
        if path and path == left_open:
            message = f"the model is {path[-80:]!r}, which the script alone does not decide"
        elif path:
            message = f"no recorded model is called as the path {path[-80:]!r} ends"
        else:
            message = "no model is named"
        return self._open(message, remedy, _MODEL)

    def size(self, model: str) -> str:
        """Return the size class of a model."""
        architecture = self.registries.architectures.get(model)
        return size_class(count_parameters(architecture).total) if architecture else TODO

    def task(self) -> str:
        """Return the algorithm and its variant."""
        sources = self.sources
        program = f"{sources.text} -m {sources.script.config_name or ''}"
        unknown = sources.open if sources.has_defaults else sources.open | ({ESTIMATOR} - sources.all.keys())
        return (
            self.user.task
            or task_of(sources.all, program, unknown=unknown)
            or self._open(
                "the algorithm is not known", "say it with --task, for example --task GRPO", ESTIMATOR
            )
        )

    def gpus(self) -> dict[str, Any]:
        """Return the number of GPUs, their type, and the number of nodes where that is known."""
        count, nodes = self._count()
        gpus: dict[str, Any] = {"count": count or self._script_name.count}
        if gpus["count"] is None:
            message = "how many GPUs there are is not known"
            gpus["count"] = self._open(message, "say it with --gpus, as in 8*H100", _PER_NODE, _NODES)
        gpus["type"] = self.user.gpus[1] or self._gpu()
        return {**gpus, "nodes": nodes} if nodes else gpus

    def _gpu(self) -> str:
        log, known = self.sources.log, self.registries.gpus
        device = self._script_name.device or ""
        if log and log.gpu:
            gpu = recorded_gpu(log.gpu, known)
            if gpu:
                return gpu
            message = f"the log names the GPU {log.gpu!r}, which is not recorded, or not as one size"
            place = Location(log.shown, 1, 1)
            warning = Diagnostic(place, Code.unknown_gpu, message, "name it with --gpus", Severity.WARNING)
            self.problems.append(warning)
        return (
            recorded_gpu(device, known)
            or recorded_gpu(device.upper(), known)
            or self._open("which GPU ran this is not known", "name it with --gpus, as in --gpus H100")
        )

    def _count(self) -> tuple[int | None, int | None]:
        """Return the number of GPUs and of nodes; None for what is not known."""
        nodes, per_node = self._whole(_NODES, _DEFAULT_NODES), self._whole(_PER_NODE, _DEFAULT_PER_NODE)
        count = self.user.gpus[0]
        if count is None:
            if nodes is None or per_node is None:
                return None, nodes
            count = nodes * per_node + self._rollout_gpus()
        if not 1 <= count <= _MAX_GPUS:
            return None, None
        return count, nodes if nodes and count % nodes == 0 else None

    def _rollout_gpus(self) -> int:
        """Return the number of GPUs that only generate, where training has its own."""
        nodes, each = (self.sources.all.get(f"rollout.{key}") for key in ("nnodes", "n_gpus_per_node"))
        return nodes * each if type(nodes) is int and type(each) is int and min(nodes, each) > 0 else 0

    def _whole(self, key: str, default: int) -> int | None:
        """Return a setting that is a whole number above zero; None where it is not known."""
        has_default = self.sources.has_defaults and key not in self.sources.open
        value = self.sources.all.get(key, default if has_default else None)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value[:9])
        return value if type(value) is int and value > 0 else None

    def train(self) -> str:
        """Return the training backend."""
        sources, named = self.sources, self._script_name.train or TODO
        for key in _STRATEGY:
            if key in sources.open:
                return named
            value = str(sources.all.get(key, "")).lower()
            if value in TRAIN_BACKENDS:
                return value
        megatron_keys = [key for key in sources.script.places if key.startswith(_MEGATRON)]
        if megatron_keys or "megatron" in (sources.script.config_name or ""):
            return "megatron"
        return "fsdp" if named == TODO and sources.has_defaults else named

    def infer(self) -> dict[str, Any]:
        """Return the rollout engine and its version."""
        value = self.sources.all.get(_ENGINE)
        engine = self.user.engine or (value if value in ENGINES else None) or self._script_name.engine
        in_log = [name for name in ENGINES if name in self._log_versions]
        if engine is None and len(in_log) == 1:
            engine = in_log[0]
        if engine is None:
            message = "the rollout engine is not known"
            return {"engine": self._open(message, "name it with --infer, as in --infer vllm", _ENGINE)}
        version = self.user.engine_version or self._log_versions.get(engine)
        if version is None:
            message = f"the version of {engine} is not known, and left out"
            self._open(message, "give it with --infer-version, as in 0.8.3", _ENGINE)
            return {"engine": engine}
        return {"engine": engine, "version": version}

    def versions(self) -> dict[str, str]:
        """Return the versions of verl and torch that are known."""
        verl = self.user.verl_version or self._log_versions.get("verl")
        if verl is None:
            message = "the version of verl is not known, and left out"
            self._open(message, "give it with --verl-version, a release or a commit")
        versions = {"verl": verl, "torch": self._log_versions.get("torch")}
        return {package: version for package, version in versions.items() if version}

    def batch(self) -> int | None:
        """Return the prompts per step."""
        batch = self.sources.all.get(_BATCH)
        return batch if type(batch) is int and 1 <= batch <= 10_000_000 else None

    def script(self) -> dict[str, str]:
        """Return the commit and the path of the script."""
        ref, path = self.user.ref, self.user.path
        if not (ref and path):
            if self.sources.file is None:
                return {}
            try:
                committed_ref, committed_path = committed(self.sources.file)
            except GitError as error:
                message = f"the script is not linked: {error}"
                remedy = "commit it in a checkout of verl and run this again there, or give --ref and --path"
                self._warn(Code.script_place, message, remedy)
                return {}
            ref, path = ref or committed_ref, path or committed_path
        return {"ref": ref, "path": path}

    def settings(self, model: str) -> dict[str, Any]:
        """Return the settings to publish, and report those that are left out."""
        values = self.sources.passed or self._unusual()
        public, left_out = public_settings(values)
        left_out = list(dict.fromkeys([*left_out, *sorted(filter(is_private, self.sources.open))]))
        if model != TODO:
            left_out = [key for key in left_out if key != _MODEL]  # it has a field of its own
        private = [key for key in left_out if tells_of_a_machine(key, values.get(key))]
        odd = [key for key in left_out if key not in private]
        for keys, reason in (
            (private, "they name files, accounts or machines"),
            (odd, "a run file holds no such values or keys"),
        ):
            if keys:
                message = f"not written, since {reason}: {', '.join(keys)}"
                self._warn(Code.left_out, message, "add by hand what others need")
        return public

    def _unusual(self) -> dict[str, Any]:
        """Return the printed settings that every run should state, and unusual ones that change memory."""
        defaults, keys = self.registries.defaults(CURRENT), self.registries.config_keys
        return {
            key: value
            for key, value in self.sources.printed.items()
            if key in _ALWAYS
            or (key in keys and value is not None and (key not in defaults or value != defaults[key]))
        }

    @cached_property
    def _script_name(self) -> ScriptName:
        return parse_script_name(self.sources.shown.replace("\\", "/")) or ScriptName("", "")

    @property
    def _log_versions(self) -> Mapping[str, str]:
        return self.sources.log.versions if self.sources.log else {}

    def _open(self, message: str, remedy: str, *keys: str) -> str:
        """Report what is not known."""
        self._warn(Code.undecided, message, remedy, *keys)
        return TODO

    def _warn(self, code: Code, message: str, remedy: str, *keys: str) -> None:
        """Report something about the first of the keys that the script sets, or about the script."""
        place = self.sources.place(*keys)
        self.problems.append(Diagnostic(place, code, message, remedy, Severity.WARNING))
