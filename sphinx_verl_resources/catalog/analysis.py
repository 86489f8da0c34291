"""The memory analysis as recorded: all files that hold a part of it, merged by name and cross-checked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from .analysis_checks import check_references
from .files import ANALYSIS, ARCHITECTURES, CONFIG_KEYS, GPUS
from .models.analysis import (
    AnalysisFile,
    Assumptions,
    Cause,
    Command,
    Configuration,
    Metric,
    Printed,
    Priority,
    Remark,
    Requirement,
    Specification,
    Step,
    TradeOff,
    VerlState,
)
from .registries import load_config_keys, repeated_names
from .validation import load, models_in, valid_entries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..diagnostics import Diagnostic
    from .catalog import Catalog, Registry
    from .files import DataFile, Snapshot
    from .models.architecture import Architecture
    from .models.base import NamedRecord
    from .models.config_key import ConfigKey
    from .models.gpu import Gpu
    from .yaml_data import Document


@dataclass(frozen=True)
class Analysis:
    """Everything that the memory analysis is computed from; each section by name, in its order.

    Attributes:
        gpus: the cards.
        architectures: the model shapes.
        config_keys: the keys of verl's configuration.
        digest: changes when any file behind all this does.
        verl: the state of verl that remarks compare with; None only if its record has errors.
        assumptions: None only if the record has errors.
        parts: what each file contributed.
        diagnostics: every problem, in the order of files and lines.
    """

    gpus: Registry[Gpu]
    architectures: Registry[Architecture]
    config_keys: Registry[ConfigKey]
    digest: str
    verl: VerlState | None = None
    assumptions: Assumptions | None = None
    specifications: Mapping[str, Specification] = field(default_factory=dict)
    steps: Mapping[str, Step] = field(default_factory=dict)
    causes: Mapping[str, Cause] = field(default_factory=dict)
    printed: Mapping[str, Printed] = field(default_factory=dict)
    requirements: Mapping[str, Requirement] = field(default_factory=dict)
    configurations: Mapping[str, Configuration] = field(default_factory=dict)
    priorities: Mapping[str, Priority] = field(default_factory=dict)
    trade_offs: Mapping[str, TradeOff] = field(default_factory=dict)
    commands: Mapping[str, Command] = field(default_factory=dict)
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    remarks: Mapping[str, Remark] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True)
class Part:
    """One file, and the analysis as it is when this file has been read and those after it have not.

    Attributes:
        file: the file.
        document: for looking up places.
        entries: by section, in the order of the file; None for an entry that has errors.
        analysis: the state.
    """

    file: DataFile
    document: Document
    entries: Mapping[str, tuple[Any, ...]]
    analysis: Analysis


def load_analysis(snapshot: Snapshot, catalog: Catalog) -> Analysis:
    """Validate, merge and cross-check; never raises on what is in the files."""
    problems: list[Diagnostic] = []
    digest = snapshot.registry_digest(ANALYSIS, CONFIG_KEYS, GPUS, ARCHITECTURES)
    keys = load_config_keys(snapshot.registries[CONFIG_KEYS], problems)
    analysis = Analysis(catalog.gpus, catalog.architectures, keys, digest)
    parts: list[Part] = []
    for file in snapshot.registries[ANALYSIS]:
        record, document, found = load(file, AnalysisFile)
        problems += found
        entries = _entries(record, document)
        analysis = _merge(analysis, document.data, entries)
        part = Part(file, document, entries, analysis)
        for section, listed in entries.items():
            names: list[tuple[str, ...]] = [(entry.name,) if entry else () for entry in listed]
            problems += repeated_names(file, document, section, names, str)
        problems += check_references(part)
        parts.append(part)
    problems.sort(key=lambda problem: problem.sort_key)
    return replace(analysis, parts=tuple(parts), diagnostics=tuple(problems))


#: The sections that are lists of named entries, and the model of an entry.
SECTIONS: dict[str, type[NamedRecord]] = {
    name: model  # type: ignore[misc]
    for name, info in AnalysisFile.model_fields.items()
    if name not in {"verl", "assumptions"}
    for model in models_in(info.annotation)
}


def _entries(record: AnalysisFile | None, document: Document) -> dict[str, tuple[Any, ...]]:
    if record is not None:
        return {section: getattr(record, section) for section in SECTIONS}
    return {section: valid_entries(document, section, model) for section, model in SECTIONS.items()}


def _merge(analysis: Analysis, data: Any, entries: Mapping[str, tuple[Any, ...]]) -> Analysis:
    """What was known, overridden by the good entries of one more file."""
    changes: dict[str, Any] = {
        section: {**getattr(analysis, section), **{entry.name: entry for entry in listed if entry}}
        for section, listed in entries.items()
    }
    data = data if isinstance(data, dict) else {}
    for name, model in (("verl", VerlState), ("assumptions", Assumptions)):
        if data.get(name) is None:
            continue
        known = getattr(analysis, name)
        try:
            changes[name] = model.model_validate({**(known.model_dump() if known else {}), **data[name]})
        except (ValidationError, TypeError):
            continue  # reported when the file was read
    return replace(analysis, **changes)
