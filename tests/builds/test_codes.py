"""Every kind of problem, provoked once in a real build: path, line, column, message and code; silenced one by one.

The page "Messages" shows these messages from ``docs/examples/messages.txt``. To regenerate that file, run this file with
``UPDATE_GOLDEN=1`` and ``-n 0``, and read the difference.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from sphinx.util.logging import WarningSuppressor, is_suppressed_warning

from sphinx_verl_resources.check import RULES
from sphinx_verl_resources.commands import main
from sphinx_verl_resources.diagnostics import CODES
from sphinx_verl_resources.print_commands import load_check
from sphinx_verl_resources.strict_yaml import MAX_BYTES

if TYPE_CHECKING:
    import logging


class Case(NamedTuple):
    """A mistake, and the build's message about it.

    Attributes:
        code: the kind.
        file: the file with the mistake; ``a.yaml`` means ``data/runs/a.yaml``, a name in ``docs`` a page.
        content: its text, or the keys that differ from a valid run; a key with the value ``...`` is left out.
        place: line and column; the line for a page; the value in conf.py.
        message: the start of the message.
    """

    code: str
    file: str
    content: Any
    place: str
    message: str


X = "  - {name: %s, vendor: amd, memory_gb: 1, memory_mib: 1, kind: nominal, aliases: [Y]}\n"

CASES = [
    Case("file_too_large", "large.yaml", "#" * (MAX_BYTES + 1), "1:1", "the file is larger than 1 MiB"),
    Case("file_empty", "empty.yaml", "# nothing\n", "1:1", "the file is empty; "),
    Case("file_unexpected", "data/runs/notes.txt", "x", "1:1", "the file 'notes.txt' is not read; "),
    Case("encoding", "latin.yaml", b"id: latin\nsize: \xff", "2:7", "byte 0xff is not UTF-8; "),
    Case("bad_character", "bidi.yaml", "id: bidi\nmodel: a\u202eb", "2:9", "invisible character U+202E; "),
    Case("yaml_syntax", "syntax.yaml", "id: syntax\nsize: [", "2:8", "a value is missing here; "),
    Case("yaml_feature", "feature.yaml", "id: &x feature", "1:5", "the anchor '&x' is not read; "),
    Case("duplicate_key", "twice.yaml", "id: twice\nid: twice", "2:1", "duplicate key 'id'"),
    Case("unknown_key", "unknown.yaml", {"colour": "red"}, "13:1", "unknown key 'colour'"),
    Case("missing_key", "missing.yaml", {"task": ...}, "1:1", "the key 'task' is missing; "),
    Case("wrong_type", "type.yaml", {"max_batch": "many"}, "13:12", "max_batch: expected a whole number"),
    Case("wrong_value", "value.yaml", {"max_batch": 0}, "13:12", "max_batch: must be at least 1"),
    Case("unknown_value", "tag.yaml", {"tag": "MAX"}, "3:6", "tag: unknown value 'MAX'; "),
    Case("unknown_size", "size.yaml", {"size": "7X"}, "2:7", "size: unknown size class '7X'; "),
    Case("unknown_gpu", "gpu.yaml", {"gpus": {"count": 1, "type": "H1000"}}, "8:9", "gpus.type: unknown GPU"),
    Case("unknown_model", "model.yaml", {"model": "Qwen/Qwen"}, "4:8", "model: unknown model"),
    Case("bad_url", "url.yaml", {"contributor": {"name": "A", "url": "ftp://x"}}, "15:8", "contributor.url: "),
    Case("email_address", "mail.yaml", {"contributor": {"name": "a@b.org"}}, "14:9", "contributor.name: "),
    Case("id_mismatch", "other.yaml", {"id": "another"}, "1:5", "id: 'another' differs from the file name"),
    Case("duplicate_id", "more/runs/good.yaml", {"id": "good"}, "1:5", "the id 'good' is already recorded at"),
    Case("duplicate_name", "data/gpus.yaml", f"gpus:\n{X % 'X1'}{X % 'X2'}", "3:5", "'Y' is also a name of entry 1"),
    Case("todo", "todo.yaml", {"task": "TODO"}, "5:7", "task: the value is still TODO; "),
    Case("untested_claim", "claim.yaml", {"tag": None}, "3:6", "tag is null, but the run's kind is 'tested'; "),
    Case("config_key", "data/analysis.yaml", "priorities: [{name: fsdp, advice: A, reason: R, keys: [a.b]}]\n", "1:56", "unknown key 'a.b' of verl's configuration"),
    Case("file_unreadable", "docs/conf.py", "", "verl_resources_data", "the data directory '../nowhere' does not exist; "),
    Case("config", "docs/conf.py", "", "verl_resources_add_run", "verl_resources_add_run: 'nowhere' is neither an address nor a label"),
    Case("unresolved", "docs/unresolved.rst", ".. verl-fewest::\n   :memory: 80\n\n   data.x: ${y}\n", "9", "verl-fewest: the value of"),
    Case("reference", "docs/reference.rst", "An :verl:gpu:`H1000`.\n", "6", "verl:gpu: unknown GPU 'H1000'; did you"),
    Case("directive", "docs/directive.rst", ".. verl-runs::\n   :colour: red\n", "6", "verl-runs: :colour: unknown option; "),
]  # fmt: skip

#: The shape of a model, with a bias that the estimator does not count.
CONFIG = """{
"attention_bias": true, "model_type": "qwen3", "head_dim": 128, "hidden_size": 2560, "intermediate_size": 9728,
"num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "tie_word_embeddings": true,
"vocab_size": 151936, "max_position_embeddings": 40960}
"""
NEW = ("new", "--script", "a.sh", "--gpus", "1*H100", "--output", "data", "--dry-run")
LAUNCH = """python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct \\
 data.train_batch_size=8"""
PRINTED_CONFIG = "{'data': {'train_batch_size': 16}, 'actor_rollout_ref': {'actor': {'strategy': 'fsdp'}}}"
STEP = "step:1 - perf/max_memory_allocated_gb:20.5 - timing_s/step:10"
#: Arguments of the command and files, for problems that no page can provoke.
COMMANDS = {
    "shell_syntax": (
        ("estimate", "--gpus", "1*H100", "--script", "a.sh"),
        {"a.sh": "echo '\npython3 -m verl.trainer.main_ppo"},
        "a.sh:1:6: ERROR: ",
    ),
    "assumed_device": (
        ("estimate", "--script", "a.sh"),
        {"a.sh": f"D=$(python3 -c 'import torch_npu' && echo npu || echo gpu)\n{LAUNCH} trainer.device=$D"},
        "a.sh:1:1: WARNING: ",
    ),
    "unused_variable": (
        ("estimate", "--script", "a.sh", "--env", "OTHER=1"), {"a.sh": LAUNCH}, "WARNING: ",
    ),
    "not_training": (
        ("estimate", "--script", "a.sh"),
        {"a.sh": "\npython3 -m verl.trainer.main_eval data.path=x\n"},
        "a.sh:2:1: ERROR: ",
    ),
    "not_modelled": (
        (
            "estimate",
            "a/b",
            "--gpus",
            "1*H100",
            "--config",
            "config.json",
            "data.train_batch_size=1",
        ),
        {"config.json": CONFIG},
        "config.json:2:19: WARNING: ",
    ),
    "unread": (
        NEW, {"a.sh": f"echo > other.yaml data.train_batch_size=2\n{LAUNCH}"}, "a.sh:1:19: WARNING: ",
    ),
    "several_runs": (
        (*NEW, "--log", "a.log"), {"a.sh": LAUNCH, "a.log": f"{STEP}\n{PRINTED_CONFIG}\n{STEP}\n"}, "a.log:1:1: WARNING: ",
    ),
    "out_of_memory": (
        (*NEW, "--log", "a.log"),
        {"a.sh": LAUNCH, "a.log": "starts\ntorch.OutOfMemoryError: CUDA out of memory.\n"},
        "a.log:2:1: ERROR: ",
    ),
    "log_differs": (
        (*NEW, "--log", "a.log"), {"a.sh": LAUNCH, "a.log": f"{PRINTED_CONFIG}\n{STEP}\n"}, "a.sh:2:2: WARNING: ",
    ),
    "left_out": (NEW, {"a.sh": f"{LAUNCH} trainer.project_name=mine"}, "a.sh:1:1: WARNING: settings left out, because"),
    # The tests may run inside a checkout; this file ends git's search for one.
    "script_place": (
        NEW, {"a.sh": LAUNCH, ".git": "gitdir: nowhere"}, "a.sh:1:1: WARNING: the script is not linked: it is not in a git",
    ),
    "undecided": (NEW, {"a.sh": LAUNCH}, "a.sh:1:1: WARNING: unknown rollout engine"),
}  # fmt: skip


@pytest.fixture(scope="module")
def project(new_project, make_run_text):
    """A project with every mistake in it."""
    made = new_project("codes/docs")
    base = made.path.parent
    for name in ("good", *(case.file.removesuffix(".yaml") for case in CASES if "/" not in case.file)):
        case = next((case for case in CASES if case.file == f"{name}.yaml"), None)
        write(base / "data/runs" / f"{name}.yaml", case.content if case else {}, name, make_run_text)
    for case in CASES:
        if case.file.endswith(".rst"):
            made.page(case.content, case.file.removeprefix("docs/"))
        elif "/" in case.file and case.content:
            write(base / case.file, case.content, "", make_run_text)
    made.page(".. verl-runs::\n\n.. verl-memory:: 3B\n")
    made.conf.update(
        verl_resources_data=["../data", "../more", "../last", "../nowhere"], verl_resources_add_run="nowhere"
    )
    return made


def write(path, content, name: str, run_text) -> None:
    """Write a file; keys and values become a run that is valid except for them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, dict):
        content = run_text(**{"id": name, **content})
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture(scope="module")
def built(project) -> tuple[list[str], list[logging.LogRecord]]:
    """The output of the build, and its log before filtering."""
    kept: list[logging.LogRecord] = []

    def keep(record: logging.LogRecord) -> bool:
        kept.append(record)
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WarningSuppressor, "filter", lambda self, record: keep(record))
        return project.build().warnings, kept


def shown(case: Case) -> str:
    """Return the path as in messages."""
    if case.file == "docs/conf.py":
        return "conf.py"
    return f"../data/runs/{case.file}" if "/" not in case.file else f"../{case.file}"


def place(project, case: Case) -> str:
    """Return line and column as in messages."""
    if case.file != "docs/conf.py":
        return case.place
    lines = (project.path / "conf.py").read_text("utf-8").splitlines()
    return f"{next(n for n, line in enumerate(lines, 1) if line.startswith(case.place))}:1"


@pytest.fixture
def compare_with_page(root):
    """A function that compares a message with the example for its code on the page "Messages"."""
    path = root / "docs/examples/messages.txt"

    def compare(message: str) -> None:
        code = message.rpartition(" ")[2]
        lines = path.read_text("utf-8").splitlines()
        if os.environ.get("UPDATE_GOLDEN"):
            others = [line for line in lines if not line.endswith(f" {code}")]
            lines = sorted([*others, message], key=lambda line: line.rpartition(" ")[2])
            path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        assert message in lines

    return compare


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_place_words_and_code(project, built, compare_with_page, case):
    lines = [line.replace(f"{project.path}/", "../docs/") for line in built[0]]
    found = [line for line in lines if line.startswith(f"{shown(case)}:")]
    expected = (
        rf"{re.escape(f'{shown(case)}:{place(project, case)}: ')}(ERROR|WARNING): {re.escape(case.message)}"
    )
    matching = [line for line in found if re.match(expected, line)]
    assert len(matching) == 1, found
    assert matching[0].endswith(f" [verl.{case.code}]")
    compare_with_page(matching[0])


def test_every_code_has_its_case():
    load_check([])  # all rules; their examples provoke the other codes, see tests/core/test_examples.py
    assert {case.code for case in CASES} | {*COMMANDS} | {*RULES} == {*CODES}


def test_each_is_silenced_by_its_code_and_nothing_else_is(built):
    codes = [(record.type, record.subtype) for record in built[1]]
    assert {kind for kind, _ in codes} == {"verl"}
    for case in CASES:
        silenced = {code for code in codes if is_suppressed_warning(*code, [f"verl.{case.code}"])}
        assert silenced == {("verl", case.code)}


def test_all_are_silenced(project, built):
    everything = [f"verl.{code}" for code in CODES]
    assert project.build(suppress_warnings=everything, fresh=True).warnings == []
    del project.conf["suppress_warnings"]


@pytest.mark.parametrize("name", COMMANDS)
def test_command_line(tmp_path, monkeypatch, capsys, compare_with_page, name):
    arguments, files, message = COMMANDS[name]
    for file, content in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content, "utf-8")
    monkeypatch.chdir(tmp_path)
    main(arguments)
    found = capsys.readouterr().err.splitlines()
    matching = [line for line in found if line.startswith(message) and line.endswith(f" [verl.{name}]")]
    assert matching, found
    compare_with_page(matching[0])
