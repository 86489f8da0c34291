"""Validation of parsed YAML: one sentence for each kind of pydantic error, at its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from .diagnostics import CODES, MAX_PROBLEMS, Code, Diagnostic, Location, did_you_mean
from .records import FORMS
from .strict_yaml import Document, Loc

Model = TypeVar("Model", bound=BaseModel)

#: Sentences without Python's words; other errors have pydantic's own.
_SENTENCES = {
    **dict.fromkeys(("dict_type", "mapping_type", "model_type"), "expected keys and values"),
    **dict.fromkeys(("date_type", "value_error"), "expected a date such as 2025-06-12"),
    "tuple_type": "expected a list",
    "string_too_short": "expected a text",
    "too_short": "expected at least one item",
}


def validated(
    document: Document, model: type[Model], context: Any = None
) -> tuple[Model | None, list[Diagnostic]]:
    """Return the record of a document, None if it has errors, and all its problems.

    Args:
        document: the parsed file, or an item of a list.
        model: the model of its content.
        context: the context for the model's validators.
    """
    if document.data is None:
        hint = f"begin the file with the key {next(iter(model.model_fields))!r}"
        return None, document.problems or [empty(document, hint)]
    record, errors = try_model(document.data, model, context)
    return record, explained(document, model, errors)


def empty(document: Document, remedy: str) -> Diagnostic:
    """Return the problem of an empty file."""
    # At the beginning: after a lone "---", the missing value would be on the next line.
    return Diagnostic(Location(document.label, 1, 1), "file_empty", "the file is empty", remedy)


def try_model(data: Any, model: type[Model], context: Any = None) -> tuple[Model | None, list[ErrorDetails]]:
    """Validate plain values; return the record (None if there are errors) and the errors."""
    try:
        return model.model_validate(data, context=context), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


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


def explained(document: Document, model: type[BaseModel], details: list[ErrorDetails]) -> list[Diagnostic]:
    """Convert pydantic's errors to diagnostics with places; of very many, one more than is printed."""
    # A list with wrong items, which have errors, is also too short for pydantic.
    errors = [error for error in details if error["type"] != "too_short" or not error["input"]]
    return [_explain(document, model, error) for error in errors[: MAX_PROBLEMS + 1]]


def _explain(document: Document, model: type[BaseModel], error: ErrorDetails) -> Diagnostic:
    """Convert a pydantic error to a diagnostic at its key or value."""
    loc, kind, context = error["loc"], error["type"], error.get("ctx", {})
    source, message, remedy = document.source(loc), error["msg"], ""
    path = ".".join(str(part) for part in loc if part != "[key]")
    code: Code = "wrong_type" if kind.endswith("_type") else "wrong_value"
    if kind == "extra_forbidden":
        remedy = did_you_mean(str(loc[-1]), fields_at(model, loc[:-1]))
        return Diagnostic(document.key_place(loc), "unknown_key", f"unknown key {loc[-1]!r}", remedy)
    if kind == "missing":
        *inside, name = path.split(".")
        field = fields_at(model, loc[:-1])[name]
        message = f"the key {name!r} is missing" + (f" in {'.'.join(inside)!r}" if inside else "")
        remedy = f"add it: {field.description}"
        if field.examples:
            remedy += f" For example {name}: {json.dumps(field.examples[0])}"
        return document.diagnostic(loc[:-1], "missing_key", message, remedy)
    if kind in CODES:
        code, remedy = kind, context["hint"]
        if known := context.get("known"):
            words = [word for names in known for word in getattr(names, "names", names)]
            remedy = did_you_mean(context["word"], words, remedy)
    elif kind == "literal_error":
        word = source or got_instead(error["input"], source)
        allowed = re.findall("'([^']*)'", context["expected"])
        code, message, remedy = "unknown_value", f"unknown value {word!r}", did_you_mean(word, allowed)
    else:
        expected = f"expected {FORMS[context['pattern']]}" if "pattern" in context else message
        message = f"{_SENTENCES.get(kind, expected)}, got {got_instead(error['input'], source)}"
        if kind == "model_type":
            remedy = f"its keys are {', '.join(fields_at(model, loc))}"
        elif kind == "string_type" and source:
            remedy = f'put it in quotes: "{source}"'
    place = document.key_place(loc[:-1]) if loc[-1:] == ("[key]",) else document.place(loc)
    return Diagnostic(place, code, f"{path}: {message}" if path else message, remedy)


def got_instead(value: Any, source: str) -> str:
    """Describe a wrong value, which is typed as ``source`` in the file."""
    words = {type(None): "nothing", dict: "keys and values", tuple: "a list"}
    return words.get(type(value)) or (repr(value) if isinstance(value, str) else source or str(value))


def fields_at(model: type[BaseModel], loc: Loc) -> dict[str, FieldInfo]:
    """Return the fields of the record at a place in another one; none if there is another value."""
    fields = model.model_fields
    for name in loc:
        if isinstance(name, str):
            inner = next(models_in(fields[name].annotation), None) if name in fields else None
            fields = inner.model_fields if inner else {}
    return fields


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the model classes inside an annotation such as ``tuple[Note, ...]`` or ``Infer | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def schema_text(model: type[BaseModel]) -> str:
    """Return the JSON Schema of a model in draft-07, the newest that YAML language servers support."""
    own = model.model_json_schema(ref_template="#/definitions/{model}")
    own["definitions"] = own.pop("$defs")
    about = {"$comment": f"Written by verl-resources schema from {model.__module__}.{model.__name__}."}
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", **about, **own}, indent=2) + "\n"
