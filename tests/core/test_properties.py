"""Any text in any field, and any damage of a file: problems with places, or the text as it was typed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tempfile
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.strict_yaml import read_yaml

FIELDS = yaml.safe_load(Path(__file__).with_name("values.yaml").read_text("utf-8"))["fields"]
PARTS = ["null", "- ", ": ", "{", "]", ", ", "!!int ", "&a ", "*a", "<<: ", "|", "---\n", "#", "%x", "'", '"', "`", "\\", "\t", "\n",
    "\r", " ", "x", "8", "1e400", "9" * 400, "\u202e", "\u200b", "\x00", "\x1b[0m", "\x85", "\U000e0041", "::error::", "<b>", "TODO",
    "a@b.c", "[verl.x]", "a.yaml:1:1: ERROR: "]  # fmt: skip
#: Words that are special to YAML, terminals and messages, and any others.
texts = st.lists(st.sampled_from(PARTS) | st.text(max_size=5), max_size=5).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def printed(*arguments: str) -> tuple[int, str, list[str]]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main([*arguments])
    return code, out.getvalue(), err.getvalue().split("\n")[:-1]


def assert_problems(lines: list[str], folder: str, *names: str) -> None:
    """Each line has a place in one of the files, a level and a code, and nothing that commands a terminal."""
    for line in lines:
        assert line.isprintable(), line
        match = re.match(r"(.+):[1-9]\d*:[1-9]\d*: (?:ERROR|WARNING): .+ \[verl\.[a-z_0-9]+\]\Z", line)
        assert match, line
        assert match[1].startswith(tuple(f"{os.path.relpath(folder)}/{name}" for name in names)), line


@given(st.lists(texts, min_size=5, max_size=5), st.booleans())
def test_any_text_in_any_field(found, quoted):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "runs").mkdir()
        for index, text in enumerate(found):
            written = json.dumps(text, ensure_ascii=index % 2 == 0) if quoted else text
            Path(folder, f"runs/{index}.yaml").write_text(
                FIELDS.replace("VALUE", written), "utf-8", "replace"
            )
            Path(folder, "gpus.yaml").write_text(
                f"gpus:\n- {{name: {written}, vendor: {written}, {written}: 1}}\n", "utf-8", "replace"
            )
        code, out, lines = printed("check", folder)
        assert (code, " 5 runs, " in out) == (1, True)
        assert_problems(lines, folder, "gpus.yaml", *(f"runs/{index}.yaml" for index in range(5)))
        assert {line.split("runs/")[1][0] for line in lines if "/runs/" in line} == {*"01234"}


@given(texts)
def test_a_text_is_refused_or_shown_as_typed(text):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "runs").mkdir()
        values = {"task": text, "label": text, "settings": {"data.x": text}}
        fields = {
            "id": "a",
            "size": "7B",
            "tag": "MIN",
            "model": "Qwen/Qwen2.5-7B",
            "gpus": {"count": 2, "type": "H100"},
            "train": "fsdp",
            "infer": None,
            "kind": "stated",
        }
        Path(folder, "runs/a.yaml").write_text(
            json.dumps({**fields, **values}, ensure_ascii=False), "utf-8", "replace"
        )
        code, out, lines = printed(
            "table", folder, "--format", "json", "--columns", "task,model,settings.data.x"
        )
        assert_problems(lines, folder, "runs/a.yaml")
        shown = [{"task": text, "model": text, "settings.data.x": text}]
        assert json.loads(out) == ([] if code else shown)
        assert bool(lines) == bool(code)


@given(st.data())
def test_any_damage_gives_a_run_or_problems(root, data):
    content = (root / "data/runs/qwen2-5-32b-grpo-8xh20.yaml").read_bytes()
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 40)))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "runs").mkdir()
        path = Path(folder, "runs/qwen2-5-32b-grpo-8xh20.yaml")
        path.write_bytes(content[:start] + data.draw(st.binary(max_size=10)) + content[end:])
        code, out, lines = printed("table", folder, "--format", "json", "--columns", "id")
        assert_problems(lines, folder, "runs/qwen2-5-32b-grpo-8xh20.yaml")
        assert lines or (code, len(json.loads(out))) == (0, 1)


def plain(value):
    """Return a value with tuples as lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@given(values)
def test_values_come_back_from_yaml(value):
    document = read_yaml(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), "a.yaml")
    assert document.problems or plain(document.data) == value


@given(st.binary(max_size=200) | texts.map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_read(content):
    document = read_yaml(content, "a.yaml")
    for problem in document.problems:
        assert re.match(r"a\.yaml:[1-9]\d*:[1-9]\d*: ERROR: ", str(problem))
        assert str(problem).isprintable()
