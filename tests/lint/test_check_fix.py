"""``verl-resources check --fix``: repairs, their messages, and unchanged files."""

from __future__ import annotations

import json

import pytest

from sphinx_verl_resources.cli import main
from sphinx_verl_resources.git import GitError, open_repository
from sphinx_verl_resources.lint.check import RULES
from sphinx_verl_resources.lint.repairs import repaired

FIXABLE = [rule.code.name for rule in RULES if rule.fixable == "yes"]


@pytest.mark.parametrize("code", FIXABLE)
def test_what_the_reference_calls_repairable_is_repaired(code, root, checked, capsys, monkeypatch):
    """The example of the rule breaks it, and breaks no rule after the repair."""
    for path in (root / "docs/rules" / code / "data").rglob("*.yaml"):
        checked.write(
            path.relative_to(root / "docs/rules" / code / "data").as_posix(), path.read_text("utf-8")
        )
    checked.add_schemas()
    assert code in checked.codes()
    monkeypatch.chdir(checked.path)
    assert main(["check", "--fix"]) == 0
    out, err = capsys.readouterr()
    assert ": repaired: " in err
    assert out.startswith("data: ")
    assert checked.codes() == []
    assert main(["check", "--fix"]) == 0
    assert capsys.readouterr().err == "", "nothing is left to repair"


def test_the_example_of_the_documentation(root):
    before, after = (
        (root / f"docs/examples/repairs/{name}.yaml").read_text("utf-8") for name in ("before", "after")
    )
    assert repaired(before, "qwen2-5-7b-grpo-lora-1xh100")[0] == after != before


def test_nothing_is_written_where_the_checkout_gives_no_answer(checked, verl, monkeypatch, capsys):
    """The first file could be repaired, but is not, because the second cannot be checked."""
    repository = verl({"a.sh": ""})
    checked.write("runs/a.yaml", checked.run_text(id="z"))
    checked.run("b", script={"ref": "main", "path": "a.sh"})
    before = (checked.path / "data/runs/a.yaml").read_bytes()
    monkeypatch.chdir(checked.path)
    monkeypatch.setattr(type(repository), "has", _no_answer)
    assert main(["check", "--fix", "--repo", "verl"]) == 2
    assert capsys.readouterr().err == "verl-resources: verl: lacks the files\n"
    assert (checked.path / "data/runs/a.yaml").read_bytes() == before


def _no_answer(*_arguments):
    raise GitError("verl: lacks the files")


def test_everything_else_stays_byte_for_byte(checked, monkeypatch, capsys):
    text = (
        "\ufeff# Mine.\r\nid: b   # the id\r\nsize:   7B\r\nmodel: Qwen/Qwen2.5-7B-Instruct\r\n"
        "# its tag\r\ntag: MIN\r\ntask: GRPO\r\ngpus: { count: 2, type: 'H100' }\r\ntrain: fsdp\r\n"
        "infer: {engine: vllm, version: 0.8.3}\r\n"
    )
    checked.add_schemas()
    checked.write("runs/a.yaml", "")
    path = checked.path / "data/runs/a.yaml"
    path.write_bytes(text.encode())
    path.chmod(0o640)
    monkeypatch.chdir(checked.path)
    main(["check", "--fix", "data/runs/a.yaml"])
    assert path.read_bytes().decode() == (
        "\ufeff# yaml-language-server: $schema=../schema/run.json\r\n# Mine.\r\nid: a   # the id\r\nsize:   7B\r\n"
        "model: Qwen/Qwen2.5-7B-Instruct\r\n# its tag\r\ntag: MIN\r\ntask: GRPO\r\ngpus: { count: 2, type: 'H100' }\r\n"
        'train: fsdp\r\ninfer: {engine: vllm, version: "0.8.3"}\r\n'
    )
    assert path.stat().st_mode & 0o777 == 0o640
    assert [
        line.split(" repaired: ") for line in capsys.readouterr().err.splitlines() if "repaired" in line
    ] == [
        ["data/runs/a.yaml:1:", "schema line added"],
        ["data/runs/a.yaml:2:", "id 'b' changed to 'a', the file name"],
        ["data/runs/a.yaml:10:", "infer.version quoted"],
    ]


def test_only_what_is_asked_for_is_changed(checked, monkeypatch, capsys):
    for name in ("a", "b"):
        checked.write(f"runs/{name}.yaml", f"id: {name}\nsize: 7B\n")
    checked.add_schemas()
    checked.write("gpus.yaml", "gpus: []\n")
    monkeypatch.chdir(checked.path)
    assert main(["check", "--fix", "data/runs/b.yaml"]) == 1
    assert "$schema" not in (checked.path / "data/runs/a.yaml").read_text()
    assert "$schema" in (checked.path / "data/runs/b.yaml").read_text()
    assert "$schema" not in (checked.path / "data/gpus.yaml").read_text()
    assert main(["check", "--fix", "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out[out.index("[") :]), "what is repaired is said elsewhere"
    assert "data/gpus.yaml:1: repaired: schema line added\n" in err


def test_no_schema_line_is_added_where_no_schema_is(checked, monkeypatch, capsys):
    checked.write("runs/a.yaml", "id: b\nsize: 7B\n")
    monkeypatch.chdir(checked.path)
    main(["check", "--fix"])
    assert (checked.path / "data/runs/a.yaml").read_text() == "id: a\nsize: 7B\n"


def test_branches_are_pinned_in_a_checkout_only(checked, verl, monkeypatch, capsys):
    repository = verl({"examples/a.sh": "echo\n"})
    commit = repository.commit("main")
    branch = "main"
    checked.run(script={"ref": branch, "path": "examples/a.sh"})
    checked.run("b", script={"ref": branch, "path": "examples/none.sh"}, gpus={"count": 4, "type": "H100"})
    before = (checked.path / "data/runs/a.yaml").read_text()
    monkeypatch.chdir(checked.path)
    assert main(["check", "--fix"]) == 0
    assert (checked.path / "data/runs/a.yaml").read_text() == before
    main(["check", "--fix", "--repo", str(repository.path)])
    assert f"script.ref: {branch!r} replaced with {commit}" in capsys.readouterr().err
    after = (checked.path / "data/runs/a.yaml").read_text()
    assert after.replace(commit, branch) == before
    assert f"ref: {branch}" in (checked.path / "data/runs/b.yaml").read_text(), "it has no such file"
    assert checked.codes(open_repository(str(repository.path), "verl")) == ["moving_ref", "unknown_path"]


def test_the_dataset_of_the_package_is_not_changed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--fix"]) == 2
    assert "--fix does not change the bundled dataset; give a data directory" in capsys.readouterr().err


def test_no_yaml_is_left_as_it_is(checked, monkeypatch, capsys):
    checked.write("runs/a.yaml", "id: [\n")
    monkeypatch.chdir(checked.path)
    assert main(["check", "--fix"]) == 1
    assert (checked.path / "data/runs/a.yaml").read_text() == "id: [\n"
    assert "repaired" not in capsys.readouterr().err


def test_good_data_are_not_written(checked, monkeypatch):
    checked.run()
    path = checked.path / "data/runs/a.yaml"
    before = path.stat()
    monkeypatch.chdir(checked.path)
    assert main(["check", "--fix"]) == 0
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
