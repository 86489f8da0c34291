"""Rules for the text of a file."""

from __future__ import annotations

import pytest

LINE = "# yaml-language-server: $schema=../schema/run.json\n"


def text(checked, line=LINE, old="", new="") -> None:
    """A valid run with a different first line or a replacement."""
    checked.run()
    good = (checked.path / "data/runs/a.yaml").read_text("utf-8")
    assert good.startswith(LINE)
    changed = line + good.removeprefix(LINE)
    assert old in changed
    checked.write("runs/a.yaml", changed.replace(old, new))


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        "# yaml-language-server: $schema=https://example.org/schema/run.json\n",
        LINE.replace("\n", "  \r\n"),
    ],
)
def test_schema_lines_that_lead_there(checked, line):
    text(checked, line)
    assert checked.problems() == []


@pytest.mark.parametrize(
    ("line", "place", "message"),
    [
        ("", "1:1", "the first line does not point to the schema"),
        ("# a remark\n" + LINE, "1:1", "the first line does not point to the schema"),
        (
            LINE.replace("run", "gpus"),
            "1:33",
            "the first line points to a different schema, '../schema/gpus.json'",
        ),
    ],
)
def test_schema_lines_that_do_not(checked, line, place, message):
    checked.add_schemas()
    text(checked, line)
    (found,) = checked.problems()
    assert found.startswith(f"data/runs/a.yaml:{place}: WARNING: {message}")


def test_no_line_is_asked_for_where_no_schema_is(checked):
    text(checked, "")
    assert checked.codes() == []
    text(checked, LINE.replace("run", "gpus"))
    assert checked.codes() == ["schema_line"]
    text(checked, "")
    checked.write("schema/run.json", "{}")
    assert checked.codes() == ["schema_line"]


def test_registries_lead_to_their_own_schema(checked):
    checked.add_schemas()
    card = "gpus:\n  - {name: H100-80GB, vendor: nvidia, memory_gb: 80, memory_mib: 81559, kind: reading}\n"
    checked.run()
    checked.write("gpus.yaml", f"# yaml-language-server: $schema=schema/gpus.json\n{card}")
    assert checked.codes() == []
    checked.write("gpus.yaml", card)
    (found,) = checked.problems()
    assert found.endswith(
        "begin the file with # yaml-language-server: $schema=schema/gpus.json [verl.schema_line]"
    )


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ('"0.8.3"', "'0.8.3'", []),
        ('version: "0.8.3"', "version: 0.8.3", ["unquoted_version"]),
        ('verl: "0.4.0"', "verl: 49b08e950", ["unquoted_version"]),
        ('infer: {engine: vllm, version: "0.8.3"}', "infer:\n  engine: vllm\n  version: >-\n    0.8.3", []),
        ('"0.8.3"', "0.8", ["wrong_type"]),  # the loader reports it
    ],
)
def test_quotes(checked, old, new, found):
    text(checked, old=old, new=new)
    assert checked.codes() == found


def test_lines_are_quoted_too(checked):
    place = {"kind": "log", "ref": "49b08e950", "path": "a.md", "lines": "40-45"}
    checked.run(evidence=[place])
    assert checked.codes() == []
    written = (checked.path / "data/runs/a.yaml").read_text("utf-8")
    checked.write("runs/a.yaml", written.replace('"40-45"', "40-45"))
    (found,) = checked.problems()
    assert 'evidence.0.lines: 40-45 is not in quotes; write "40-45"' in found


def test_what_is_no_yaml_breaks_no_rule_of_layout(checked):
    checked.write("runs/a.yaml", "id: [\n")
    checked.write("runs/b.yaml", "")
    assert checked.codes() == ["yaml_syntax", "file_empty"]
