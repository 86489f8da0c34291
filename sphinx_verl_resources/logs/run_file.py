"""The text of run files, and of issues about runs: ids, order of the fields, quotes and line breaks."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from importlib import metadata
from typing import Any
from urllib.parse import urlencode

import yaml

from ..records import Run
from ..selection import as_text
from ..strict_yaml import read_yaml

#: Marks a value to fill in.
TODO = "TODO"
#: The first line, for editors; the schema's path is relative to the folder of run files.
SCHEMA_LINE = "# yaml-language-server: $schema=../schema/run.json"
_MAX_ID = 80
#: Texts that look like numbers and are quoted, and fields that always have a line for each key.
_QUOTED = {"infer.version", "versions.verl", "versions.torch", "evidence.lines"}
_BLOCKS = {"script", "settings"}
#: The width of a line, and of folded text.
_WIDTH, _TEXT_WIDTH = 115, 88
#: Reads unquoted scalars as most other programs do.
_RESOLVER = yaml.resolver.Resolver()
#: Fields that the issue form does not have.
_NOT_ASKED = {"id", "size", "kind", "added"}
#: Hints for fields without examples in the schema.
_HINTS = {
    "tag": "MIN: settings that save memory, or the least hardware; RECOMMENDED: faster than recorded runs",
    "contributor": "for example {name: Jane Doe, url: https://github.com/janedoe}",
    "versions": 'for example {verl: "0.8.0"}',
    "evidence": "for example https://example.org/run.log, where others can check the run",
}


def run_text(fields: Mapping[str, Any]) -> str:
    """Return the text of a run file, which loads as ``fields``, in the order of the schema.

    A field with a TODO has an example in a comment.

    >>> print(run_text({"task": "TODO", "id": "a", "infer": {"engine": "vllm", "version": "0.8.3"}}), end="")
    # yaml-language-server: $schema=../schema/run.json
    id: a
    task: TODO  # for example GRPO
    infer: {engine: vllm, version: "0.8.3"}
    """
    lines = [SCHEMA_LINE]
    for name in sorted(fields, key=[*Run.model_fields, *fields].index):
        *others, last = lines_of(name, fields[name])
        if TODO in last and name in Run.model_fields:
            examples = Run.model_fields[name].examples or [""]
            last += f"  # {_HINTS.get(name) or f'for example {_flow(name, examples[0])}'}"
        lines += [*others, last]
    return "\n".join(lines) + "\n"


def lines_of(name: str, value: Any) -> list[str]:
    """Return the lines of a field."""
    flow = f"{name}: {_flow(name, value)}"
    if isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        return [f"{name}:", *(line for item in value for line in _item(name, item))]
    if isinstance(value, Mapping) and value and (name in _BLOCKS or len(flow) > _WIDTH):
        return [f"{name}:", *(f"  {pair}" for pair in _pairs(name, value))]
    return [flow]


def _item(name: str, item: Mapping[str, Any]) -> list[str]:
    """Return the lines of an item: one, or one for each key if it has a text, which is folded."""
    text = item.get("text")
    lines = _pairs(name, item) if isinstance(text, str) else [_flow(name, item)]
    if text and isinstance(text, str) and text == " ".join(text.split()):  # folding keeps it as it is
        at = [*item].index("text")
        text_lines = textwrap.wrap(text, _TEXT_WIDTH, break_long_words=False, break_on_hyphens=False)
        lines[at : at + 1] = ["text: >-", *(f"  {line}" for line in text_lines)]
    return [f"{'    ' if at else '  - '}{line}" for at, line in enumerate(lines)]


def _pairs(name: str, value: Mapping[str, Any]) -> list[str]:
    return [f"{_scalar(key)}: {_flow(f'{name}.{key}', inner)}" for key, inner in value.items()]


def _flow(name: str, value: Any) -> str:
    """Format the value of a field, given by its dotted path, on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(_pairs(name, value))}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_flow(name, item) for item in value)}]"
    if isinstance(value, str):
        is_quoted = name in _QUOTED and value != TODO
        return json.dumps(value, ensure_ascii=False) if is_quoted else _scalar(value)
    # A long number needs an exponent.
    return repr(value) if isinstance(value, float) and len(as_text(value)) > 18 else as_text(value)


def _scalar(text: str) -> str:
    """Return a text, in quotes if a parser of YAML 1.1 or 1.2 could read it as something else."""
    places = {f"[{text}, {{{text}: 0}}]": (text, {text: 0}), f"a: {text}": {"a": text}}
    is_same = all(read_yaml(place.encode("utf-8", "replace")).data == data for place, data in places.items())
    tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    is_text = tag.endswith(":str") or re.fullmatch(r"\d{4}-\d\d-\d\d", text)
    return text if is_same and is_text else json.dumps(text, ensure_ascii=False)


def suggested_id(fields: Mapping[str, Any]) -> str:
    """Return an id built like those of the recorded runs, from the fields that are known.

    >>> gpus = {"count": 1, "type": "H100"}
    >>> suggested_id({"model": "Qwen/Qwen2.5-7B-Instruct", "task": "GRPO-LoRA", "gpus": gpus})
    'qwen2-5-7b-grpo-lora-1xh100'
    >>> suggested_id({"model": "TODO", "task": "GRPO", "gpus": {"count": 8, "type": "TODO"}})
    'run-grpo-8-gpus'
    """
    gpus = fields["gpus"]
    values = (fields["model"], fields["task"], gpus.get("count"), gpus.get("type"))
    model, task, count, kind = ("" if value in (None, TODO) else str(value) for value in values)
    name = model.rsplit("/", 1)[-1].removesuffix("-Instruct") or "run"
    number = f"{count}x{kind}" if count and kind else kind or (f"{count}-gpus" if count else "")
    text = re.sub("[^a-z0-9]+", "-", f"{name} {task} {number}".lower()).strip("-")
    return text[:_MAX_ID].strip("-") or "run"


def form_address(fields: Mapping[str, Any]) -> str | None:
    """Return the address of the repository's issue form, filled in with fields of a run.

    None if the package's metadata do not name the repository.
    """
    urls = metadata.metadata("sphinx-verl-resources").get_all("Project-URL") or []
    issues = next((url.partition(", ")[2] for url in urls if url.startswith("Issues, ")), None)
    query = {"template": "run.yml", "title": f"Run: {fields['id']}"}
    for name, value in fields.items():
        text = "\n".join(lines_of(name, value)).removeprefix(f"{name}:")
        if name not in _NOT_ASKED and TODO not in text:
            query[name] = textwrap.dedent(text.removeprefix("\n")).strip()
    return issues and f"{issues}/new?{urlencode(query)}"
