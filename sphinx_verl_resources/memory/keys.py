"""The keys of settings: releases and types of each, the problems with them, and which never change memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple

from ..dataset import bundled_directory
from ..diagnostics import Diagnostic
from .registries import EstimatorContext
from .request import ACTOR, Request, dotted_leaves, error_at, warning_at
from .versions import CURRENT, LAST, RELEASES, Version, version_of, version_text

Problems = Iterable[Diagnostic]

#: Problems that are reported at the key of a setting; others are reported at its value.
AT_KEY = frozenset({"unknown_key", "config_key", "impossible_settings"})
#: Sections of settings that verl's trainers for reinforcement learning do not read, and whose they are.
FOREIGN = dict.fromkeys(("engine", "model", "optim"), "verl's trainer for supervised fine-tuning")
FOREIGN["worker"] = "EasyR1"
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


def key_warnings(request: Request, registries: EstimatorContext, earlier: Problems = ()) -> Problems:
    """Yield the problems of a request's settings as warnings, since it can still be estimated.

    Forks and the trainer for supervised fine-tuning have other keys, so their settings are not checked.

    Args:
        request: the request.
        registries: the registries.
        earlier: the problems already reported about its settings.
    """
    sections = {key.partition(".")[0] for key in request.config}
    if request.framework.lower() == "verl" and sections.isdisjoint(FOREIGN):
        keys = {problem.place.key for problem in earlier}
        for problem in settings_problems(request.config, request.version, registries):
            if problem.place.key not in keys:
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


def is_harmless(key: str) -> bool:
    """Return whether a key does not change memory."""
    return _HARMLESS.match(key) is not None
