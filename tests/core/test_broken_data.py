"""Each mistake in a data file gives its problems: place, level, code, and the words that matter."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from sphinx_verl_resources.commands import main

ENTRIES, VALUES = (
    yaml.safe_load(Path(__file__).with_name(name).read_text("utf-8"))
    for name in ("broken_data.yaml", "values.yaml")
)
#: Whether a value is right, a line of a run file, and the values.
LINES = [
    (good, line, values)
    for good in (False, True)
    for line, values in VALUES["accepted" if good else "refused"].items()
]
CHANGES = [
    (good, change) for good in (False, True) for change in VALUES["schema"]["accepted" if good else "refused"]
]
RUN = """\
id: a
size: 7B
tag: MIN
model: Qwen/Qwen2.5-7B-Instruct
task: GRPO
gpus: {count: 2, type: H100}
train: fsdp
infer: {engine: vllm, version: "0.8.3"}
"""


def folder_of(entry) -> str:
    """Return the name of an entry's data directory."""
    return re.sub(r"\W+", "-", entry["name"].lower())


def pattern(entry, text: str) -> str:
    """Return the regular expression of a line of ``check`` for a line of the table."""
    path = re.escape(f"{folder_of(entry)}/{entry.get('file', 'runs/a.yaml')}:")
    if re.match(r"\d+:\d+: ", text):
        return path + re.escape(text)
    place, level, code, words = re.fullmatch(r"(\S+) (\S+) (\S+): (.*)", text).groups()
    return (
        rf"{path}{place}: {level}: .*{'.*'.join(map(re.escape, words.split(' … ')))}.* \[verl\.(?:{code})\]"
    )


def check(base: Path, *folders: str) -> list[str]:
    """Return the problems that ``check`` prints for bad directories."""
    errors = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(errors):
        patch.chdir(base)
        assert main(["check", "--output", "out.txt", *folders]) == 1
    return errors.getvalue().splitlines()


@pytest.fixture(scope="module")
def messages(tmp_path_factory) -> list[str]:
    """Return what one ``check`` of all directories prints."""
    base = tmp_path_factory.mktemp("broken")
    for entry in ENTRIES:
        folder = base / folder_of(entry)
        (folder / "runs").mkdir(parents=True)
        if "make" in entry:
            subprocess.run(entry["make"], shell=True, cwd=folder, check=True)
            continue
        old, new = entry.get("replace", ["", ""])
        assert old in RUN, entry["name"]
        file = folder / entry.get("file", "runs/a.yaml")
        file.parent.mkdir(exist_ok=True)
        file.write_text(entry.get("text", RUN.replace(old, new, 1) + entry.get("add", "")), "utf-8")
    return check(base, *map(folder_of, ENTRIES))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_problems(messages, entry):
    result = [line for line in messages if line.startswith(f"{folder_of(entry)}/")]
    wanted = [pattern(entry, text) for text in entry["says"] if text != "…"]
    others = "…" in entry["says"]
    assert others or len(result) == len(wanted), result
    for form in wanted:
        assert [line for line in result if re.fullmatch(form, line)], f"{form}\n" + "\n".join(result)


def test_every_problem_belongs_to_an_entry(messages):
    names = {folder_of(entry) for entry in ENTRIES}
    assert len(names) == len(ENTRIES)
    assert [line for line in messages if line.partition("/")[0] not in names] == []


def test_the_parser_without_libyaml_gives_the_same(tmp_path):
    """The two parsers differ only in the place of an escape, and in what they notice first in deep nesting."""
    entries = (entry for entry in ENTRIES if not re.search("deep|character", entry["name"]))
    texts = [entry["text"] for entry in entries if "text" in entry]
    code = """if 1:
        import json, sys, yaml
        if sys.argv[1] == "python":
            del yaml.CSafeLoader
        from sphinx_verl_resources.strict_yaml import read_yaml
        for text in json.load(sys.stdin):
            print(*read_yaml(text.encode(), "a.yaml").problems, sep="\\n")
    """
    commands = ([sys.executable, "-c", code, parser] for parser in ("libyaml", "python"))
    messages = (subprocess.check_output(command, input=json.dumps(texts), text=True) for command in commands)
    # Each parser has its own words.
    one, other = (re.sub("not valid YAML: [^;]*", "not valid YAML", text) for text in messages)
    assert one == other
    assert one.count("verl.") > 20


@pytest.fixture(scope="module")
def wrong(tmp_path_factory) -> set[str]:
    """Return the files with an error among the runs of all values and of all changes, with their texts."""
    base = tmp_path_factory.mktemp("values")
    (base / "data/runs").mkdir(parents=True)
    for at, (_, line, values) in enumerate(LINES):
        for index, value in enumerate(values):
            quoted = json.dumps(value, ensure_ascii=False)
            run = RUN.replace("id: a", f"id: line{at}-{index}")
            text = run + line.replace('"VALUE"', quoted).replace("VALUE", value) + "\n"
            (base / f"data/runs/line{at}-{index}.yaml").write_text(text, "utf-8")
    for at, (_, change) in enumerate(CHANGES):
        text = RUN.replace("id: a", f"id: change{at}").replace(*change)
        (base / f"data/runs/change{at}.yaml").write_text(text, "utf-8")
    return {line.split(":")[0].split("/")[-1] for line in check(base, "data") if ": ERROR: " in line}


@pytest.mark.parametrize(("at", "good"), [(at, good) for at, (good, *_) in enumerate(LINES)])
def test_values(wrong, at, good):
    _, line, values = LINES[at]
    result = [value for index, value in enumerate(values) if (f"line{at}-{index}.yaml" in wrong) == good]
    assert result == [], line


@pytest.mark.parametrize(("at", "good"), [(at, good) for at, (good, *_) in enumerate(CHANGES)])
def test_the_schema_refuses_what_the_command_refuses(wrong, root, at, good):
    schema = json.loads((root / "data/schema/run.json").read_text("utf-8"))
    text = RUN.replace(*CHANGES[at][1])
    assert text != RUN
    assert (f"change{at}.yaml" not in wrong) == good
    assert jsonschema.Draft7Validator(schema).is_valid(yaml.safe_load(text)) == good
