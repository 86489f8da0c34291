"""Random pages: every directive and role, with its own and other options, inside other markup."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from random import Random
from typing import TYPE_CHECKING

from security.fuzz.inputs import ROOT
from security.fuzz.mutations import NUMBERS, ODD, YAML_WORDS, any_value, mutated, yaml_text

from sphinx_verl_resources.sphinx_ext.directives import every_directive
from sphinx_verl_resources.sphinx_ext.directives.what_if import VerlWhatIf

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest

ROLES = ("run", "gpu", "model", "size", "memory", "data")
#: Options that keep a directive from computing for a minute.
_NEEDED = {
    "verl-fewest": {"sizes": "7B", "memory": "80"},
}
_WORDS = (
    "7B", "8B", "0.5B", "H100", "8*H100", "H100, H20", "Qwen/Qwen3-8B", "qwen2-5-7b-grpo-lora-1xh100", "GRPO", "fsdp", "vllm", "model task gpus",
    "settings.data.x", "-gpus", "table, chart", "none", "80", "1024 8192", "MIN", "tested", "8B, after FSDP", "8B, KV cache", "batch size",
    "runs", "last-updated", "text <7B>", "~Qwen/Qwen2.5-7B-Instruct", "!x", "v0.4.0", "a" * 3_000, "7B " * 400, "", " ", "x\n   y",
)  # fmt: skip
_VERL_KEYS = (
    "data.max_response_length", "data.train_batch_size", "algorithm.adv_estimator", "actor_rollout_ref.actor.use_dynamic_bsz", "trainer.nnodes",
    "actor_rollout_ref.rollout.tensor_model_parallel_size", "actor_rollout_ref.rollout.gpu_memory_utilization", "a.b", "data.bananas", "data",
)  # fmt: skip
#: Markup around a block, with its indentation.
_AROUND = (
    ("", ""), ("", ""), ("", ""), ("- item\n\n", "  "), ("1. item\n\n", "   "), (".. note::\n\n", "   "), ("\n", "   "),
    (".. list-table::\n\n   * - ", "       "), (".. table:: A\n\n   === ===\n   a   b\n   === ===\n   c   ", "       "),
    (".. only:: html\n\n", "   "), ("term\n", "   "), (".. container:: x\n\n", "   "), (".. |s| replace:: x\n\n", ""),
    (".. [1]\n", "   "), (".. verl-runs:: 7B\n\n", "   "), (".. figure:: x.png\n\n", "   "), (".. code-block:: rst\n\n", "   "),
    ("Text\n\n.. _label:\n\n", ""), (".. math::\n\n", "   "), (".. tabularcolumns:: l\n\n", ""), ("Section\n-------\n\n", ""),
)  # fmt: skip


@cache
def snippets() -> tuple[str, ...]:
    """The examples of the documentation and of the tests."""
    folders = (ROOT / "docs/snippets", ROOT / "tests/builds/snippets")
    return tuple(path.read_text("utf-8") for folder in folders for path in sorted(folder.glob("*.rst")))


@cache
def _known_values() -> Mapping[str, tuple[str, ...]]:
    """The values of each option in the examples."""
    found: dict[str, list[str]] = {}
    for text in snippets():
        for name, value in re.findall(r"^   :([a-z-]+): *(.*)$", text, re.MULTILINE):
            found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}


def _value(random: Random, option: str) -> str:
    known = _known_values().get(option, _WORDS)
    if random.random() < 0.6:
        return random.choice(known)
    if random.random() < 0.5:
        return random.choice((*_WORDS, *ODD, *(number[:400] for number in NUMBERS)))
    return mutated(random, random.choice(known), (*ODD, *_WORDS), _WORDS)[:4_000]


def _directive(random: Random) -> tuple[str, str, list[tuple[str, str]], str]:
    """The name, the argument, the options and the text of a directive."""
    every = every_directive()
    name = random.choice(sorted(every))
    names = sorted({option.name for form in every[name].forms().values() for option in form})
    options = {
        option: _value(random, option)
        for option in random.sample(names, min(len(names), random.choice((0, 1, 2, 3, 6))))
    }
    for option, value in _NEEDED.get(name, {}).items():
        small = random.choice((value, value, value, *(word for word in ODD), "x"))
        options[option] = small
    if random.random() < 0.1:
        options[random.choice((*_known_values(), "x", "nam"))] = _value(random, "x")
    argument = random.choice(("", "", "7B", "3B 8B", "Qwen/Qwen3-8B", "assumptions", _value(random, "x")))
    return name, argument, [*options.items()], _settings(random) if random.random() < 0.4 else ""


def _settings(random: Random) -> str:
    """A YAML body with verl's keys."""
    keys = random.sample(_VERL_KEYS, random.choice((1, 2, 4)))
    if random.random() < 0.4:
        at, odd = random.randrange(len(keys)), random.choice(ODD).encode("utf-8", "replace").decode()
        keys[at] = random.choice((keys[at] + odd, odd + keys[at], keys[at].replace(".", f".{odd}", 1)))
    text = yaml_text(
        random, {key: random.choice((8, 1024, True, "grpo", any_value(random, (1, "x")))) for key in keys}
    )
    return (
        mutated(random, text, (*YAML_WORDS, *_VERL_KEYS), (text,))[:5_000]
        if random.random() < 0.4
        else text[:5_000]
    )


def _indented(text: str, by: str) -> str:
    return "\n".join(by + line if line.strip() else line for line in text.split("\n"))


def _block(random: Random, suffix: str) -> str:
    """A directive, a role, or a changed example."""
    kind = random.random()
    if kind < 0.2:
        role, inner = random.choice(ROLES), random.choice((*_WORDS, *ODD, _value(random, "x")))
        fits = inner.replace("`", "'").replace("\n", " ")
        return (
            f"Text {{verl:{role}}}`{fits}` text.\n"
            if suffix == "md"
            else f"Text :verl:{role}:`{fits}` text.\n"
        )
    if kind < 0.35 and suffix == "rst":
        text = random.choice(snippets())
        if keys := [*re.finditer(r"^   [a-z_][\w.]*(?=:)", text, re.MULTILINE)]:
            at = random.choice(keys)
            return text[: at.end()] + random.choice(ODD) + text[at.end() :]
        return mutated(
            random, text, (*_WORDS, *ODD, ":name: x\n", ".. verl-runs::\n", ":verl:run:`x`"), snippets()
        )
    name, argument, options, body = _directive(random)
    argument = argument.replace("\n", " ") if suffix == "md" else argument
    lines = [f":{option}: {value}".replace("\n", "\n      ") for option, value in options]
    if suffix == "md":
        return "\n".join((f"```{{{name}}} {argument}", *lines, "", body, "```", ""))
    return "\n".join(
        (f".. {name}:: {argument}", *(f"   {line}" for line in lines), "", _indented(body, "   "), "")
    )


def small_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the default choices of the form: all of them take a minute, and invalid options use the default."""
    values = {"models": ("Qwen/Qwen2.5-7B",), "gpus": ("H100",), "counts": (8,), "responses": (1024,)}
    takes = tuple(replace(option, value=values[option.name]) for option in VerlWhatIf.takes)
    monkeypatch.setattr(VerlWhatIf, "takes", takes)


def page(seed: int, number: int) -> tuple[str, str]:
    """The name of a page and its text; one in five is MyST."""
    random = Random(f"page {seed} {number}")
    suffix = "md" if random.random() < 0.2 else "rst"
    blocks = []
    for _ in range(random.choice((1, 1, 2, 3))):
        text = _block(random, suffix)
        if suffix == "md":
            text = random.choice(
                (
                    text,
                    text,
                    "\n".join(f"> {line}" for line in text.split("\n")),
                    f"````{{eval-rst}}\n{_block(random, 'rst')}\n````\n",
                )
            )
        else:
            head, by = random.choice(_AROUND)
            text = (
                head + _indented(text, by).lstrip()
                if head.endswith((" ", "- "))
                else head + _indented(text, by)
            )
        blocks.append(text)
    title = (
        f"---\norphan: true\n---\n\n# Page {number}\n\n"
        if suffix == "md"
        else f":orphan:\n\nPage {number}\n=========\n\n"
    )
    text = title + "\n\n".join(blocks) + "\n"
    return f"page{number}.{suffix}", text.encode("utf-8", "replace").decode()


def bodies(seed: int, numbers: Sequence[int]) -> dict[str, str]:
    """Pages by name."""
    return dict(page(seed, number) for number in numbers)
