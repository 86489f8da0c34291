"""The text of run files: their ids, the order of the fields, quotes and line breaks."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from itertools import chain, count
from typing import TYPE_CHECKING, Any, get_args

import yaml

from ..records import FORMS, SLUG, Run
from ..selection import as_text
from ..strict_yaml import read_yaml
from ..validation import fields_at, models_in

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

#: Marks a value to fill in.
TODO = "TODO"

SCHEMA_LINE = "# yaml-language-server: $schema={}"
#: The same line for matching: the group is the address of the schema; a remark may follow.
SCHEMA_LINE_READ = re.compile(re.escape(SCHEMA_LINE.format("")) + r"(\S+)(?=\s|\Z)")
#: The path of the schema from the folder of run files.
RUN_SCHEMA = "../schema/run.json"

#: Fields whose text looks like a number and is quoted, and fields that always have a line for each key.
QUOTED = frozenset({"infer.version", "versions.verl", "versions.torch", "evidence.lines"})
_BLOCKS = frozenset({"script", "settings"})
#: The fields of a run in the order of a file.
FIELD_ORDER = tuple(Run.model_fields)

#: Characters of an id.
MAX_ID_LENGTH = 80
#: The form of an id, in words.
ID_FORM = f"{FORMS[SLUG]}, at most {MAX_ID_LENGTH} characters"

#: Examples in the template.
_EXAMPLES = {"settings": {"data.train_batch_size": 1024, "actor_rollout_ref.rollout.n": 5}}
#: The width of a line, and of folded text.
_WIDTH, _TEXT_WIDTH = 115, 88
#: Resolves unquoted scalars as most other programs do.
_YAML_1_1 = yaml.resolver.Resolver()


def run_text(fields: Mapping[str, Any], remarks: Mapping[str, str] | None = None) -> str:
    r"""Return the text of a run file.

    Args:
        fields: the values by field, in any order; None becomes ``null``.
        remarks: one-line comments by field.

    Returns:
        YAML that loads as ``fields``, in the order of the schema.

    >>> print(run_text({"tag": None, "id": "a", "infer": {"engine": "vllm", "version": "0.8.3"}}), end="")
    # yaml-language-server: $schema=../schema/run.json
    id: a
    tag: null
    infer: {engine: vllm, version: "0.8.3"}
    """
    remarks = remarks or {}
    lines = [SCHEMA_LINE.format(RUN_SCHEMA)]
    known = [name for name in FIELD_ORDER if name in fields]
    for name in [*known, *(name for name in fields if name not in FIELD_ORDER)]:
        first, *others = _field(name, fields[name])
        if name in remarks:
            first = f"{first}  # {remarks[name]}"
        lines += [first, *others]
    return "\n".join(lines) + "\n"


def text_for(text: str, directory: Path) -> str:
    """Return the text of a run file, without its schema line if the data directory has no schema."""
    if (directory / RUN_SCHEMA.removeprefix("../")).is_file():
        return text
    return text.removeprefix(SCHEMA_LINE.format(RUN_SCHEMA) + "\n")


def blank_text(fields: Mapping[str, Any]) -> str:
    """Return a template of a run file: all fields with explanations, optional ones as comments.

    Args:
        fields: the known values by field. Other required fields become TODO.
    """
    lines = [
        SCHEMA_LINE.format(RUN_SCHEMA),
        "# Replace each TODO. Remove the '#' before an optional field to use it.",
    ]
    for name in FIELD_ORDER:
        lines += ["", *_template(name, fields.get(name))]
    return "\n".join(lines) + "\n"


def _template(name: str, value: Any) -> list[str]:
    """Return the lines of a field in the template: its explanation, then its known values."""
    entry = Run.model_fields[name]
    shown = value is not None or entry.is_required()
    lines = [on_one_line(name, value if value is not None else _EXAMPLES.get(name, TODO))]
    for inner in models_in(entry.annotation):
        is_list = isinstance(entry.get_default(), tuple)
        known = (value[0] if is_list else value) if value else {}
        lines = [f"{name}:"]
        for key, part in inner.model_fields.items():
            path = f"{name}.{key}"
            is_comment = shown and key not in known and not part.is_required()
            line = on_one_line(path, known.get(key, TODO)).removeprefix(f"{name}.")
            begin = ("- " if len(lines) == 1 else "  ") if is_list else ""
            lines.append(f"  {begin}{'# ' if is_comment else ''}{line}  # {_explanation(path)}")
    explained = [f"# {line}" for line in textwrap.wrap(_explanation(name), _TEXT_WIDTH)]
    return explained + [line if shown else f"# {line}" for line in lines]


def _explanation(name: str) -> str:
    """Return the description of a field, with its allowed words or examples."""
    *section, key = name.split(".")
    field = fields_at(Run, tuple(section))[key]
    examples = [text for text in field.examples or () if isinstance(text, str)]
    sentences = [field.description or ""]
    if choices := [*_strings_in(field.annotation)]:
        sentences.append(f"One of {', '.join(choices)}.")
    elif examples:
        sentences.append(f"For example {', '.join(examples)}.")
    return " ".join(sentences)


def _strings_in(annotation: Any) -> Iterator[str]:
    """Yield the strings that an annotation with a ``Literal`` accepts."""
    for argument in get_args(annotation):
        yield from (argument,) if isinstance(argument, str) else _strings_in(argument)


def on_one_line(name: str, value: Any) -> str:
    """Format a field on one line.

    >>> on_one_line("infer", {"engine": "vllm", "version": "0.8.3"})
    'infer: {engine: vllm, version: "0.8.3"}'
    """
    return f"{name}: {_value(name, value)}"


def _field(name: str, value: Any) -> list[str]:
    """Return the lines of a field."""
    if isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        return [f"{name}:", *(line for item in value for line in _item(name, item))]
    if not isinstance(value, Mapping):
        return [on_one_line(name, value)]
    flow = on_one_line(name, value)
    if not value or (name not in _BLOCKS and len(flow) <= _WIDTH):
        return [flow]
    return [f"{name}:", *(f"  {pair}" for pair in _pairs(name, value))]


def _item(field: str, item: Mapping[str, Any]) -> list[str]:
    """Return the lines of a list item: a single line, or several with the text folded."""
    if not isinstance(item.get("text"), str):
        return [f"  - {_value(field, item)}"]
    found: list[str] = []
    for name, value in item.items():
        if name == "text" and _folds(value):
            folded = textwrap.wrap(value, _TEXT_WIDTH, break_long_words=False, break_on_hyphens=False)
            found += ["text: >-", *(f"  {line}" for line in folded)]
        else:
            found += _pairs(field, {name: value})
    first, *others = found
    return [f"  - {first}", *(f"    {line}" for line in others)]


def _folds(text: str) -> bool:
    """Return whether folding keeps a text unchanged."""
    return text == " ".join(text.split()) and bool(text)


def _value(name: str, value: Any) -> str:
    """Format the value of a field, given by its dotted path, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(_pairs(name, value)) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(name, item) for item in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False) if name in QUOTED else _scalar(value)
    text = as_text(value)
    # Data files limit the number of digits; an exponent needs fewer.
    return repr(value) if isinstance(value, float) and len(text) > 18 else text


def _pairs(name: str, value: Mapping[str, Any]) -> list[str]:
    return [f"{_scalar(key)}: {_value(f'{name}.{key}', inner)}" for key, inner in value.items()]


def _scalar(text: str) -> str:
    """Return a text, in quotes if a YAML parser could read it as something else."""
    inside = _read(f"[{text}, {{{text}: 0}}]")
    # A hyphen alone is text inside braces, but begins a list on a line.
    on_a_line = _read(f"a: {text}")
    if inside == (text, {text: 0}) and on_a_line == {"a": text} and _is_plain_elsewhere(text):
        return text
    return json.dumps(text, ensure_ascii=False)


def _read(text: str) -> Any:
    """Return the value of a YAML text; None if it is invalid."""
    document = read_yaml(text.encode("utf-8", "surrogatepass"))
    return None if document.problems else document.data


def _is_plain_elsewhere(text: str) -> bool:
    """Return whether YAML 1.1, in which ``no`` and ``1_000`` are not text, reads a text or a date."""
    tag = _YAML_1_1.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return tag == "tag:yaml.org,2002:str" or re.fullmatch(r"\d{4}-\d\d-\d\d", text) is not None


# -- ids


def is_id(text: str) -> bool:
    """Return whether a text is a valid id, and so a valid name for a run file.

    >>> is_id("a-1"), is_id("../a"), is_id("a" * 81)
    (True, False, False)
    """
    return re.fullmatch(SLUG, text) is not None and len(text) <= MAX_ID_LENGTH


def slug(text: str) -> str:
    """Turn a text into an id; empty if an id can contain none of its characters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def suggested_id(
    model: str, task: str, gpus: int | None, gpu: str | None, more: str = "", taken: Container[str] = ()
) -> str:
    """Return an id for a run, built like the ids of the recorded runs.

    Args:
        model: the model, with or without its owner; the suffix ``-Instruct`` is omitted.
        task: the algorithm and variant.
        gpus: the number of GPUs; None if unknown.
        gpu: the type of the GPUs; None if unknown.
        more: a distinction from similar runs, such as the backend.
        taken: the existing ids; ``more``, and then a number, is added until the id is free.

    >>> suggested_id("Qwen/Qwen2.5-7B-Instruct", "GRPO-LoRA", 1, "H100")
    'qwen2-5-7b-grpo-lora-1xh100'
    >>> suggested_id("m", "GRPO", 8, None, "megatron", {"m-grpo-8-gpus", "m-grpo-8-gpus-megatron"})
    'm-grpo-8-gpus-megatron-2'
    >>> suggested_id("m", "GRPO", None, "H100"), suggested_id("m", "GRPO", None, None)
    ('m-grpo-h100', 'm-grpo')
    """
    name = _model_slug(model)
    kind = slug(gpu or "")
    known = f"{gpus}x{kind}" if kind else f"{gpus}-gpus"
    ending = slug(f"{task}-{kind if gpus is None else known}")
    most = MAX_ID_LENGTH
    first = f"{name[: most - 30 - len(ending)].strip('-') or 'run'}-{ending}"[:most].strip("-")
    longer = f"{first}-{slug(more)}"[:most].strip("-") if slug(more) else first
    numbered = (f"{longer[: most - 6].strip('-')}-{number}" for number in count(2))
    return next(name for name in chain((first, longer), numbered) if name not in taken)


def _model_slug(name: str) -> str:
    """Return the beginning of the ids of a model's runs."""
    return slug(name.rsplit("/", 1)[-1].removesuffix("-Instruct"))
