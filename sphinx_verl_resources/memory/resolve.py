"""Check settings: keys and values, conflicts with the model and each other, and what no formula reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple

from ..dataset import bundled_directory
from ..diagnostics import Diagnostic, NoAnswerError
from .megatron import stage_sizes
from .reader import OF_ACTOR, OF_CRITIC, OF_REFERENCE, Reader
from .registries import EstimatorContext
from .request import ACTOR, MODEL, REFERENCE, ROLLOUT, Request, dotted_leaves, error_at, warning_at
from .roles import ADAMS, BACKENDS, CRITIC_SIZES
from .settings import ENGINES, MODELLED, TRAINER_GPUS, Settings, settings_of
from .shape import Shape
from .versions import CURRENT, LAST, RELEASES, Version, version_of, version_text

Problems = Iterable[Diagnostic]


#: Problems that are reported at the key of a setting; others are reported at its value.
AT_KEY = frozenset({"unknown_key", "config_key", "impossible_settings"})
#: Sections of settings that verl's trainers for reinforcement learning do not read, and whose they are.
_FOREIGN = dict.fromkeys(("engine", "model", "optim"), "verl's trainer for supervised fine-tuning")
_FOREIGN["worker"] = "EasyR1"
#: Parts of verl's configuration that scripts choose by name, as in ``model_engine=megatron``.
_CHOSEN = {"actor", "critic", "engine", "model", "model_engine", "optim", "ref", "rollout"}
#: A line of the list: section, first and last release, type, names.
_LINE = re.compile(r"^(\S+) ([\d.]+)-(\S*) (\S+): (.+)$", re.MULTILINE)
#: The types of values that a key accepts, by the type of its default, and their description in messages.
_TYPES: dict[str, Any] = {"bool": ({bool}, "true or false"), "number": ({int, float}, "a number")}


class KeyName(NamedTuple):
    """A key of verl's configuration.

    Attributes:
        first: the first listed release that has the key.
        last: the last release that has the key; ``LAST`` if the main branch has it.
        kind: ``bool``, ``number``, ``text`` or ``list``; ``any`` for null, ``open`` for a section that
            accepts any key, ``?`` if the default does not show the type, or if only scripts have the key.
    """

    first: Version
    last: Version
    kind: str


@lru_cache(maxsize=1)  # reading takes 12 ms, and pages ask for each recorded run
def key_names() -> dict[str, KeyName]:
    """Return all keys of verl's configuration by name, from the list that ``tools/key_names.py`` writes."""
    text, names = (bundled_directory().path / "key_names.txt").read_text("utf-8"), dict[str, KeyName]()
    for section, first, last, kind, words in _LINE.findall(text):
        name = KeyName(version_of(first) or LAST, version_of(last) or LAST, kind)
        names |= {f"{section}.{word}".lstrip("."): name for word in words.split()}
    return names


def settings_problems(config: Mapping[str, Any], version: Version, registries: EstimatorContext) -> Problems:
    """Yield problems of settings: keys that a version of verl does not read, and values of a wrong type.

    ``Reader`` checks the values that decide memory.
    """
    flat, names = dict(dotted_leaves(config)), key_names()
    for key, value in flat.items():
        types, expected = _TYPES.get(names[key].kind if key in names else "", ({type(value)}, ""))
        if problem := key_problem(key, version, registries):
            yield problem
        elif type(value) not in types and value is not None and "${" not in str(value):
            yield warning_at(key, f"expected {expected}, got {str(value)!r}", "correct it", "wrong_type")
    for role in (ACTOR, "critic"):
        mini, batch = flat.get(f"{role}.ppo_mini_batch_size"), flat.get("data.train_batch_size")
        if type(mini) is type(batch) is int and mini > batch > 0 and not flat.get(f"{role}.use_dynamic_bsz"):
            message = f"verl rejects a mini-batch of {mini:,}, larger than data.train_batch_size, {batch:,}"
            yield error_at(f"{role}.ppo_mini_batch_size", message, "correct one of the two")


def key_warnings(request: Request, registries: EstimatorContext, noted: Problems = ()) -> Problems:
    """Yield the problems of a request's settings as warnings, since it can still be estimated.

    Forks and the trainer for supervised fine-tuning have other keys, so their settings are not checked.

    Args:
        request: the request.
        registries: the registries.
        noted: the problems already reported about its settings.
    """
    sections = {key.partition(".")[0] for key in request.config}
    if request.framework.lower() == "verl" and sections.isdisjoint(_FOREIGN):
        known = {problem.place.key for problem in noted}
        for problem in settings_problems(request.config, request.version, registries):
            if problem.place.key not in known:
                yield warning_at(problem.place.key, problem.message, problem.remedy, problem.code)


def key_problem(key: str, version: Version, registries: EstimatorContext) -> Diagnostic | None:
    """Return the problem with the name of a setting; None if the version of verl reads it.

    A run on the main branch between two releases may use the keys of either.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> print(key_problem("data.max_respone_length", (0, 9, 0), EstimatorContext()).text)
    data.max_respone_length: verl has no such key; did you mean 'data.max_response_length'?
    """
    name, recorded = key_names().get(key), registries.config_keys.get(key)
    if not name:
        return None if recorded else _unknown(key, registries)
    # Verl's files have lost a few keys that it still reads, if they have a plus sign on the command line.
    if (recorded and recorded.status == "active" and name.last < LAST) or _is_below_open(key):
        return None
    remedy = "remove it, or correct the version"
    if any(version < release < name.first for _, release in RELEASES):
        reads = registries.name_in(key, version) not in {key, None}  # settings may use today's names
        text = f"no such key; {version_text(name.first)} is the first release with it"
    else:
        reads = min(version, LAST) <= name.last
        text = f"no such key; {version_text(name.last)} was the last release with it"
        if today := registries.renamed.get(key):
            text, remedy = "another name for this key", f"write {today!r}"
    message = f"verl {version_text(version)} has {text}"
    return None if reads else warning_at(key, message, remedy, "config_key")


def _unknown(key: str, registries: EstimatorContext) -> Diagnostic | None:
    """Return the problem of a key that no version of verl has; None in a section that accepts any key."""
    (section, _, name), names, is_open = key.rpartition("."), key_names(), _is_below_open(key)
    beside = {other.rpartition(".")[2]: other for other in names if other.rpartition(".")[0] == section}
    namesakes = [other for other in names if other.endswith(f".{name}")]
    near = [beside[other] for other in get_close_matches(name, beside, 1, 0.85)]
    # Whole keys have long parts in common.
    if near := near or ([] if beside else get_close_matches(key, namesakes, 1, 0.95)):
        remedy = f"did you mean {near[0]!r}?"
        return (warning_at if is_open else error_at)(key, "verl has no such key", remedy, "unknown_key")
    if is_open or registries.known_key(key) or key in _CHOSEN or "@" in key:
        return None
    remedy = "remove it, or add it to config_keys.yaml if it belongs to your own recipe"
    endings = [other for other in namesakes if other.endswith(f".{key}")]
    if near := endings or get_close_matches(key, namesakes, 1, 0.85):
        remedy = f"did you mean {near[0]!r}? If not, {remedy}"
    return warning_at(key, "verl has no such key", remedy, "config_key")


def _is_below_open(key: str) -> bool:
    """Return whether a section above the key accepts any key; one that is null by default does."""
    above, names = key.rpartition(".")[0], key_names()
    is_open = above in names and names[above].kind in {"any", "open"}
    return is_open or ("." in above and _is_below_open(above))


def release_for(config: Mapping[str, Any], registries: EstimatorContext) -> tuple[Version, str]:
    """Return the newest release, up to the current one, that has all keys of a configuration.

    If this is an older one, also return why. Keys with a plus sign, and keys that verl's own scripts add with
    one, are no evidence: other releases accept them too.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> release_for({"actor_rollout_ref.rollout.chat_scheduler": None}, EstimatorContext())[0]
    (0, 4, 0)
    """
    names, why = key_names(), ""
    keys = [key for key, _ in dotted_leaves(config) if key in names and names[key].kind != "?"]
    for release in sorted({name.first for name in names.values() if name.first <= CURRENT}, reverse=True):
        problems = [problem for key in keys if (problem := key_problem(key, release, registries))]
        if not problems:
            return release, why and f"verl {version_text(release)} is assumed: {why}"
        why = problems[-1].named_message
    return CURRENT, ""


#: Keys that do not change memory: beginnings of their names in any section, and in some.
_HARMLESS = re.compile(r"""(?x)
    (.*\.)?(profiler|tokenizer|trust_remote_code|external_lib|hf_config_path|custom_(chat|cls|reward)|kl_(loss|ctrl)
        |(data_loader_)?seed\b|shuffle\b|(grad_)?clip|loss_(agg|scale)|policy_loss|lora_alpha|nccl_timeout|ray_
        |reward_(kwargs|manager)|global_profiler|optim\.(lr|weight_decay|warmup|total|min_lr|betas|num_cycles))
    |data\.(train_files|val_|filter|truncation|prompt_key|reward_fn_key|return_(raw|full)|gen_batch_size|image_key
        |video_key|dataloader|apply_chat_template|tool_config_path)
    |algorithm\.(gamma|lam|kl|norm|filter_groups|rollout_correction\.rollout_)|transfer_queue\.metrics
    |trainer\.(logger|project|experiment|save|test|total|val|critic_warmup|default|resume|log|rollout_data_dir
        |device|max|del|esi|v1\.(colocate_async|sampler|.*hybrid_rollout|.*num_warmup))
    |distillation\.(teacher_key|distillation_loss\.(use_|distillation|loss_max|log_prob|policy))
    |async_training\.(staleness|trigger|partial_rollout|dynamic_schedule|concurrent_samples)
    |rollout\.(total|test_freq)|actor_rollout_ref\.(actor\.tis|rollout\.(temperature|top|do_sample|val_kwargs
        |ignore_eos|multi_turn|agent|disable_log_stats|over_sample_rate|trace))""")
#: Ways to load the engine's weights that lead to the same peaks.
_LOADING = ("auto", "dummy", "dummy_dtensor", "dummy_hf", "dummy_megatron", "hf", "safetensors")
_TRANSFORMER = f"{ACTOR}.megatron.override_transformer_config"
#: Keys of which only some values are modelled: these, as verl spells them (optimizers and booleans in lower
#: case), and what happens with others. Where this is empty, the key decides memory: no figure is valid.
_VALUES: dict[str, tuple[tuple[str, ...], str]] = {
    f"{ACTOR}.strategy": (BACKENDS, ""),
    "model_engine": (("dp", "megatron"), ""),
    f"{ROLLOUT}.name": (ENGINES, ""),
    f"{ACTOR}.megatron.use_megatron_fsdp": (("false",), ""),
    f"{ACTOR}.optim.optimizer": (ADAMS, "computed as Adam"),
    f"{_TRANSFORMER}.recompute_granularity": (("full",), "computed as no recomputation"),
    f"{_TRANSFORMER}.recompute_method": (("uniform",), "computed as no recomputation"),
    f"{_TRANSFORMER}.recompute_num_layers": (("1",), "computed as 1"),
    f"{MODEL}.mtp.enable": (("false",), "computed without the additional layers"),
    "trainer.v1.trainer_mode": (("sync", "separate_async"), "computed as sync"),
    f"{ROLLOUT}.load_format": (_LOADING, "computed as auto"),
    "reward_model.enable": (("false",), "the reward model's memory comes on top"),
    "reward.reward_model.enable": (("false",), "it alternates with other phases, or has separate GPUs"),
    "distillation.enabled": (("false",), "a top-k loss needs more memory in the update"),
}
_VALUES |= {f"critic{key.removeprefix(ACTOR)}": row for key, row in _VALUES.items() if key.startswith(ACTOR)}


def resolve(
    request: Request, registries: EstimatorContext
) -> tuple[Shape, Settings, tuple[Diagnostic, ...], tuple[str, ...]]:
    """Return the shape and the settings of a request, warnings about it, and the ignored settings.

    The warnings do not include those about keys, see ``key_warnings``.

    Raises:
        NoAnswerError: the request cannot be estimated.
    """
    shape = registries.known_shape(request.model)
    reader = Reader(request, registries)
    settings = settings_of(reader, registries)
    reader.diagnostics += problems_of(shape, settings, request.model)
    if request.version > LAST:
        newest = version_text(CURRENT)
        message = f"{version_text(request.version)} is newer than {newest}, the newest supported release"
        reader.warning(
            "version", message, f"the estimate is for {newest} and later changes on the main branch"
        )
    undecided, ignored = _not_modelled(reader, settings, registries)
    if any(problem.is_error for problem in reader.diagnostics):
        raise NoAnswerError(*reader.diagnostics, *key_warnings(request, registries, reader.diagnostics))
    # Keys that are read twice warn once.
    return shape, replace(settings, undecided=undecided), tuple(dict.fromkeys(reader.diagnostics)), ignored


# -- conflicts


def problems_of(shape: Shape, settings: Settings, model: str = "") -> Problems:
    """Yield conflicts between a model, by its shape and name, and its settings."""
    actor = settings.actor
    heads, moe = (shape.heads, "attention heads"), shape.architecture.moe
    experts = (moe.num_experts if moe else 0, "experts")
    ulysses = settings.reference_fsdp.ulysses if settings.reference else 1
    divided = [
        (f"{ROLLOUT}.tensor_model_parallel_size", settings.rollout.tensor, heads),
        (f"{OF_REFERENCE.fsdp}.ulysses_sequence_parallel_size", ulysses, heads),
    ]
    for of, role in ((OF_ACTOR, actor), (OF_CRITIC, settings.critic)):
        if role:
            section, megatron = f"{of.role}.megatron", role.megatron
            divided += [
                (f"{section}.tensor_model_parallel_size", megatron.tensor, heads),
                (f"{of.fsdp}.ulysses_sequence_parallel_size", role.fsdp.ulysses, heads),
                (f"{section}.expert_model_parallel_size", megatron.expert, experts),
            ]
            for target in role.targets if role.lora_rank and role.targets != "all-linear" else ():
                if target not in shape.modules:
                    message = f"the model has no module {target[:80]!r}: no adapter is added"
                    remedy = f"its modules are {', '.join(shape.modules)}"
                    yield warning_at(f"{of.model}.target_modules", message, remedy)
            sizes = stage_sizes(shape.layers, megatron)
            if min(sizes) < 1 or sum(sizes) != shape.layers:
                message = f"{shape.layers} layers cannot be divided this way among {megatron.pipeline} stages"
                yield error_at(f"{section}.pipeline_model_parallel_size", message, "use fewer stages")
    for key, size, (whole, parts) in divided:
        if whole % size:
            message = f"{size} does not divide the model's {whole} {parts}"
            yield error_at(key, message, "choose a divisor")
    key, micro = f"{ACTOR}.ppo_micro_batch_size_per_gpu", actor.micro_batch
    sequences = 0 if micro.dynamic else micro.sequences
    if sequences is None:
        message = "no micro-batch size is set: one sequence is assumed"
        yield warning_at(key, message, "set it, or actor.use_dynamic_bsz", "missing_key")
    elif sequences > micro.most:
        what = f"the micro-batch of {sequences} sequences"
        message = f"{what} is larger than a GPU's mini-batch of {micro.most}, which is used"
        yield warning_at(key, message, "lower it")
    # verl rejects a longer max_model_len: verl/workers/rollout/vllm_rollout/vllm_async_server.py:998 at
    # 1dda039b9.
    length = settings.rollout.model_length or int(settings.lengths.limit)
    most = settings.positions or shape.architecture.positions_of(model)
    if length > most:
        message = f"sequences have up to {length:,} tokens, but the model only has {most:,} positions"
        yield warning_at("data.max_response_length", f"{message}: verl rejects them", "shorten them")


# -- settings that no formula reads


def is_harmless(key: str) -> bool:
    """Return whether a key does not change memory."""
    return _HARMLESS.match(key) is not None


def _not_modelled(
    reader: Reader, settings: Settings, registries: EstimatorContext
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the settings that leave memory undecided, and the ignored ones that may change it.

    Each has a reason. A key that is recorded as changing memory is ignored if its value differs from the
    default and the training backend reads it.
    """
    request, undecided, ignored = reader.request, dict[str, str](), dict[str, str]()
    for key, value in reader.config.items():
        section = key.partition(".")[0]
        modelled, instead = _VALUES.get(key, ((), ""))
        if section in _FOREIGN:
            undecided[section] = f"settings of {_FOREIGN[section]}, which are not modelled"
        elif modelled:
            is_exact = isinstance(value, str) and not key.endswith(".optimizer")
            shown = value if is_exact else str(value).lower()
            if shown not in ("none", *modelled) and _is_read(key, settings):
                what = "not modelled" if value is True else f"{str(value)[:80]!r} is not modelled"
                ignored[key] = what + (instead and f"; {instead}")
                undecided |= {} if instead else {key: ignored[key]}
        elif key in CRITIC_SIZES and not reader.traits.critic_reads_own_keys:
            ignored[key] = "verl ignores it"
        elif key not in MODELLED and not is_harmless(key):
            ignored[key] = _why_ignored(key, value, reader, settings, registries)
    if request.task == "PRIME":
        undecided["reward_model"] = "PRIME also trains a reward model, which is not modelled"
    unresolved = [problem for problem in reader.diagnostics if problem.code == "unresolved"]
    undecided |= {problem.place.key: problem.message for problem in unresolved}
    unread = {registries.renamed.get(key, key) for key in request.unread} & MODELLED - {f"{MODEL}.path"}
    undecided |= dict.fromkeys(sorted(unread), "its value is unknown")
    keys = TRAINER_GPUS if request.gpus is not None else ()
    reasons = [f"{key}: {reason}" for key, reason in undecided.items() if key not in keys]
    return (*reasons, *request.incomplete), tuple(f"{key}: {why}" for key, why in ignored.items() if why)


def _why_ignored(
    key: str, value: Any, reader: Reader, settings: Settings, registries: EstimatorContext
) -> str:
    """Return why a key that no formula reads may change memory; empty if it does not."""
    twin = re.sub(rf"^(critic|{REFERENCE})\.", f"{ACTOR}.", key)  # their sections are those of the actor
    recorded = registries.known_key(key) or registries.known_key(twin)
    if recorded is None:
        return "its effect on memory is unknown"
    same = (f"{REFERENCE}.megatron.", f"{REFERENCE}.strategy")
    other = key.replace("critic.model.path", f"{MODEL}.path").replace(f"{ROLLOUT}.", "data.max_")
    others = {twin if key.startswith(same) else other} - {key}  # keys that it follows
    usual = [reader.request.model, reader.defaults.get(key)]
    usual += [reader.config.get(name, reader.defaults.get(name, usual[0])) for name in others]
    if value in usual:
        return ""
    if recorded.status.startswith("no-op"):
        return "verl ignores it"
    changes = recorded.phases or recorded.host_memory
    return "not modelled" if changes and _is_read(key, settings, recorded.backends) else ""


def _is_read(key: str, settings: Settings, backends: Iterable[str] = ()) -> bool:
    """Return whether the role of a key exists, and its backend reads the key."""
    role = settings.critic if key.startswith("critic.") else settings.actor
    if role is None or (".fsdp" if role.backend == "megatron" else ".megatron.") in key:
        return False
    return not backends or role.backend in backends or role.backend.removesuffix("2") in backends
