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
command_line = module_at(ROOT / "docs/_ext/command_line.py")

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
PAGE = """\
7B
--

.. list-table::
   :header-rows: 1

   * - Tag
     - Model
     - Task
     - Resource
     - MaxBatch
     - Train
     - Infer
     - Link
     - Contributor
   * - MIN
     - Qwen2.5-7B
     - GRPO
     - 2*H100
     - 64
     - fsdp
     - vllm0.8.3
     - \\
     - Jane Doe
"""
#: The run on the page.
TYPED = {"model": "Qwen/Qwen2.5-7B", "max_batch": 64, "contributor": {"name": "Jane Doe"}}
#: Fields that an estimate needs and the page does not show.
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
        (tmp_path / folder / "runs" / "a.yaml").write_text(
            make_good_run_text(**TYPED, settings=SETTINGS), "utf-8"
        )
    files = {
        "cases.yaml": yaml.safe_dump([CASE]),
        "run.sh": SCRIPT,
        "run.yaml": "data: {train_batch_size: 256}\ntrainer: {n_gpus_per_node: 8}\n",
        "config.json": json.dumps(QWEN),
        "run.log": LOG,
        "failed.log": FAILED,
        "device_tuning.rst": PAGE,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "command"), EXAMPLES)
def test_examples(scratch, capsys, needs, name, command):
    """Each example runs as written, in a folder with its files."""
    if name == "completion":
        needs("shtab")
    line, _, target = command.partition(" > ")
    words = shlex.split(line)
    assert words[:2] == ["verl-resources", name]
    assert re.fullmatch(r"[\w.-]*", target)
    before = set(scratch.rglob("*"))
    code = main(words[1:])
    out, err = capsys.readouterr()
    assert code == 0, err
    # Unknown settings are reported and do not prevent the answer.
    assert " ERROR: " not in err
    new = {path for path in scratch.rglob("*") if path.is_file()} - before
    assert out or new or code
    if {"--output", "--record"} & set(words) and name != "import-rst":
        assert new


@pytest.mark.parametrize("command", all_commands(), ids=lambda command: command.name)
def test_every_help_has_purpose_examples_and_exit_codes(command, capsys):
    with pytest.raises(SystemExit) as exit_:
        main([command.name, "--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert len(command.examples) >= 2
    assert re.fullmatch(r"0 .*\b2 (could not run|no answer)\.( .*)?", command.exit_codes)
    assert " ".join(text.split()).endswith(f" Exit codes: {command.exit_codes}")
    assert command.help[0].islower()
    assert "\n" not in command.help
    assert not command.help.endswith(".")
    assert f"examples:\n  verl-resources {command.name}" in text


@pytest.mark.parametrize("command", all_commands(), ids=lambda command: command.name)
def test_every_option_is_explained(command):
    for action in build_parser()[1][command.name]._actions:
        assert action.help, action
        assert not action.help.endswith("."), action
        if action.nargs != 0:
            assert action.metavar or action.choices or action.required, action


def test_same_things_have_the_same_names():
    """An option that several commands share takes the same kind of value in each."""
    found: dict[str, set[str]] = {}
    for name, parser in build_parser()[1].items():
        for action in parser._actions:
            for option in action.option_strings:
                found.setdefault(option, set()).add(name)
    printing = {"check", "table", "export", "estimate", "plan"}
    assert found["--format"] >= printing
    assert found["--output"] >= printing - {"check"} | {"schema"}
    assert found["--data"] >= printing - {"check"}
    assert found["--color"] == set(build_parser()[1])
    for name in printing:
        (form,) = [action for action in build_parser()[1][name]._actions if action.dest == "format"]
        assert "json" in form.choices


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
        (["chek"], "unknown command 'chek'; did you mean 'check'?"),
        (["tabel", "--help"], "unknown command 'tabel'; did you mean 'table'?"),
        (["zzz"], "unknown command 'zzz'; the commands are "),
        (["check", "--fromat=json"], "unrecognized arguments: --fromat; did you mean '--format'?"),
        (["plan", "--taks", "GRPO"], "unrecognized arguments: --taks; did you mean '--task'?"),
        (["schema", "--qqq"], "unrecognized arguments: --qqq; see verl-resources schema --help"),
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


def test_as_a_program_alone():
    result = subprocess.run([sys.executable, "-m", "sphinx_verl_resources"], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    assert "commands:" in result.stderr


def test_the_reference_has_every_command_and_option(project, root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "docs" / "_ext"))
    page = (root / "docs/command-line.rst").read_text("utf-8")
    assert re.findall(r"docs-commands:: (\w+)", page) == list(command_line.GROUPS)
    project.conf.update(extensions=["command_line"], smartquotes=False)
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
