"""Every help text is true, and its examples work."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from modules import module_at

from sphinx_verl_resources.cli import main
from sphinx_verl_resources.cli.main import all_commands, build_parser

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "docs/_ext"))
reference_lists = module_at(ROOT / "docs/_ext/reference_lists.py")

EXAMPLES = [
    pytest.param(command.name, example, id=example) for command in all_commands() for example in command.lines
]
CASE = {
    "id": "a",
    "framework": "verl",
    "model": "Qwen/Qwen2.5-7B",
    "gpus": {"count": 8, "type": "H100"},
    "config": {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.use_dynamic_bsz": True},
    "outcome": "fits",
}
SCRIPT = """\
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=256 \\
    data.max_prompt_length=512 data.max_response_length=1024 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.actor.use_dynamic_bsz=True trainer.n_gpus_per_node=8 trainer.nnodes=1
"""
LOG = """\
(TaskRunner pid=1) step:1 - perf/max_memory_allocated_gb:41.5 - perf/max_memory_reserved_gb:60.25
(TaskRunner pid=1) step:2 - perf/max_memory_allocated_gb:44.5 - perf/max_memory_reserved_gb:61.25
"""
FAILED = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.\n"
#: Fields that an estimate needs.
SETTINGS = {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4}
AUTHOR = ("-c", "user.name=n", "-c", "user.email=e")
QWEN = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584,
    "intermediate_size": 18944, "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
    "vocab_size": 152064, "tie_word_embeddings": False, "max_position_embeddings": 32768,
}  # fmt: skip


@pytest.fixture
def scratch(tmp_path, monkeypatch, make_good_run_text):
    """Return a folder with the files of the examples, next to a checkout of verl."""
    for words in (
        ["init", "-q", "verl"],
        ["-C", "verl", *AUTHOR, "commit", "-q", "--allow-empty", "-m", "Begin"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    tmp_path = tmp_path / "here"
    for folder in ("data", "docs/data"):
        (tmp_path / folder / "runs").mkdir(parents=True)
        (tmp_path / folder / "runs" / "a.yaml").write_text(make_good_run_text(settings=SETTINGS), "utf-8")
    files = {
        "cases.yaml": yaml.safe_dump([CASE]),
        "run.sh": SCRIPT,
        "run.yaml": "data: {train_batch_size: 256}\ntrainer: {n_gpus_per_node: 8}\n",
        "config.json": json.dumps(QWEN),
        "run.log": LOG,
        "failed.log": FAILED,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("name", "command"), EXAMPLES)
def test_examples(scratch, capsys, name, command):
    """Each example runs as written, in a folder with its files."""
    words = shlex.split(command)
    assert words[:2] == ["verl-resources", name]
    before = set(scratch.rglob("*"))
    code = main(words[1:])
    out, err = capsys.readouterr()
    assert code == 0, err
    # Unknown settings are reported and do not prevent the answer.
    assert " ERROR: " not in err
    new = {path for path in scratch.rglob("*") if path.is_file()} - before
    assert out or new or code
    if {"--output", "--record"} & set(words):
        assert new


def test_every_help_has_examples_and_every_option_is_explained(capsys):
    for command in all_commands():
        with pytest.raises(SystemExit, match="0"):
            main([command.name, "--help"])
        text = capsys.readouterr().out
        assert f"examples:\n  verl-resources {command.name}" in text
        assert " ".join(text.split()).endswith(f" Exit codes: {command.exit_codes}")
        for action in build_parser()[1][command.name]._actions:
            assert action.help, action


def test_alone_it_prints_help(capsys):
    with pytest.raises(SystemExit) as exit_:
        main([])
    assert exit_.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert all(f"\n    {command.name}" in err for command in all_commands())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["chek"], "invalid choice: 'chek' (choose from "),
        (["check", "--fromat=json"], "unrecognized arguments: --fromat=json"),
        (["table", "--format", "jsn"], "invalid choice: 'jsn' (choose from "),
    ],
)
def test_misspelt(words, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(words)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_an_option_may_be_shortened(data, monkeypatch, capsys):
    data.good_run("a")
    monkeypatch.chdir(data.path.parent)
    assert main(["check", "--form", "json"]) == 0
    assert capsys.readouterr().out == "[]\n"


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
    for command in all_commands():
        section = soup.find(id=f"command-{command.name}")
        section = section if section.name == "section" else section.find_parent("section")
        terms = " ".join(term.get_text() for term in section.select("dt"))
        for action in build_parser()[1][command.name]._actions:
            for option in action.option_strings:
                assert option in terms or option in {"-h", "--help"}, (command.name, option)
        code = section.get_text()
        for example in command.lines:
            assert f"$ {example}" in code
        assert "Exit codes: 0 " in code
