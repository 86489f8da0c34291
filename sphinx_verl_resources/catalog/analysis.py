"""The memory analysis as recorded: all files that hold a part of it, merged by name and cross-checked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ..diagnostics import Code
from .analysis_checks import check_references
from .files import ANALYSIS, CONFIG_KEYS
from .models.analysis import (
    AnalysisFile,
    Assumptions,
    AssumptionsPart,
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
from .models.base import models_in
from .registries import load_config_keys, repeated_names
from .validation import load, valid_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..diagnostics import Diagnostic
    from .catalog import Catalog
    from .files import DataFile, Snapshot
    from .models.architecture import Architecture
    from .models.base import NamedRecord
    from .models.config_key import ConfigKey
    from .models.gpu import Gpu
    from .registries import Registry
    from .yaml_data import Document


@dataclass(frozen=True)
class Analysis:
    """Everything that the memory analysis is computed from; each section by name, in its order.

    Attributes:
        gpus: the cards.
        architectures: the model shapes.
        config_keys: the keys of verl's configuration.
        verl: the state of verl that remarks compare with; None if it is recorded nowhere.
        assumptions: None only if one of them is recorded nowhere.
        parts: what each file contributed.
        diagnostics: every problem, in the order of files and lines.
    """

    gpus: Registry[Gpu]
    architectures: Registry[Architecture]
    config_keys: Registry[ConfigKey]
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
    keys = load_config_keys(snapshot.registries[CONFIG_KEYS], problems)
    analysis = Analysis(catalog.gpus, catalog.architectures, keys)
    assumed: dict[str, Any] = {}
    parts: list[Part] = []
    for file in snapshot.registries[ANALYSIS]:
        record, document, found = load(file, AnalysisFile)
        problems += found
        entries = _entries(record, document)
        assumed.update(_good_values(document.data))
        changes: dict[str, Any] = {
            section: _merge(getattr(analysis, section), listed) for section, listed in entries.items()
        }
        changes.update(assumptions=_assumptions(assumed), verl=_verl(document.data) or analysis.verl)
        analysis = replace(analysis, **changes)
        part = Part(file, document, entries, analysis)
        for section, listed in entries.items():
            names: list[tuple[str, ...]] = [(entry.name,) if entry else () for entry in listed]
            problems += repeated_names(document, section, names, str.casefold)
        problems += check_references(part)
        parts.append(part)
    if parts:
        problems += _missing(assumed, parts[-1])
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


def _merge(known: Mapping[str, NamedRecord], entries: Iterable[NamedRecord | None]) -> dict[str, NamedRecord]:
    """A section with the good entries of one more file; names are alike whatever their case."""
    merged = {name.casefold(): entry for name, entry in known.items()}
    merged.update({entry.name.casefold(): entry for entry in entries if entry})
    return {entry.name: entry for entry in merged.values()}


def _good_values(data: Any) -> dict[str, Any]:
    """The assumptions of a file that are as they should be; the others are reported when it is read."""
    values = data.get("assumptions") if isinstance(data, dict) else None
    found: dict[str, Any] = {}
    for name, value in values.items() if isinstance(values, dict) else ():
        try:
            AssumptionsPart.model_validate({name: value})
        except ValidationError:
            continue
        if value is not None:
            found[name] = value
    return found


def _verl(data: Any) -> VerlState | None:
    try:
        return VerlState.model_validate(data.get("verl") if isinstance(data, dict) else None)
    except ValidationError:
        return None


def _assumptions(values: dict[str, Any]) -> Assumptions | None:
    return Assumptions.model_validate(values) if values.keys() == Assumptions.model_fields.keys() else None


def _missing(values: dict[str, Any], part: Part) -> Iterator[Diagnostic]:
    """Assumptions that no file makes, at the last of them."""
    for name, info in Assumptions.model_fields.items():
        if name not in values:
            message = f"no file says what 'assumptions.{name}' is"
            yield part.document.diagnostic(
                ("assumptions",), Code.missing_key, message, info.description or ""
            )
