"""Check a recorded run: its number of GPUs, and settings with which verl does not start."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError
from .keys import AT_KEY, settings_problems
from .pools import all_gpus
from .recorded import has_own_rollout_gpus, request_of_run, version_of_run
from .request import ROLLOUT, error_at
from .resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..diagnostics import Diagnostic
    from ..records import Run
    from ..strict_yaml import Document
    from .registries import Registries

_NODES, _EACH = "trainer.nnodes", "trainer.n_gpus_per_node"
#: The keys for nodes and GPUs of an engine with separate GPUs, in verl and its recipes.
_ROLLOUT_NODES = (f"{ROLLOUT}.nnodes", "rollout.nnodes")
_ROLLOUT_EACH = (f"{ROLLOUT}.n_gpus_per_node", "rollout.n_gpus_per_node")
#: The sizes whose product is the number of GPUs of one engine.
_ENGINE_SIZES = tuple(
    f"{ROLLOUT}.{name}_parallel_size" for name in ("tensor_model", "data", "pipeline_model")
)
#: Fields of a run with possible problems, by the name of the place in a diagnostic.
_FIELDS = {"gpus": ("gpus", "count"), "nodes": ("gpus", "nodes")}


def run_problems(run: Run, registries: Registries) -> Iterator[Diagnostic]:
    """Yield the problems of a run's GPUs and settings.

    The place of each is the name of a setting, or one of ``_FIELDS``.
    """
    yield from _gpu_count(run, all_gpus(run.settings, (), registries).others)
    if run.settings:
        refused = {problem.place.key: problem for problem in _impossible(run, registries)}
        yield from refused.values()
        for problem in settings_problems(run.settings, version_of_run(run), registries):
            if problem.place.key not in refused:
                yield problem


def located(problems: Iterable[Diagnostic], run: Run, document: Document) -> Iterator[Diagnostic]:
    """Yield the problems of a run at their places in its file."""
    for problem in problems:
        key = problem.place.key
        if key in run.settings:
            find = document.key_place if problem.code in AT_KEY else document.place
            yield replace(problem, place=replace(find(("settings", key)), key=key))
        else:
            yield replace(problem, place=document.place(_FIELDS[key]))


def _gpu_count(run: Run, others: int) -> Iterator[Diagnostic]:
    """Check that the number of GPUs matches the nodes; ``others`` counts GPUs in pools that do not train."""
    settings, count, nodes = run.settings, run.gpus.count, run.gpus.nodes
    stated, each = _whole(settings, _NODES), _whole(settings, _EACH)
    field, message = "gpus", ""
    if nodes and count % nodes:
        field, message = "nodes", f"{count} GPUs cannot be divided evenly among {nodes} nodes"
    elif has_own_rollout_gpus(run) or others:
        message = _separate_gpus(settings, count, others)
    elif stated and each and stated * each != count:
        message = f"{_NODES} × {_EACH} is {stated} × {each} = {stated * each}, but gpus.count is {count}"
    elif nodes and each and nodes * each != count:
        message = f"gpus.nodes × {_EACH} is {nodes} × {each} = {nodes * each}, but gpus.count is {count}"
    elif nodes and stated and nodes != stated:
        field, message = "nodes", f"gpus.nodes is {nodes}, but {_NODES} is {stated}"
    if message:
        yield error_at(field, message, "correct one of the two", "gpu_count")


def _separate_gpus(settings: Mapping[str, Any], count: int, others: int) -> str:
    """Return the contradiction in a run with GPUs that do not train; empty if there is none."""
    trainer = _product(settings, (_NODES,), (_EACH,))
    rollout = _product(settings, _ROLLOUT_NODES, _ROLLOUT_EACH)
    others = max(others, rollout)
    if trainer and others and trainer + others != count:
        work = "roll out" if others == rollout else "roll out, teach or reward"
        together = f"{trainer} GPUs train and {others} {work}, together {trainer + others}"
        return f"{together}, but gpus.count is {count}"
    if trainer > count:
        return f"{_NODES} × {_EACH} is {trainer}, but gpus.count, which includes rollout GPUs, is {count}"
    return ""


def _product(settings: Mapping[str, Any], nodes: tuple[str, ...], each: tuple[str, ...]) -> int:
    """Return nodes × GPUs per node; 0 if either is unset."""
    sizes = [next(filter(None, (_whole(settings, key) for key in keys)), 0) for keys in (nodes, each)]
    return math.prod(sizes)


def _whole(settings: Mapping[str, Any], key: str) -> int:
    """Return a setting if it is a positive whole number, otherwise 0."""
    value = settings.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _impossible(run: Run, registries: Registries) -> Iterator[Diagnostic]:
    """Yield the settings with which verl does not start."""
    settings = run.settings
    for problem in _refused(run, registries):
        key = _as_written(problem.place.key, settings, registries.renamed)
        if problem.is_error and key:
            yield error_at(key, problem.message, problem.remedy, "impossible_settings")
    sizes = {key: size for key in _ENGINE_SIZES if (size := _whole(settings, key)) > 1}
    product = math.prod(sizes.values())
    gpus = _product(settings, _ROLLOUT_NODES, _ROLLOUT_EACH) or run.gpus.count
    # The estimator already reports a single size that does not divide.
    if len(sizes) > 1 and gpus % product:
        names = " × ".join(key.rsplit(".", 1)[-1] for key in sizes)
        message = f"{names} of the engine is {product}, which does not divide its {gpus} GPUs"
        yield error_at(next(iter(sizes)), message, "choose divisors", "impossible_settings")


def _refused(run: Run, registries: Registries) -> tuple[Diagnostic, ...]:
    """Return the problems that prevent an estimate."""
    try:
        resolve(request_of_run(run, registries, needs_settings=False), registries)
    except NoAnswerError as error:
        return error.diagnostics
    return ()


def _as_written(key: str, settings: Mapping[str, Any], renamed: Mapping[str, str]) -> str | None:
    """Return a run's own name for a key of the estimator, which may be an older one."""
    if key in settings:
        return key
    role, name = key.split(".")[:2], key.rsplit(".", 1)[-1]
    older = (other for other in settings if renamed.get(other) == key)
    alike = (other for other in settings if other.split(".")[:2] == role and other.rsplit(".", 1)[-1] == name)
    return next(older, None) or next(alike, None)
