"""File names do not affect the results: they are only escaped in messages."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.diagnostics import Location

#: A run with mistakes.
RUN = "id: b\nsize: 9B\ninfer: {engine: vllm, version: 0.8}\n"
ODD = [
    "a\u200b",
    "a:1:1",
    "ü",
    "a\nb",
    "b\udcff",
    "a\\u200b",
    "a b",
    " a",
    "a\t",
    "\u202ea",
    "a: ERROR: x",
    "$a",
    "a%3A",
    "-a",
    "a.yaml",
]
#: Parts of names, without slashes and null characters; names that begin with a dot are not read.
parts = st.sampled_from(["a", "b", ".", ":", "1", "\u200b", "\u202e", "\udcff", "\udc80", "ü", "\n", "\t", " ", "\\", "x3a", "%", "'", '"', "*", "[", "-", "#", "🙂"])  # fmt: skip
names = st.lists(parts, min_size=1, max_size=5).map("".join).filter(lambda name: not name.startswith("."))


def printed(*words: str) -> tuple[str, str]:
    """Return the output of a command."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        assert main(["check", *words]) in (0, 1)
    return out.getvalue(), err.getvalue()


def problems(*words: str) -> list[dict[str, object]]:
    """Return the problems from ``check``."""
    return json.loads(printed("--format", "json", "--", *words)[0])


def look(directory: str, stems: list[str]) -> None:
    """Compare ``check FILE`` with ``check DIRECTORY`` for each file."""
    paths = [str(Path(directory, "runs", f"{stem}.yaml")) for stem in stems]
    Path(directory, "runs").mkdir(parents=True)
    for path in paths:
        Path(path).write_text(RUN)
    every = problems(directory)
    for path in paths:
        found = problems(path)
        assert found == [problem for problem in every if problem["path"] == path]
        assert len(found) > 3
        assert problems(f"./{path}") == found
    whole = printed("--", directory)[1].splitlines()
    assert sorted({place(line) for line in whole}) == sorted({Location(path).shown_path for path in paths})


def place(line: str) -> str:
    """Return the file of a message, as any program would parse it."""
    assert line.isprintable()
    return re.split(r":\d+:\d+: ", line, maxsplit=1)[0]


@pytest.mark.slow
def test_the_examples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    look("data", ODD)
    look("d\udcff", ["a", "b"])


@given(names, names)
def test_no_two_names_look_alike(one, other):
    assert (Location(one).shown_path == Location(other).shown_path) == (one == other)


@pytest.mark.parametrize(
    ("stem", "shown", "remedy"),
    [
        ("ü", "ü", "rename the file to b.yaml"),
        ("a\u200b", r"a\u200b", "rename both, for example to a"),
        ("a:1:1", r"a\x3a1\x3a1", "rename both, for example to a-1-1"),
        ("d\udcff", r"d\udcff", "rename both, for example to d"),
    ],
)
def test_a_message_about_a_name(data, stem, shown, remedy):
    data.run("b").rename(data.path / f"runs/{stem}.yaml")
    (problem,) = data.problems()
    assert problem.startswith(f"data/runs/{shown}.yaml:1:5: ERROR: id: 'b' differs from the file name ")
    assert problem.endswith(f"; {remedy} [verl.id_mismatch]")


@pytest.mark.parametrize("key", ["trainer.nno\u200bdes", "\u200b", "tr\u202eainer"])
def test_a_key_with_invisible_characters_below_a_directive(project, key):
    written = key.encode("unicode_escape").decode()
    built = project.page(
        f'.. verl-memory::\n   :model: Qwen/Qwen2.5-7B\n   :gpus: 8*H100\n\n   "{written}": 2\n   trainer: {{"{written}": 1}}\n'
    ).build()
    assert any(f"index.rst:{line}" in text for text in built.warnings for line in (8, 9)), built.warnings
    assert "Traceback" not in "".join(built.warnings)
