"""Rules about GPUs and architectures."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..catalog.models.architecture import Architecture
from ..catalog.models.gpu import Gpu
from ..catalog.validation import valid_entries
from ..estimator.parameters import count_parameters
from ..units import GB, GIB, MIB, gb
from .rule import Finding, at_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..catalog.models.base import NamedRecord
    from .tree import CheckContext, SourceFile

    Entry = TypeVar("Entry", bound=NamedRecord)

#: What drivers report, over what the product is called by: a card of 80 GB may have 80 × 2^30 bytes, and less
#: where it keeps some for the correction of errors.
_LEAST, _MOST = 0.92, 1.08


def unused_entry(tree: CheckContext) -> Iterator[Finding]:
    """Somebody uses the entry. Data that hold neither runs nor cases are there for others."""
    if not tree.of_kind("run") and not tree.of_kind("cases"):
        return
    cases = [entry.case for entry in tree.cases.by_id.values()]
    runs = tree.catalog.runs.values()
    named = (*(run.gpus.type for run in runs), *(case.gpus.type for case in cases))
    cards = {name for name in named if name}
    models = {*(run.model for run in runs), *(case.model for case in cases)}
    models |= {item.model for item in tree.analysis.specifications.values() if item.model}
    used_cards = {id(tree.catalog.gpus.get(name)) for name in cards}
    used_models = {id(tree.catalog.architectures.get(name)) for name in models}
    hint = "remove it, or say in exceptions.yaml what it is there for"
    for source, index, gpu in _cards(tree):
        if id(tree.catalog.gpus.get(gpu.name)) not in used_cards:
            yield _at_entry(source, "gpus", index, gpu.name, "no run and no case uses this card", hint)
    for source, index, model in _models(tree):
        if id(tree.catalog.architectures.get(model.hf_id)) not in used_models:
            yield _at_entry(
                source, "architectures", index, model.name, "no run and no case uses this model", hint
            )


def gpu_memory(tree: CheckContext) -> Iterator[Finding]:
    """Both figures of a card's memory are about the same card."""
    for source, index, gpu in _cards(tree):
        reported = gpu.memory_mib * MIB
        if not _LEAST <= reported / (gpu.memory_gb * GB) <= _MOST:
            message = f"memory_mib is {gb(reported)}, and the card is sold by {gpu.memory_gb} GB"
            hint = "memory_mib counts 2^20 bytes, as nvidia-smi prints them"
            yield _at_entry(source, "gpus", index, gpu.name, message, hint, "memory_mib")
        if gpu.cuda_total_gib and gpu.cuda_total_gib * GIB > reported:
            most = f"{reported / GIB:.2f} GiB of the driver"
            message = f"CUDA offers {gpu.cuda_total_gib:g} GiB, more than the {most}"
            yield _at_entry(
                source, "gpus", index, gpu.name, message, "correct one of the two", "cuda_total_gib"
            )


def incomplete_entry(tree: CheckContext) -> Iterator[Finding]:
    """What an entry says can be looked up."""
    for source, index, gpu in _cards(tree):
        if gpu.kind != "reading" and not gpu.note:
            message = f"memory_mib is {gpu.kind}, and no note says from what"
            hint = "add note: which card or which document it is taken from"
            yield _at_entry(source, "gpus", index, gpu.name, message, hint, "kind")
    for source, index, model in _models(tree):
        if not model.config_source:
            hint = "add config_source: [{repo: …, path: config.json}]"
            yield _at_entry(
                source, "architectures", index, model.name, "where the shape was read is not said", hint
            )
        if model.verified and not model.published:
            message = "it counts as verified, and no published count is given"
            yield _at_entry(
                source,
                "architectures",
                index,
                model.name,
                message,
                "add published, or verified: false",
                "verified",
            )


def parameter_count(tree: CheckContext) -> Iterator[Finding]:
    """The recorded count follows from the recorded shape."""
    for source, index, model in _models(tree):
        counts = count_parameters(model)
        for field, stated, counted in (
            ("parameters", model.parameters, counts.total),
            ("parameters_active", model.parameters_active, counts.active),
        ):
            if stated is not None and stated != counted:
                message = f"{field} is {stated:,}, and the shape gives {counted:,}"
                hint = "compare the shape with config.json"
                yield _at_entry(source, "architectures", index, model.name, message, hint, field)


def _cards(tree: CheckContext) -> Iterator[tuple[SourceFile, int, Gpu]]:
    """The cards of the data that are checked."""
    return _entries(tree, "gpus", Gpu)


def _models(tree: CheckContext) -> Iterator[tuple[SourceFile, int, Architecture]]:
    """The models of the data that are checked."""
    return _entries(tree, "architectures", Architecture)


def _entries(tree: CheckContext, kind: str, model: type[Entry]) -> Iterator[tuple[SourceFile, int, Entry]]:
    """The entries without errors, each with its file and its place in the list."""
    for source in tree.of_kind(kind).values():
        for index, entry in enumerate(valid_entries(source.document, kind, model)):
            if entry is not None:
                yield source, index, entry


def _at_entry(
    source: SourceFile, kind: str, index: int, name: str, message: str, hint: str, field: str = ""
) -> Finding:
    """A finding at an entry, or at one of its fields."""
    loc = (kind, index, field) if field else (kind, index)
    return at_value(source, loc, f"{name}: {message}", hint, name)
