"""Strict, frozen records, and the text types of their fields."""

import re
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from typing import Annotated, Any, ClassVar, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from ...diagnostics import did_you_mean, suggest_or
from ..links import REF

_EMAIL = re.compile(r"[\w.+-]@[\w-]{1,63}\.\w")
_TODO = re.compile(r"TODO\b")
_SEVERAL_LINES = re.compile(r"[\t\r\n]|\A\s|\s\Z")


class Record(BaseModel):
    """A frozen record that rejects unknown keys and converts no types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self if value is not None)


class NamedRecord(Record):
    """An entry of a registry.

    ``name_fields`` lists the fields that contain its names, each a string or a list of strings.
    """

    name_fields: ClassVar[tuple[str, ...]] = ("name",)

    name: str

    @property
    def lookup_names(self) -> tuple[str, ...]:
        """All names of this entry."""
        values = (getattr(self, field) for field in self.name_fields)
        return tuple(name for value in values for name in ((value,) if isinstance(value, str) else value))


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


def optional(description: str, **limits: Any) -> Any:
    """Return an optional field; its default is None."""
    return Field(None, description=description, **limits)


def problem(code: str, message: str, remedy: str = "") -> PydanticCustomError:
    """Return a validation error whose type is the name of a diagnostic code."""
    # With the message in a placeholder, braces in a user's text stay as they are.
    return PydanticCustomError(code, "{message}", {"message": message, "hint": remedy})


#: A readable description of each pattern; JSON Schemas have the pattern itself.
FORMS: dict[str, str] = {}


def pattern(expression: str, meaning: str) -> str:
    """Register the description of a pattern, and return the pattern."""
    FORMS[expression] = meaning
    return expression


#: The form of ids.
SLUG = pattern(r"^[a-z0-9]+(-[a-z0-9]+)*$", "lower-case letters and digits with single hyphens between them")


def slug(text: str) -> str:
    """Turn a text into an id; empty if an id can contain none of its characters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _some_distinct(items: tuple[Any, ...]) -> tuple[Any, ...]:
    if not items:
        raise problem("wrong_value", "expected at least one item")
    seen: set[Any] = set()
    for item in items:
        if item in seen:
            raise problem("wrong_value", f"duplicate entry {str(item)[:80]!r}", "keep one of the two")
        seen.add(item)
    return items


Item = TypeVar("Item")
#: A non-empty list without duplicates.
Some = Annotated[tuple[Item, ...], AfterValidator(_some_distinct), Field(json_schema_extra={"minItems": 1})]


def check_name(
    name: str, known: Any, what: str = "name", code: str = "unknown_value", remedy: str = ""
) -> str:
    """Reject a name that is not in ``known``, which is a collection of strings or a registry."""
    if name in known:
        return name
    names = getattr(known, "names", known)
    hint = suggest_or(name, names, remedy) if remedy else did_you_mean(name, names)
    raise problem(code, f"unknown {what} {name!r}", hint)


def name_of(kind: str, what: str = "name", code: str = "unknown_value", remedy: str = "") -> AfterValidator:
    """Return a validator for names in the validation context; without a context it accepts any name."""

    def check(name: str, info: ValidationInfo) -> str:
        return check_name(name, info.context[kind], what, code, remedy) if info.context else name

    return AfterValidator(check)


def no_todo(text: str) -> str:
    """Reject leftover TODOs."""
    if _TODO.match(text):
        raise problem("todo", "the value is still TODO", "fill it in, or remove the key")
    return text


def no_email(text: str) -> str:
    """Reject a text with an e-mail address."""
    if _EMAIL.search(text):
        raise problem(
            "email_address", "e-mail addresses are not allowed", "give a name, and link a public profile"
        )
    return text


@lru_cache(maxsize=10_000)  # runs share most of their words
def one_line(text: str) -> str:
    """Reject a text of several lines, or with an e-mail address."""
    if _SEVERAL_LINES.search(text):
        raise problem("wrong_value", "expected one line without tabs and without spaces around it")
    return no_todo(no_email(text))


def _url(text: str) -> str:
    no_todo(text)
    try:
        parts = urlsplit(text)
        # The text itself is checked too, because urlsplit removes blanks and control characters.
        usable = bool(parts.hostname) and re.match(r"https?://", text, re.IGNORECASE) is not None
    except ValueError:
        usable = False
    if not usable or re.search(r"[\s<>\"'`\\{}|^]", text):
        raise problem("bad_url", f"expected an address that begins with https://, got {text[:80]!r}")
    if "@" in text.split("/")[2]:
        raise problem("bad_url", "an address must not contain a user name or password")
    return text


def _repo_path(text: str) -> str:
    if text.startswith("/") or "\\" in text or any(part in {"", ".", ".."} for part in text.split("/")):
        raise problem(
            "wrong_value", f"expected a path relative to the root of verl's repository, got {text[:80]!r}"
        )
    return one_line(text)


def _iso_date(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
            raise ValueError
        return date.fromisoformat(value)
    except ValueError:
        raise problem("wrong_value", f"expected a date such as 2025-06-12, got {value[:40]!r}") from None


#: A short, single-line text.
Text = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(one_line)]
#: The name of an entry of gpus.yaml.
GpuName = Annotated[Text, name_of("gpus", "GPU", "unknown_gpu", "add it to gpus.yaml")]
#: The name of an entry of architectures.yaml.
Checkpoint = Annotated[
    Text, name_of("architectures", "model", "unknown_model", "add it to architectures.yaml")
]
#: Sentences, on one or more lines. Always shown as text, never parsed as markup.
Prose = Annotated[str, StringConstraints(min_length=1, max_length=4000), AfterValidator(no_email)]
#: An http(s) address.
Url = Annotated[
    str,
    StringConstraints(max_length=2000),
    AfterValidator(_url),
    WithJsonSchema({"type": "string", "format": "uri", "pattern": "^https?://", "maxLength": 2000}),
]
#: A path in verl's repository, with forward slashes.
RepoPath = Annotated[str, StringConstraints(min_length=1, max_length=400), AfterValidator(_repo_path)]
#: A commit, tag or branch of verl's repository.
GitRef = Annotated[
    str,
    StringConstraints(
        pattern=pattern(
            REF,
            "a commit, tag or branch: letters, digits, '.', '_', '/' and '-'",
        )
    ),
]
#: A calendar day.
IsoDate = Annotated[date, BeforeValidator(_iso_date), WithJsonSchema({"type": "string", "format": "date"})]
