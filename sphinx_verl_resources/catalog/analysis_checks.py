"""Names in the memory analysis that must exist elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..diagnostics import Code, Diagnostic, Severity, did_you_mean, nearest, suggest_or
from .names import ASSUMED_SUBJECTS, COMPONENTS, REQUIREMENTS, SHAPE_FIGURES, STATES, TOTAL, figure_parts
from .registries import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .analysis import Part
    from .models.config_key import ConfigKey
    from .yaml_data import Loc


class Reference(NamedTuple):
    """A name at a place, and all names that could stand there."""

    loc: Loc
    name: str
    what: str
    known: Iterable[str] | Registry[Any]
    code: Code = Code.unknown_value
    remedy: str = ""


def check_references(part: Part) -> Iterator[Diagnostic]:
    """Every name in one file that leads nowhere, and every key of verl that is not what it was."""
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
    """Why a key of verl's configuration should not be advised, and what to do; None if nothing is wrong."""
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
    """All that a remark can be about."""
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
    """The names of a section, those of entries with errors included: using one is no mistake of its own."""
    known = dict.fromkeys(getattr(part.analysis, section))
    data = part.document.data
    listed = data.get(section) if isinstance(data, dict) else None
    for entry in listed if isinstance(listed, tuple) else ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            known[entry["name"]] = None
    return list(known)
