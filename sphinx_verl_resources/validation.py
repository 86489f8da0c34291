"""Validation of parsed YAML: one sentence for each kind of pydantic error, at its place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from .diagnostics import CODES, MAX_PROBLEMS, Code, Diagnostic, Location, did_you_mean, nearest, printable
from .records import FORMS, SLUG, slug

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from .strict_yaml import Document, Loc

Model = TypeVar("Model", bound=BaseModel)

#: The sentence of each of pydantic's types of error; any other has pydantic's own.
_SENTENCES = {
    **dict.fromkeys(("int_type", "int_from_float"), "expected a whole number"),
    "float_type": "expected a number",
    "string_type": "expected text",
    "bool_type": "expected true or false",
    **dict.fromkeys(("dict_type", "mapping_type", "model_type"), "expected keys and values"),
    "tuple_type": "expected a list",
    **dict.fromkeys(("date_type", "value_error"), "expected a date such as 2025-06-12"),
    "too_short": "expected at least one item",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "expected {form}",
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
    problems = [*document.problems, *explained(document, model, errors)]
    return (None if problems else record), problems


def empty(document: Document, remedy: str) -> Diagnostic:
    """Return the problem of an empty file."""
    # At the beginning: after a lone "---", the missing value would be on the next line.
    return Diagnostic(Location(document.shown, 1, 1), "file_empty", "the file is empty", remedy)


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
    places: dict[str, list[Loc]] = {"missing": [], "extra_forbidden": []}
    for error in details:
        places.setdefault(error["type"], []).append(error["loc"])
    misspelt: set[Loc] = set()  # a key that is missing because it is misspelt is one mistake
    for *parent, word in places["extra_forbidden"][:MAX_PROBLEMS]:
        near = nearest(str(word), [str(loc[-1]) for loc in places["missing"] if [*loc[:-1]] == parent])
        misspelt |= {(*parent, near or "")}
    kept = [
        error
        for error in details
        if not (error["type"] == "missing" and error["loc"] in misspelt)
        and not (error["type"] == "too_short" and error["input"])  # its items are wrong, and have errors
    ]
    return [_explain(document, model, error) for error in kept[: MAX_PROBLEMS + 1]]


def _explain(document: Document, model: type[BaseModel], error: ErrorDetails) -> Diagnostic:
    """Convert a pydantic error to a diagnostic at the exact key or value."""
    loc, kind, context = error["loc"], error["type"], error.get("ctx", {})
    record, field = walk(model, loc)
    allowed = [*strings_in(field.annotation)] if field else []
    example = _example(str(loc[-1]), field.examples[0]) if field and field.examples else ""
    if kind == "extra_forbidden":
        around, _ = walk(model, loc[:-1])
        remedy = did_you_mean(str(loc[-1]), around.model_fields if around else ())
        return Diagnostic(document.key_place(loc), "unknown_key", f"unknown key {loc[-1]!r}", remedy)
    if kind == "missing":
        message = f"the key {loc[-1]!r} is missing" + (f" in {_dotted(loc[:-1])!r}" if loc[1:] else "")
        meaning = (field.description or "").rstrip(".") if field else ""
        choices = f"allowed: {', '.join(allowed)}" if allowed else ""
        remedy = ": ".join(filter(None, ("add it", ", ".join(filter(None, (meaning, choices, example))))))
        return document.diagnostic(loc[:-1], "missing_key", message, remedy)
    code: Code = "wrong_type" if kind.endswith("_type") else "wrong_value"
    form, source, remedy = context.get("pattern", ""), document.source(loc), ""
    message = error["msg"]
    if sentence := _SENTENCES.get(kind):
        got = got_instead(error["input"], source)
        message = f"{sentence.format(**context, form=FORMS.get(form, form))}, got {got}"
    if kind in CODES:
        code, remedy = kind, context["hint"]
        if known := context.get("known"):
            words = [word for names in known for word in getattr(names, "names", names)]
            remedy = did_you_mean(context["word"], words, remedy)
    elif kind == "literal_error":
        word = source or got_instead(error["input"], source)
        code, message, remedy = "unknown_value", f"unknown value {word!r}", did_you_mean(word, allowed)
    elif kind == "model_type":
        remedy = example or f"its keys are {', '.join(record.model_fields if record else ())}"
    elif kind == "string_type" and source:
        remedy = f'put it in quotes: "{source}"'
    elif form == SLUG and slug(error["input"]):
        remedy = f"write {slug(error['input'])}"
    place = document.key_place(loc[:-1]) if loc[-1:] == ("[key]",) else document.place(loc)
    return Diagnostic(place, code, f"{_dotted(loc)}: {message}" if loc else message, remedy)


def got_instead(value: Any, source: str) -> str:
    """Describe a wrong value, which is typed as ``source`` in the file."""
    words = {type(None): "nothing", dict: "keys and values", tuple: "a list"}
    return words.get(type(value)) or (repr(value[:80]) if isinstance(value, str) else source or str(value))


def _example(name: str, value: Any) -> str:
    text = yaml.safe_dump({name: value}, default_flow_style=True, sort_keys=False, width=1000)
    return f"for example {text.strip()[1:-1]}"


def _dotted(loc: Loc) -> str:
    return printable(".".join(str(part) for part in loc if part != "[key]"))


def walk(model: type[BaseModel], loc: Loc) -> tuple[type[BaseModel] | None, FieldInfo | None]:
    """Return the model and the field at a place, or None for each."""
    record: type[BaseModel] | None = model
    field: FieldInfo | None = None
    for part in loc:
        if isinstance(part, str):
            field = record.model_fields.get(part) if record else None
            record = next(models_in(field.annotation), None) if field else None
    return record, field


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the model classes inside an annotation such as ``tuple[Note, ...]`` or ``Infer | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def strings_in(annotation: Any) -> Iterator[str]:
    """Yield the strings that an annotation with a ``Literal`` accepts."""
    for argument in get_args(annotation):
        yield from (argument,) if isinstance(argument, str) else strings_in(argument)


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a model in draft-07, the newest that YAML language servers support."""
    whole = model.model_json_schema(ref_template="#/definitions/{model}")
    definitions = whole.pop("$defs")
    return {"$schema": "http://json-schema.org/draft-07/schema#", **whole, "definitions": definitions}


def schema_text(model: type[BaseModel]) -> str:
    """Return the text of the JSON Schema of a model; the same on every call."""
    return json.dumps(schema(model), indent=2) + "\n"
