"""Every help text is true, its examples work, and the documentation has every command and option."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from modules import module_at

from sphinx_verl_resources.commands import COMMANDS, command_named

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "docs/_ext"))
reference_lists = module_at(ROOT / "docs/_ext/reference_lists.py")

ALL = [*map(command_named, COMMANDS)]
CASE = """\
- {id: a, framework: verl, model: Qwen/Qwen2.5-7B, gpus: {count: 8, type: H100}, outcome: fits,
   config: {algorithm.adv_estimator: grpo, actor_rollout_ref.actor.use_dynamic_bsz: true}}
"""
QWEN = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584,
    "intermediate_size": 18944, "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
    "vocab_size": 152064, "tie_word_embeddings": False, "max_position_embeddings": 32768,
}  # fmt: skip
#: The files that the examples read.
FILES = {
    "cases.yaml": CASE,
    "run.yaml": "data: {train_batch_size: 256}\ntrainer: {n_gpus_per_node: 8}\n",
    "config.json": json.dumps(QWEN),
    "run.log": "(TaskRunner pid=1) step:1 - perf/max_memory_allocated_gb:41.5 - perf/max_memory_reserved_gb:60.25\n",
    "failed.log": "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.\n",
}


@pytest.fixture
def scratch(tmp_path, monkeypatch, make_good_run_text, script):
    """Return a folder with the files of the examples, next to a checkout of verl."""
    author = ["-c", "user.name=n", "-c", "user.email=e"]
    for words in (
        ["init", "-q", "verl"],
        ["-C", "verl", *author, "commit", "-q", "--allow-empty", "-m", "Begin"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    here = tmp_path / "here"
    for folder in ("data/runs", "docs/data/runs"):
        (here / folder).mkdir(parents=True)
        settings = {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4}
        (here / folder / "a.yaml").write_text(make_good_run_text(settings=settings), "utf-8")
    for name, text in {**FILES, "run.sh": script}.items():
        (here / name).write_text(text, "utf-8")
    monkeypatch.chdir(here)
    return here


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for command in ALL for line in command.lines])
def test_examples(run, scratch, line):
    """Each example runs as written, in a folder with its files."""
    before = set(scratch.rglob("*"))
    code, out, err = run("", *shlex.split(line)[1:])
    assert (code, " ERROR: " in err) == (0, False), err
    new = {path for path in scratch.rglob("*") if path.is_file()} - before
    assert bool(new) == ("--output" in line or (" new " in line and "--dry-run" not in line))
    assert out or new


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
def test_every_help_has_examples_and_every_option_is_explained(run, capsys, command):
    with pytest.raises(SystemExit, match="0"):
        run(f"{command.name} --help")
    text = capsys.readouterr().out
    assert f"examples:\n  verl-resources {command.name}" in text
    assert " ".join(text.split()).endswith(f" Exit codes: {command.exit_codes}")
    assert all(action.help for action in command.parser()._actions)


def test_the_list_of_commands(run, capsys):
    with pytest.raises(SystemExit, match="0"):
        run("--help")
    out = " ".join(capsys.readouterr().out.split())
    assert all(f" {command.name} {command.help}" in out for command in ALL)
    with pytest.raises(SystemExit, match="0"):
        run("--version")


def test_the_reference_has_every_command_and_option(project, root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "docs" / "_ext"))
    page = (root / "docs/command-line.rst").read_text("utf-8")
    assert re.findall(r"docs-commands:: (\w+)", page) == list(reference_lists.GROUPS)
    project.conf.update(extensions=["reference_lists"], smartquotes=False)
    (project.path / "messages.rst").write_text(":orphan:\n\nM\n=\n", "utf-8")
    (project.path / "index.rst").write_text(page, "utf-8")
    built = project.build()
    assert built.warnings == []
    soup = built.soup()
    for command in ALL:
        section = soup.find(id=f"command-{command.name}")
        section = section if section.name == "section" else section.find_parent("section")
        terms = " ".join(term.get_text() for term in section.select("dt"))
        names = {name for action in command.parser()._actions for name in action.option_strings}
        assert [name for name in names - {"-h", "--help"} if name not in terms] == []
        assert all(f"$ {example}" in section.get_text() for example in command.lines)
        assert "Exit codes: 0 " in section.get_text()
