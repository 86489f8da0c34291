"""Validation of parsed YAML against models, with pydantic's errors as diagnostics with places."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from ..diagnostics import MAX_PROBLEMS, Code, Diagnostic, Location, did_you_mean, nearest, printable
from .models.base import FORMS, SLUG, models_in, slug, strings_in
from .run_text import on_one_line
from .yaml_data import Document, Loc, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from .files import DataFile

Model = TypeVar("Model", bound=BaseModel)

#: The expected type, by pydantic's type of error.
_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "keys and values",
    "mapping_type": "keys and values",
    "model_type": "keys and values",
    "tuple_type": "a list",
    "date_type": "a date such as 2025-06-12",
}
#: The violated constraint, by pydantic's type of error.
_CONSTRAINTS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "expected {form}",
}


def load(
    file: DataFile, model: type[Model], context: Any = None
) -> tuple[Model | None, Document, list[Diagnostic]]:
    """Read and validate a file.

    Args:
        file: the file.
        model: the model of its content.
        context: the context for the model's validators.

    Returns:
        The record (None if it has errors), the document to look up places in, and all problems.
    """
    document = read_yaml(file.content, file.shown)
    record, errors = try_model(document.data, model, context)
    found = problems_in(document, model, errors)
    return (None if found else record), document, found


def problems_in(document: Document, model: type[BaseModel], errors: list[ErrorDetails]) -> list[Diagnostic]:
    """Return all problems of a document: its YAML problems, and ``errors`` as diagnostics."""
    if document.data is None:
        hint = f"begin the file with the key {next(iter(model.model_fields))!r}"
        return document.problems or [empty(document, hint)]
    return [*document.problems, *explained(document, model, errors)]


def empty(document: Document, remedy: str) -> Diagnostic:
    """Return the problem of an empty file."""
    # At the beginning: after a lone "---", the missing value would be on the next line.
    return Diagnostic(Location(document.shown, 1, 1), Code.file_empty, "the file is empty", remedy)


def explained(document: Document, model: type[BaseModel], details: list[ErrorDetails]) -> list[Diagnostic]:
    """Convert pydantic's errors to diagnostics with places.

    Only the first errors are converted; the last of these is repeated for each of the others, which
    ``diagnostics.listed`` only counts.
    """
    kept = _without_echoes(details)
    found = [_translate(document, model, detail) for detail in kept[: MAX_PROBLEMS + 1]]
    return [*found, *found[-1:] * (len(kept) - len(found))]


def value_at(data: Any, key: str) -> Any:
    """Return the value of a key in unchecked data, or None."""
    return data.get(key) if isinstance(data, dict) else None


def entries_in(data: Any, key: str) -> tuple[Any, ...]:
    """Return the entries of a list in unchecked data."""
    entries = value_at(data, key)
    return entries if isinstance(entries, tuple) else ()


def valid_entries(data: Any, key: str, model: type[Model], context: Any = None) -> tuple[Model | None, ...]:
    """Return the entries of a list in a file with errors; None for each entry with errors."""
    return tuple(try_model(entry, model, context)[0] for entry in entries_in(data, key))


def try_model(data: Any, model: type[Model], context: Any = None) -> tuple[Model | None, list[ErrorDetails]]:
    """Validate plain values; return the record (None if there are errors) and the errors."""
    try:
        return model.model_validate(data, context=context), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


def _without_echoes(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Drop errors about missing keys that are only misspelt, so that a mistake gives one message."""
    unknown: dict[Loc, list[str]] = {}
    for error in details:
        if error["type"] == "extra_forbidden":
            unknown.setdefault(error["loc"][:-1], []).append(str(error["loc"][-1]))

    def is_echo(error: ErrorDetails) -> bool:
        loc = error["loc"]
        misspelt = unknown.get(loc[:-1], ()) if error["type"] == "missing" else ()
        return any(nearest(word, [str(loc[-1])]) for word in misspelt)

    return [error for error in details if not is_echo(error)]


def _translate(document: Document, model: type[BaseModel], error: ErrorDetails) -> Diagnostic:
    """Convert a pydantic error to a diagnostic at the exact key or value."""
    loc, kind = error["loc"], error["type"]
    name, inside = _dotted(loc), _dotted(loc[:-1])
    subject = f"{name}: " if name else ""
    below, field = _walk(model, loc)
    allowed = list(strings_in(field.annotation)) if field else []
    example = (
        f"for example {on_one_line(str(loc[-1]), field.examples[0])}" if field and field.examples else ""
    )
    if kind == "extra_forbidden":
        around, _ = _walk(model, loc[:-1])
        remedy = did_you_mean(str(loc[-1]), around.model_fields if around else ())
        return Diagnostic(document.key_place(loc), Code.unknown_key, f"unknown key {str(loc[-1])!r}", remedy)
    if kind == "missing":
        message = f"the key {loc[-1]!r} is missing" + (f" in {inside!r}" if inside else "")
        meaning = ((field and field.description) or "").rstrip(".")
        parts = (meaning, f"allowed: {', '.join(allowed)}" if allowed else "", example)
        remedy = f"add it: {', '.join(filter(None, parts))}" if any(parts) else "add it"
        return document.diagnostic(loc[:-1], Code.missing_key, message, remedy)
    if kind in _EXPECTED:
        got, remedy = got_instead(error["input"], document.source(loc), kind)
        if kind == "model_type":
            keys = f"its keys are {', '.join(below.model_fields if below else ())}"
            remedy = "; ".join(filter(None, (keys, example)))
        message = f"{subject}expected {_EXPECTED[kind]}, got {got}"
        return document.diagnostic(loc, Code.wrong_type, message, remedy)
    if kind == "literal_error":
        value = str(error["input"])
        near = nearest(value, allowed)
        remedy = (f"did you mean {near!r}? " if near else "") + f"allowed: {', '.join(allowed)}"
        return document.diagnostic(loc, Code.unknown_value, f"{subject}unknown value {value!r}", remedy)
    if kind in Code.__members__:
        return document.diagnostic(
            loc, Code[kind], f"{subject}{error['msg']}", error.get("ctx", {}).get("hint", "")
        )
    return _wrong_value(document, error, subject)


def _wrong_value(document: Document, error: ErrorDetails, subject: str) -> Diagnostic:
    """Return the diagnostic for a value that violates a constraint."""
    loc, kind, context = error["loc"], error["type"], error.get("ctx", {})
    place, value = document.place(loc), document.source(loc)
    if loc and loc[-1] == "[key]":  # a key of a mapping
        place, value = document.key_place(loc[:-1]), str(error["input"])
    form = context.get("pattern", "")
    rule = error["msg"].lower()
    if kind in _CONSTRAINTS:
        rule = _CONSTRAINTS[kind].format(**context, form=FORMS.get(form, form))
    remedy = f"write {slug(value)}" if form == SLUG and slug(value) else ""
    return Diagnostic(place, Code.wrong_value, f"{subject}{rule}, got {value[:80]!r}", remedy)


def got_instead(value: Any, source: str, kind: str) -> tuple[str, str]:
    """Return a description of a wrong value, and how to write the intended one."""
    if value is None:
        return "nothing", ""
    if isinstance(value, dict):
        return "keys and values", ""
    if isinstance(value, tuple):
        return "a list", ""
    word = source or str(value)
    if kind == "string_type":
        what = "true or false" if isinstance(value, bool) else "a number"
        return f"{what}, {word}", f'put it in quotes: "{word}"'
    if isinstance(value, str):
        return f"the text {word[:80]!r}", _number_meant(word, kind)
    return word, ""


def _number_meant(text: str, kind: str) -> str:
    """Return how to write a number that was typed as text; empty if it is not a number."""
    digits = text.replace("_", "").replace(",", "")
    if kind == "int_type" and digits.isdigit() and not digits.startswith("0"):
        return f"write {digits}"
    number = re.match(r"(?:0|[1-9]\d{0,9})(?:\.\d{1,9})?(?=[^\d.,]|$)", text)
    if kind == "float_type" and number:
        return f"write {number[0]}, without quotes and unit"
    return ""


def _dotted(loc: Iterable[str | int]) -> str:
    return printable(".".join(str(part) for part in loc if part != "[key]"))


def _walk(model: type[BaseModel], loc: Loc) -> tuple[type[BaseModel] | None, FieldInfo | None]:
    """Return the model and the field at a place, or None for each."""
    current: type[BaseModel] | None = model
    field: FieldInfo | None = None
    for part in loc:
        if isinstance(part, str):
            field = current.model_fields.get(part) if current else None
            current = next(models_in(field.annotation), None) if field else None
    return current, field
