"""The recorded memory analysis: all files with a part of it, merged by name and cross-checked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..diagnostics import Code, Diagnostic, Severity, nearest
from .catalog import Registry, repeated_names
from .files import ANALYSIS
from .models.analysis import (
    AnalysisFile,
    Assumptions,
    AssumptionsPart,
    Command,
    Configuration,
    Metric,
    Priority,
    Remark,
    Requirement,
    Specification,
    Step,
    TradeOff,
    VerlState,
)
from .models.base import models_in
from .names import ASSUMED_SUBJECTS, COMPONENTS, REQUIREMENTS, TOTAL
from .validation import entries_in, problems_in, try_model, valid_entries, value_at
from .yaml_data import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .files import Snapshot
    from .models.architecture import Architecture
    from .models.base import NamedRecord
    from .models.registries import ConfigKey, Gpu
    from .yaml_data import Document, Loc


@dataclass(frozen=True)
class Analysis:
    """The inputs of the memory analysis; each section is ordered and keyed by name.

    Attributes:
        gpus: the GPUs.
        architectures: the model shapes.
        config_keys: the keys of verl's configuration.
        verl: the commit of verl that remarks were checked against; None if not recorded.
        assumptions: the assumptions; None if one of them is missing.
        diagnostics: all problems, ordered by file and line.
    """

    gpus: Registry[Gpu]
    architectures: Registry[Architecture]
    config_keys: Registry[ConfigKey]
    verl: VerlState | None = None
    assumptions: Assumptions | None = None
    specifications: Mapping[str, Specification] = field(default_factory=dict)
    steps: Mapping[str, Step] = field(default_factory=dict)
    requirements: Mapping[str, Requirement] = field(default_factory=dict)
    configurations: Mapping[str, Configuration] = field(default_factory=dict)
    priorities: Mapping[str, Priority] = field(default_factory=dict)
    trade_offs: Mapping[str, TradeOff] = field(default_factory=dict)
    commands: Mapping[str, Command] = field(default_factory=dict)
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    remarks: Mapping[str, Remark] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()


#: The sections that are lists of named entries, and the model of an entry.
SECTIONS: dict[str, type[NamedRecord]] = {
    name: model  # type: ignore[misc]
    for name, info in AnalysisFile.model_fields.items()
    if name not in {"verl", "assumptions"}
    for model in models_in(info.annotation)
}
#: The sections whose entries a remark can be about.
_REMARKED = ("steps", "trade_offs", "commands", "metrics")


def load_analysis(
    snapshot: Snapshot, gpus: Registry[Gpu], models: Registry[Architecture], keys: Registry[ConfigKey]
) -> Analysis:
    """Load the memory analysis. Problems in the files are reported, never raised."""
    problems: list[Diagnostic] = []
    analysis = Analysis(gpus, models, keys)
    assumed: dict[str, Any] = {}
    document = None
    for file in snapshot.registries[ANALYSIS]:
        document = read_yaml(file.content, file.shown)
        known = _known_names(analysis, document.data)
        _, errors = try_model(document.data, AnalysisFile, known)
        problems += problems_in(document, AnalysisFile, errors)
        entries: dict[str, tuple[Any, ...]] = {
            section: valid_entries(document.data, section, model, known)
            for section, model in SECTIONS.items()
        }
        for section, listed in entries.items():
            names: list[tuple[str, ...]] = [(entry.name,) if entry else () for entry in listed]
            problems += repeated_names(document, section, names, str.casefold)
        problems += _doubtful_keys(document, keys, entries)
        assumed.update(_assumed(document.data))
        changes: dict[str, Any] = {
            section: _merge(getattr(analysis, section), listed) for section, listed in entries.items()
        }
        verl, _ = try_model(value_at(document.data, "verl"), VerlState)
        analysis = replace(
            analysis, assumptions=try_model(assumed, Assumptions)[0], verl=verl or analysis.verl, **changes
        )
    if document:
        problems += _missing(assumed, document)
    return replace(analysis, diagnostics=tuple(sorted(problems)))


def _known_names(analysis: Analysis, data: Any) -> dict[str, Any]:
    """Return the names that entries of a file may use, by kind.

    Entries with errors are included, so that using one is not a second error.
    """
    known: dict[str, Any] = {"gpus": analysis.gpus, "architectures": analysis.architectures}
    for section in SECTIONS:
        written = (entry.get("name") for entry in entries_in(data, section) if isinstance(entry, dict))
        known[section] = [*getattr(analysis, section), *(name for name in written if isinstance(name, str))]
    keys = {key for entry in analysis.configurations.values() for key in entry.settings}
    for entry in valid_entries(data, "configurations", Configuration):
        keys.update(entry.settings if entry else ())
    remarked = [name for section in _REMARKED for name in known[section]]
    known["subjects"] = [*COMPONENTS, TOTAL, REQUIREMENTS, *ASSUMED_SUBJECTS, *remarked, *sorted(keys)]
    return known


def _merge(known: Mapping[str, NamedRecord], entries: Iterable[NamedRecord | None]) -> dict[str, NamedRecord]:
    """Return a section updated with the valid entries of another file; names are compared without case."""
    merged = {name.casefold(): entry for name, entry in known.items()}
    merged.update({entry.name.casefold(): entry for entry in entries if entry})
    return {entry.name: entry for entry in merged.values()}


def _assumed(data: Any) -> dict[str, Any]:
    """Return the valid assumptions of a file."""
    values = value_at(data, "assumptions")
    return {
        name: value
        for name, value in (values.items() if isinstance(values, dict) else ())
        if value is not None and try_model({name: value}, AssumptionsPart)[0]
    }


def _missing(values: dict[str, Any], document: Document) -> Iterator[Diagnostic]:
    """Yield an error for each assumption that no file sets, at the last file."""
    for name, info in Assumptions.model_fields.items():
        if name not in values:
            message = f"no file sets 'assumptions.{name}'"
            yield document.diagnostic(("assumptions",), Code.missing_key, message, info.description or "")


def _doubtful_keys(
    document: Document, keys: Registry[ConfigKey], entries: Mapping[str, tuple[Any, ...]]
) -> Iterator[Diagnostic]:
    """Yield a warning for each key of verl's configuration that should not be recommended."""
    named: list[tuple[Loc, str]] = []
    for index, entry in enumerate(entries["configurations"]):
        named += [
            (("configurations", index, "settings", key), key) for key in (entry and entry.settings) or ()
        ]
    for index, entry in enumerate(entries["priorities"]):
        listed = enumerate((entry and entry.keys) or ())
        named += [(("priorities", index, "keys", position), key) for position, key in listed]
    for loc, key in named:
        found = key_problem(keys, key)
        if found:
            yield Diagnostic(document.key_place(loc), Code.config_key, *found, Severity.WARNING)


def key_problem(keys: Registry[ConfigKey], name: str) -> tuple[str, str] | None:
    """Return why a key of verl's configuration should not be used, and what to do; None if it is fine."""
    key = keys.get(name)
    if key is None:
        if name in keys:  # the entry itself has errors
            return None
        near = nearest(name, keys.names)
        return f"unknown key {name!r} of verl's configuration", (
            f"did you mean {near!r}?" if near else "correct it, or add it to config_keys.yaml"
        )
    if key.status == "active":
        return None
    what = {
        "moved": "was renamed",
        "deprecated": "is deprecated",
        "no-op": "is ignored by verl",
        "no-op with trainer.use_v1": "is ignored by verl if trainer.use_v1 is true, its default",
    }
    hint = f"use {key.moved_to!r}" if key.moved_to else (key.note or "remove it")
    return f"the key {name!r} {what[key.status]}", hint
