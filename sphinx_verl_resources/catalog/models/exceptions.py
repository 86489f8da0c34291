"""Exceptions: warnings that are known, and why they are right as they are."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from ...codes import Code, Origin
from ...diagnostics import did_you_mean
from .base import Prose, Record, Text, no_todo, problem, some_distinct

#: What can stand in the way of a command that writes run files is not about data.
_CODES = tuple(code.name for code in Code if code.origin is not Origin.INTAKE)
#: The words of the shortest reason that says something.
_WORDS = 4


def _code(name: str) -> str:
    if name not in _CODES:
        raise problem("unknown_value", f"there is no code {name[:80]!r}", did_you_mean(name, _CODES))
    return name


def _reason(text: str) -> str:
    no_todo(text)
    if len(text.split()) < _WORDS or not text.rstrip().endswith((".", "!", "?")):
        hint = "say why the data are right as they are"
        raise problem("wrong_value", "expected a sentence with a full stop", hint)
    return text


class Suppression(Record):
    """One kind of warning, where it is excused, and why."""

    code: Annotated[str, AfterValidator(_code), WithJsonSchema({"type": "string", "enum": list(_CODES)})] = (
        Field(description="The code of the warning, without ``verl.`` before it.")
    )
    files: Annotated[tuple[Text, ...], AfterValidator(some_distinct)] = Field(
        description="The files, seen from the data directory: runs/a.yaml."
    )
    names: Annotated[tuple[Text, ...], AfterValidator(some_distinct)] | None = Field(
        None, description="The entries of these files that are meant; absent: all of them."
    )
    reason: Annotated[Prose, AfterValidator(_reason)] = Field(
        description="Why the data are right as they are: a sentence."
    )


class ExceptionsFile(Record):
    """The file ``exceptions.yaml``."""

    exceptions: tuple[Suppression, ...] = Field(
        description="The exceptions; one that excuses nothing any more is an error."
    )
