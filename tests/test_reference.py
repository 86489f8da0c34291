"""The reference in the documentation is complete, and the examples of every command work."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from docutils.parsers.rst.directives import _directives
from page_cases import without_answers
from repositories import git
from run_texts import good_run_text

from sphinx_verl_resources.commands import main

QWEN = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
    "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False, "max_position_embeddings": 32768,
}  # fmt: skip
#: The files that the examples read.
FILES = {
    "cases.yaml": "- {id: a, framework: verl, model: Qwen/Qwen2.5-7B, gpus: {count: 8, type: H100}, outcome: fits,\n"
    "   config: {algorithm.adv_estimator: grpo, actor_rollout_ref.actor.use_dynamic_bsz: true}}\n",
    "run.yaml": "data: {train_batch_size: 256}\ntrainer: {n_gpus_per_node: 8}\n",
    "config.json": json.dumps(QWEN),
    "run.log": "(TaskRunner pid=1) step:1 - perf/max_memory_allocated_gb:41.5 - perf/max_memory_reserved_gb:60.25\n",
    "failed.log": "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.\n",
    "run.sh": "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=256 data.max_prompt_length=512 "
    "data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct actor_rollout_ref.rollout.name=vllm "
    "actor_rollout_ref.actor.use_dynamic_bsz=True trainer.n_gpus_per_node=8 trainer.nnodes=1\n",
}


def help_text(*words: str) -> str:
    """Return the help of the program, or of a command."""
    with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit, match="0"):
        main([*words, "--help"])
    return out.getvalue()


def examples(command: str) -> list[str]:
    """Return the examples in the help of a command."""
    return re.findall(r"(?m)^  (verl-resources .*?)(?:   .*)?$", help_text(command))


COMMANDS = re.findall(r"(?m)^    ([a-z]+)  ", help_text())


@pytest.fixture(scope="module")
def reference(root, new_project):
    """Return the build of the pages with generated lists."""
    project = new_project("docs")
    for name in ("directives", "command-line", "install", "messages"):
        shutil.copy(root / f"docs/{name}.rst", project.path)
    shutil.copytree(root / "docs/examples", project.path / "examples")
    project.page(".. toctree::\n   :glob:\n\n   *\n")
    with pytest.MonkeyPatch.context() as patch, without_answers():
        patch.syspath_prepend(str(root / "docs/_ext"))
        extensions = ["reference_lists"]
        build = project.build(extensions=extensions, exclude_patterns=["examples"], smartquotes=False)
    # The pages refer to others of the documentation.
    others = r"\[ref\.|reference\]|unknown document|undefined label|no page shows it|\[toc\."
    assert [line for line in build.warnings if not re.search(others, line)] == []
    return build


def terms(build, page: str) -> list[str]:
    return [" ".join(term.get_text(" ").split()) for term in build.soup(f"{page}.html").select("dt")]


def test_every_directive_option_role_and_value_of_conf_py(reference):
    result = " ".join(terms(reference, "directives"))
    for name, directive in _directives.items():
        if name.startswith("verl-"):
            assert f".. {name} ::" in result
            options = directive.option_spec or ()
            assert [option for option in options if f": {option} :" not in result] == [], name
    text = " ".join(reference.soup("directives.html").get_text().split())
    assert [role for role in reference.app.env.get_domain("verl").roles if f":verl:{role}:" not in text] == []
    listed = " ".join(terms(reference, "install"))
    values = [value.name for value in reference.app.config if value.name.startswith("verl_")]
    assert [value for value in values if value not in listed] == []


def test_every_message_has_an_anchor(reference, root):
    lines = (root / "docs/examples/messages.txt").read_text("utf-8").splitlines()
    codes = [line.rpartition("[verl.")[2].removesuffix("]") for line in lines]
    assert len(codes) > 30
    soup = reference.soup("messages.html")
    assert [code for code in codes if not soup.find(id=f"verl-{code.replace('_', '-')}")] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command(reference, command):
    text = help_text(command)
    assert examples(command)
    assert re.search(r" Exit codes: 0 ", " ".join(text.split()))
    options = re.findall(r"(?m)^  (?:-\w, )?(--[\w-]+)", text)
    assert len(options) == len(re.findall(r"(?m)^  (?:-\w, )?--[\w-]+[^\n]*(?:  |\n {24})\S", text)), (
        "an option without help"
    )
    section = reference.soup("command-line.html").find(id=f"command-{command}")
    section = section if section.name == "section" else section.find_parent("section")
    section_text = " ".join(section.get_text().split())
    assert [words for words in [*options, *examples(command)] if words not in section_text] == []


LINES = (line for command in COMMANDS for line in examples(command))
#: The models that fit take seconds, and tests/cli prints them.
EXAMPLES = [pytest.param(line, marks=pytest.mark.slow) if " plan --gpus " in line else line for line in LINES]


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples(line, tmp_path, monkeypatch, capsys):
    """Each example runs as written, in a folder with its files, next to a checkout of verl."""
    git("init", "-q", str(tmp_path / "verl"), folder=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "Begin", folder=tmp_path / "verl")
    run = good_run_text(settings={"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4})
    files = {**FILES, "data/runs/a.yaml": run, "docs/data/runs/a.yaml": run}
    for name, text in files.items():
        (tmp_path / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path / "here")
    before = {*Path().rglob("*")}
    code = main(shlex.split(line)[1:])
    out, err = capsys.readouterr()
    assert (code, " ERROR: " in err) == (0, False), err
    new = {path for path in Path().rglob("*") if path.is_file()} - before
    assert bool(new) == ("--output" in line or (" new " in line and "--dry-run" not in line))
    assert out or new
