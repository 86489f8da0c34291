"""The memory analysis as recorded: all files that hold a part of it, merged by name and cross-checked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from ..diagnostics import Code, Diagnostic, Severity, did_you_mean, nearest, suggest_or
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
from .names import ASSUMED_SUBJECTS, COMPONENTS, REQUIREMENTS, SHAPE_FIGURES, STATES, TOTAL, figure_parts
from .registries import Registry, load_config_keys, repeated_names
from .validation import load, valid_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .catalog import Catalog
    from .files import Snapshot
    from .models.architecture import Architecture
    from .models.base import NamedRecord
    from .models.registries import ConfigKey, Gpu
    from .yaml_data import Document, Loc


@dataclass(frozen=True)
class Analysis:
    """Everything that the memory analysis is computed from; each section by name, in its order.

    Attributes:
        gpus: the GPUs.
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
    """One file, and the analysis from this file and those before it.

    Attributes:
        document: the file, for looking up places.
        entries: by section, in the order of the file; None for an entry that has errors.
        analysis: the state.
    """

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
        part = Part(document, entries, analysis)
        for section, listed in entries.items():
            names: list[tuple[str, ...]] = [(entry.name,) if entry else () for entry in listed]
            problems += repeated_names(document, section, names, str.casefold)
        problems += check_references(part)
        parts.append(part)
    if parts:
        problems += _missing(assumed, parts[-1])
    problems.sort()
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
    """Return a section with the good entries of one more file; the case of names does not matter."""
    merged = {name.casefold(): entry for name, entry in known.items()}
    merged.update({entry.name.casefold(): entry for entry in entries if entry})
    return {entry.name: entry for entry in merged.values()}


def _good_values(data: Any) -> dict[str, Any]:
    """Return the valid assumptions of a file; the others are reported when it is read."""
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
    """Yield the assumptions that no file makes, at the last file."""
    for name, info in Assumptions.model_fields.items():
        if name not in values:
            message = f"no file says what 'assumptions.{name}' is"
            yield part.document.diagnostic(
                ("assumptions",), Code.missing_key, message, info.description or ""
            )


class Reference(NamedTuple):
    """A name at a place, and all names that are allowed there."""

    loc: Loc
    name: str
    what: str
    known: Iterable[str] | Registry[Any]
    code: Code = Code.unknown_value
    remedy: str = ""


def check_references(part: Part) -> Iterator[Diagnostic]:
    """Yield every name in one file that leads nowhere, and every key of verl that should not be advised."""
    for item in _references(part):
        if item.name not in item.known:
            names = item.known.names if isinstance(item.known, Registry) else list(item.known)
            hint = (
                suggest_or(item.name, names, item.remedy) if item.remedy else did_you_mean(item.name, names)
            )
            message = f"{item.what}: unknown name {item.name!r}"
            yield part.document.diagnostic(item.loc, item.code, message, hint)
    for loc, key in _keys(part):
        found = key_problem(part.analysis.config_keys, key)
        if found:
            place = part.document.key_place(loc)
            yield Diagnostic(place, Code.config_key, *found, Severity.WARNING)


def key_problem(keys: Registry[ConfigKey], name: str) -> tuple[str, str] | None:
    """Return why a key of verl's configuration should not be advised, and what to do; None if it is fine."""
    key = keys.get(name)
    if key is None:
        if name in keys:  # an entry with errors of its own
            return None
        near = nearest(name, keys.names)
        return f"verl has no key {name!r} that is known here", (
            f"did you mean {near!r}?" if near else "correct it, or add it to config_keys.yaml"
        )
    if key.status == "active":
        return None
    what = {
        "moved": "has another name now",
        "deprecated": "is deprecated",
        "no-op": "is ignored by verl",
        "no-op with trainer.use_v1": "is ignored by verl where trainer.use_v1 is true, its default",
    }
    hint = f"write {key.moved_to!r}" if key.moved_to else (key.note or "leave it out")
    return f"the key {name!r} {what[key.status]}", hint


def _references(part: Part) -> Iterator[Reference]:
    analysis = part.analysis
    specifications, steps = _names(part, "specifications"), _names(part, "steps")
    for index, spec in _numbered(part, "specifications"):
        if spec.model:
            yield Reference(
                ("specifications", index, "model"), spec.model, "model", analysis.architectures,
                Code.unknown_model, "add it to architectures.yaml",
            )  # fmt: skip
    for section in ("printed", "requirements", "configurations"):
        for index, entry in _numbered(part, section):
            yield Reference((section, index, "name"), entry.name, section, specifications)
    for index, priority in _numbered(part, "priorities"):
        yield Reference(("priorities", index, "name"), priority.name, "priorities", steps)
    for index, requirement in _numbered(part, "requirements"):
        for number, claim in enumerate(requirement.claims):
            for position, gpu in enumerate(claim.gpus):
                yield Reference(
                    ("requirements", index, "claims", number, "gpus", position), gpu, "gpus", analysis.gpus,
                    Code.unknown_gpu, "add it to gpus.yaml",
                )  # fmt: skip
    for index, printed in _numbered(part, "printed"):
        for number, item in enumerate(printed.figures):
            loc: Loc = ("printed", index, "figures", number)
            yield from _figure_references((*loc, "figure"), item.figure, steps)
            causes = _names(part, "causes")
            for kind in ("causes", "carried"):
                for position, cause in enumerate(getattr(item, kind)):
                    yield Reference((*loc, kind, position), cause, kind, causes)
    subjects = _subjects(part)
    for index, remark in _numbered(part, "remarks"):
        for position, subject in enumerate(remark.about):
            yield Reference(("remarks", index, "about", position), subject, "about", subjects)


def _figure_references(loc: Loc, figure: str, steps: list[str]) -> Iterator[Reference]:
    step, name = figure_parts(figure)
    if step is not None:
        yield Reference(loc, step, "figure", steps)
    names = [*COMPONENTS, TOTAL, *(SHAPE_FIGURES if step is None else (STATES,))]
    yield Reference(loc, name, "figure", names)


#: The sections whose entries a remark can be about.
_REMARKED = ("steps", "trade_offs", "commands", "metrics")


def _subjects(part: Part) -> list[str]:
    """Return all that a remark can be about."""
    named = [name for section in _REMARKED for name in _names(part, section)]
    keys = {key for entry in part.analysis.configurations.values() for key in entry.settings}
    return [*COMPONENTS, TOTAL, REQUIREMENTS, *ASSUMED_SUBJECTS, *named, *sorted(keys)]


def _keys(part: Part) -> Iterator[tuple[Loc, str]]:
    for index, entry in _numbered(part, "configurations"):
        for key in entry.settings:
            yield ("configurations", index, "settings", key), key
    for index, entry in _numbered(part, "priorities"):
        for position, key in enumerate(entry.keys):
            yield ("priorities", index, "keys", position), key


def _numbered(part: Part, section: str) -> Iterator[tuple[int, Any]]:
    return ((index, entry) for index, entry in enumerate(part.entries[section]) if entry)


def _names(part: Part, section: str) -> list[str]:
    """Return the names of a section, also those of entries with errors: using one is no further mistake."""
    known = dict.fromkeys(getattr(part.analysis, section))
    data = part.document.data
    listed = data.get(section) if isinstance(data, dict) else None
    for entry in listed if isinstance(listed, tuple) else ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            known[entry["name"]] = None
    return list(known)
