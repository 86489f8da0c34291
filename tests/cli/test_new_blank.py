"""``verl-resources new --blank``: a template with every field explained, which is valid once filled in."""

from __future__ import annotations

import re
from typing import get_args

import pytest
import yaml

from sphinx_verl_resources.cli import main
from sphinx_verl_resources.fields import every_field
from sphinx_verl_resources.records import Run

ANSWERS = {
    "size": "7B", "tag": "MIN", "model": "Qwen/Qwen2.5-7B-Instruct", "task": "GRPO", "count": "8", "type": "H100",
    "train": "fsdp", "engine": "vllm", "name": "Jane Doe", "url": "https://example.org/run.log",
}  # fmt: skip
NUMBERS = {
    name.rsplit(".", 1)[-1]: "1"
    for name, field in every_field().items()
    if field.schema and {int, float} & {field.schema.annotation, *get_args(field.schema.annotation)}
}
OPTIONAL = {
    **NUMBERS, "version": '"0.8.3"', "label": "Qwen2.5-7B", "ref": "2239fd0ff7210c80ad63e20581924d1f66167429",
    "path": "examples/run.sh", "text": "run.sh", "verl": '"0.8.0"', "torch": '"2.8.0"',
    "counter": "torch-max-allocated", "code": "a-remark", "about": "tag",
}  # fmt: skip


@pytest.fixture
def here(data, monkeypatch):
    monkeypatch.chdir(data.path.parent)
    return data


def blank(here, capsys, *options):
    assert main(["new", "--blank", *options]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    (path,) = (here.path / "runs").iterdir()
    return path, path.read_text("utf-8"), out


def filled(text, answers):
    def answer(match):
        return match[0].replace(match["todo"], answers.get(match["key"], "TODO"))

    return re.sub(r'(?m)^[\s#-]*(?P<key>\w+): (?P<todo>"?TODO"?)', answer, text)


def test_every_field_has_its_explanation(here, capsys):
    _, text, _ = blank(here, capsys)
    words = " ".join(re.sub(r"(?m)^#", " ", text).split())
    for name, field in every_field().items():
        if field.schema:
            assert f"{name.rsplit('.', 1)[-1]}:" in words
            assert " ".join(field.help.split()) in words


def test_required_fields_are_todo_and_others_are_comments(here, capsys):
    path, text, out = blank(here, capsys)
    run = yaml.safe_load(text)
    required = {name for name, field in Run.model_fields.items() if field.is_required()}
    assert required <= {*run} == required | {"contributor", "kind", "added", "evidence"}
    assert (run["gpus"], run["infer"]) == ({"count": "TODO", "type": "TODO"}, {"engine": "TODO"})
    lines = [
        line for line in text.splitlines() if line.lstrip(" -")[:1] != "#" and "TODO" in line.split("#")[0]
    ]
    listed = re.findall(rf"(?m)^  data/runs/{path.stem}\.yaml:\d+: (.+)$", out)
    assert listed == [line.split("  # ")[0].strip() for line in lines]
    assert "no estimate: unknown model, task, train, gpus.count" in out


def test_filled_in_it_passes_the_check(here, capsys):
    path, text, _ = blank(here, capsys, "--id", "mine")
    assert path.name == "mine.yaml"
    path.write_text(filled(text, ANSWERS), "utf-8")
    assert here.problems() == []
    assert main(["check", "data"]) == 0
    assert " ERROR: " not in capsys.readouterr().err
    assert here.load().runs["mine"].gpus.count == 8


def test_with_every_optional_field_it_passes_the_check(here, capsys):
    path, text, _ = blank(here, capsys, "--id", "mine")
    fields = "|".join(Run.model_fields)
    used = re.sub(rf"(?m)^# (?=  |(?:{fields}):)|^( +)# ", r"\1", text)
    whole = filled(used, {**OPTIONAL, **ANSWERS})
    # Evidence has an address or a place; GPUs have a type or a memory size.
    whole = re.sub(r"(?m)^    (ref|path|lines): .*\n|^  memory_gb: .*\n", "", whole)
    path.write_text(whole, "utf-8")
    assert here.problems() == []
    run = here.load().runs["mine"]
    assert {name for name in Run.model_fields if getattr(run, name) in (None, (), {})} == set()


def test_options_fill_in_fields(here, capsys):
    options = ("--model", "Qwen2.5-7B-Instruct", "--gpus", "8*H100", "--task", "GRPO", "--train", "fsdp")
    path, text, out = blank(here, capsys, *options)
    assert path.name == "qwen2-5-7b-grpo-8xh100.yaml"
    run = yaml.safe_load(text)
    assert (run["model"], run["size"], run["gpus"]) == (
        "Qwen/Qwen2.5-7B-Instruct",
        "7B",
        {"count": 8, "type": "H100"},
    )
    assert "estimate: " in out
