"""Validation of parsed YAML: one sentence for each kind of pydantic error, at its place."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from .diagnostics import (
    CODES,
    MAX_PROBLEMS,
    Diagnostic,
    Location,
    did_you_mean,
    nearest,
    printable,
    suggest_or,
)
from .records import FORMS, SLUG, fold, slug

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from .strict_yaml import Document, Loc

Model = TypeVar("Model", bound=BaseModel)

#: The expected type, by pydantic's type of error.
_EXPECTED = {
    **dict.fromkeys(("int_type", "int_from_float"), "a whole number"),
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    **dict.fromkeys(("dict_type", "mapping_type", "model_type"), "keys and values"),
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
    """Convert pydantic's errors to diagnostics with places; of very many, the last counts the rest."""
    misspelt: dict[Loc, list[str]] = {}
    for error in details:
        if error["type"] == "extra_forbidden":
            misspelt.setdefault(error["loc"][:-1], []).append(str(error["loc"][-1]))

    def is_echo(error: ErrorDetails) -> bool:
        """Return whether a key is missing because it is misspelt, which is one mistake."""
        words = misspelt.get(error["loc"][:-1], ()) if error["type"] == "missing" else ()
        return any(nearest(word, [str(error["loc"][-1])]) for word in words[:MAX_PROBLEMS])

    kept = [error for error in details if not is_echo(error)]
    found = [_translate(document, model, error) for error in kept[:MAX_PROBLEMS]]
    if more := len(kept) - len(found):
        message = f"{more} more problems are not listed"
        found.append(document.diagnostic((), found[-1].code, message, "fix the others first"))
    return found


def _translate(document: Document, model: type[BaseModel], error: ErrorDetails) -> Diagnostic:
    """Convert a pydantic error to a diagnostic at the exact key or value."""
    loc, kind, context = error["loc"], error["type"], error.get("ctx", {})
    below, field = _walk(model, loc)
    allowed = list(strings_in(field.annotation)) if field else []
    example = _example(str(loc[-1]), field.examples[0]) if field and field.examples else ""
    subject = f"{_dotted(loc)}: " if loc else ""
    place, value = document.place(loc), document.source(loc)
    if kind == "extra_forbidden":
        around, _ = _walk(model, loc[:-1])
        remedy = did_you_mean(str(loc[-1]), around.model_fields if around else ())
        return Diagnostic(document.key_place(loc), "unknown_key", f"unknown key {loc[-1]!r}", remedy)
    if kind == "missing":
        message = f"the key {loc[-1]!r} is missing" + (f" in {_dotted(loc[:-1])!r}" if loc[1:] else "")
        meaning = ((field and field.description) or "").rstrip(".")
        choices = f"allowed: {', '.join(allowed)}" if allowed else ""
        parts = filter(None, (meaning, choices, example))
        remedy = ": ".join(filter(None, ("add it", ", ".join(parts))))
        return document.diagnostic(loc[:-1], "missing_key", message, remedy)
    if kind in _EXPECTED:
        got, remedy = got_instead(error["input"], value, kind)
        if kind == "model_type":
            keys = f"its keys are {', '.join(below.model_fields if below else ())}"
            remedy = f"{keys}; {example}" if example else keys
        return Diagnostic(place, "wrong_type", f"{subject}expected {_EXPECTED[kind]}, got {got}", remedy)
    if kind == "literal_error":
        value = str(error["input"])
        near = nearest(value, allowed)
        remedy = (f"did you mean {near!r}? " if near else "") + f"allowed: {', '.join(allowed)}"
        return Diagnostic(place, "unknown_value", f"{subject}unknown value {value!r}", remedy)
    if kind in CODES:
        remedy = context["hint"]
        if "known" in context:
            names = getattr(context["known"], "names", context["known"])
            word = context["word"]
            remedy = suggest_or(word, names, remedy) if remedy else did_you_mean(word, names)
        return Diagnostic(place, kind, f"{subject}{error['msg']}", remedy)
    if loc and loc[-1] == "[key]":  # a key of a mapping
        place, value = document.key_place(loc[:-1]), str(error["input"])
    form = context.get("pattern", "")
    rule = _CONSTRAINTS.get(kind, error["msg"].lower()).format(**context, form=FORMS.get(form, form))
    remedy = f"write {slug(value)}" if form == SLUG and slug(value) else ""
    return Diagnostic(place, "wrong_value", f"{subject}{rule}, got {value[:80]!r}", remedy)


def got_instead(value: Any, source: str, kind: str) -> tuple[str, str]:
    """Return a description of a wrong value, and how to write the intended one."""
    for known, words in ((type(None), "nothing"), (dict, "keys and values"), (tuple, "a list")):
        if isinstance(value, known):
            return words, ""
    word = source or str(value)
    if kind == "string_type":
        what = "true or false" if isinstance(value, bool) else "a number"
        return f"{what}, {word}", f'put it in quotes: "{word}"'
    if not isinstance(value, str):
        return word, ""
    number = re.match(r"(?:0|[1-9][\d_,]{0,12})(?:\.\d{1,9})?(?=[^\d.,_]|$)", word)
    digits = number[0].replace("_", "").replace(",", "") if number else ""
    remedy = f"write {digits}, without quotes and unit" if kind == "float_type" and digits else ""
    if kind == "int_type" and number and number[0] == word and digits.isdigit():
        remedy = f"write {digits}"
    return f"the text {word[:80]!r}", remedy


def _example(name: str, value: Any) -> str:
    text = yaml.safe_dump([value], default_flow_style=True, sort_keys=False, width=1000)
    return f"for example {name}: {text.strip()[1:-1]}"


def _dotted(loc: Loc) -> str:
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


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the model classes inside an annotation such as ``tuple[Note, ...]`` or ``Infer | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def strings_in(annotation: Any) -> Iterator[str]:
    """Yield the strings that an annotation with a ``Literal`` accepts."""
    for argument in get_args(annotation):
        if isinstance(argument, str):
            yield argument
        else:
            yield from strings_in(argument)


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a model in draft-07, the newest that YAML language servers support."""
    whole = model.model_json_schema(ref_template="#/definitions/{model}")
    definitions = whole.pop("$defs")
    draft = {"$schema": "http://json-schema.org/draft-07/schema#", **whole, "definitions": definitions}
    return _wrap_references(draft)  # type: ignore[no-any-return]


def schema_text(model: type[BaseModel]) -> str:
    """Return the text of the JSON Schema of a model; the same on every call."""
    return json.dumps(schema(model), indent=2) + "\n"


def _wrap_references(value: Any) -> Any:
    """Move references into ``allOf``, because draft-07 ignores descriptions next to a ``$ref``."""
    if isinstance(value, list):
        return [_wrap_references(item) for item in value]
    if not isinstance(value, dict):
        return value
    wrapped = {key: _wrap_references(item) for key, item in value.items()}
    if "$ref" in wrapped and len(wrapped) > 1:
        wrapped["allOf"] = [{"$ref": wrapped.pop("$ref")}]
    return wrapped


def repeated_names(
    document: Document, section: str, entries: Sequence[tuple[str, ...]]
) -> Iterator[Diagnostic]:
    """Yield an error for each name that two entries of a file share."""
    owners: dict[str, int] = {}
    for index, name in (
        (index, name) for index, names in enumerate(entries) for name in dict.fromkeys(names)
    ):
        owner = owners.setdefault(fold(name), index)
        if owner != index:
            other = f"entry {owner + 1} of {section!r}, {entries[owner][0]!r}"
            message, remedy = f"{name!r} is also a name of {other}", "keep it in one of the two"
            yield document.diagnostic((section, index), "duplicate_name", message, remedy)
