"""``verl-resources new``: a table of scripts and logs, and what happens to the files."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.fit.names import DISTILLS, LOSS, recorded_gpu, task_in
from sphinx_verl_resources.logs.draft import Sources, is_private
from sphinx_verl_resources.logs.draft import _link as link_of
from sphinx_verl_resources.logs.run_file import run_text
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.records import Run
from sphinx_verl_resources.strict_yaml import read_yaml

TABLE = yaml.safe_load(Path(__file__).with_name("drafts.yaml").read_text("utf-8"))
FACTS = EstimatorContext()
RUN = "python3 -m verl.trainer.main_ppo"
NAME = "qwen2-5-7b-grpo-2xh100.yaml"
SHORT = {"loss": LOSS, "rewards": "distillation.distillation_loss.use_task_rewards"}


@pytest.fixture
def new(tmp_path, monkeypatch, capsys):
    """Return a function that runs the command; it returns exit code, result and messages."""
    monkeypatch.chdir(tmp_path)

    def called(line):
        code = main(["new", *line.split(), "--format", "json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return called


@pytest.mark.parametrize("entry", TABLE["drafts"], ids=lambda entry: entry["name"])
def test_drafts(new, entry):
    words = "--dry-run"
    for name, file in (("script", "run.sh"), ("log", "run.log")):
        if (text := entry.get(name)) is not None:
            words += f" --{name} {file}"
            content = (
                text
                if isinstance(text, bytes)
                else text.replace("{run}", RUN).replace("{log}", TABLE["log"]).encode()
            )
            Path(file).write_bytes(content)
    for file, text in entry.get("files", {}).items():
        Path(file).write_text(text, "utf-8")
    code, result, err = new(f"{words} {entry.get('words', '')}")
    assert code == entry.get("code", 0), err
    assert all(text in err for text in entry.get("says", ())), err
    assert not [word for word in entry.get("silent", ()) if f"[verl.{word}]" in err], err
    if code:
        assert (result, err.count("ERROR")) == (None, 1), err
        return
    run = yaml.safe_load(result["text"])
    expected = entry.get("fields", {})
    assert {name: run.get(name) for name in expected} == expected
    assert [item["text"] for item in result["todo"] if "  # " not in item["text"]] == []


@pytest.mark.parametrize(("settings", "program", "task"), TABLE["tasks"])
def test_tasks(settings, program, task):
    settings = {SHORT.get(key, key): value for key, value in settings.items()}
    assert task_in(settings, program) == task
    assert task_in(settings, program, frozenset({DISTILLS})) is None


def test_names_and_private_settings():
    for name, gpu in TABLE["gpus"].items():
        assert recorded_gpu(name, FACTS.gpus) == gpu
    for expected in ("private", "public"):
        for key, value in TABLE[expected]:
            value = tuple(value) if isinstance(value, list) else value
            assert is_private(key, value) == (expected == "private"), key


WORDS = st.sampled_from(
    [
        "actor_rollout_ref.model.path=", "Qwen/Qwen2.5-7B", "/", "$X", "${A:-", "}", "trainer.nnodes=", "99999999999", "-1",
        "trainer.n_gpus_per_node=", "algorithm.adv_estimator=", "grpo", "actor_rollout_ref.rollout.name=", "vllm", " ", "\\\n",
        "\n", "'", '"', "#", "data.train_batch_size=", "1e400", "TODO", "[", "a.b=", "{c: ", "@", "\u202e", "--config-name=",
    ]
)  # fmt: skip


@given(
    st.lists(WORDS | st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=30),
    st.booleans(),
)
def test_any_script_gives_errors_or_a_file_that_reads_back(tmp_path_factory, parts, with_log):
    folder = tmp_path_factory.mktemp("new")
    (folder / "run.sh").write_text(f"{RUN} data.seed=1 {''.join(parts)}", "utf-8")
    (folder / "run.log").write_text(TABLE["log"], "utf-8")
    words = ["new", "--script", f"{folder}/run.sh", "--output", f"{folder}/data"]
    code = main([*words, *(["--log", f"{folder}/run.log"] if with_log else [])])
    assert code in (0, 1)
    files = [*(folder / "data/runs").glob("*")] if code == 0 else []
    assert len(files) == 1 - code
    for file in files:
        document = read_yaml(file.read_bytes())
        assert (document.problems, document.data["id"]) == ([], file.stem)


# -- files


@pytest.fixture
def here(data, root, tmp_path, new):
    """Return a folder with the example's script and log next to an empty data directory."""
    for name in ("run.sh", "run.log"):
        shutil.copy(root / "docs/examples" / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize("schema", ["", "# yaml-language-server: $schema=../schema/run.json\n"])
def test_the_example(here, data, capsys, schema):
    if schema:
        data.write("schema/run.json", "{}")
    code = main(["new", "--script", "run.sh", "--log", "run.log"])
    out, err = capsys.readouterr()
    text = (here / "data/runs" / NAME).read_text("utf-8")
    run = yaml.safe_load(text)
    assert text.startswith(f"{schema}id: qwen2-5-7b-grpo-2xh100\n")
    assert [line.strip().partition("  # ")[0] for line in text.splitlines() if "TODO" in line] == [
        "tag: TODO", "contributor: {name: TODO, url: TODO}", "- {kind: log, url: TODO}",
    ]  # fmt: skip
    assert (code, run["model"], run["measured"]["gib"]) == (0, "Qwen/Qwen2.5-7B-Instruct", 64.8)
    assert run["versions"] == {"verl": "0.8.0", "torch": "2.8.0"}
    for words in (
        f"data/runs/{NAME}:{4 if schema else 3}: tag: TODO  # MIN",
        f"then: verl-resources check data/runs/{NAME}",
    ):
        assert words in out
    assert {line.rsplit("[", 1)[1] for line in err.splitlines()} == {"verl.script_place]", "verl.left_out]"}
    content = text.replace("tag: TODO", "tag: MIN").replace("name: TODO", "name: Jane Doe")
    (here / "data/runs" / NAME).write_text(
        content.replace("url: TODO", "url: https://example.org/a"), "utf-8"
    )
    assert (main(["check"]), capsys.readouterr()[0]) == (0, "data: 1 run, 0 errors, 0 warnings\n")


def test_nothing_is_overwritten_without_force(here, new, monkeypatch):
    file = here / "data/runs" / NAME
    file.write_text("mine\n")
    code, result, err = new("--script run.sh --gpus H100")
    hint = "already exists; --force replaces it, --id qwen2-5-7b-grpo-2xh100-2 writes another file"
    assert (code, result, err.splitlines()[-1]) == (2, None, f"verl-resources: data/runs/{NAME}: {hint}")
    with monkeypatch.context() as patch:
        patch.setattr(
            Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        )
        assert new("--script run.sh --gpus H100 --force")[0] == 2
    assert ([path.name for path in file.parent.iterdir()], file.read_text()) == ([NAME], "mine\n")
    assert new("--script run.sh --gpus H100 --force")[0] == 0
    assert yaml.safe_load(file.read_text())["tag"] == "TODO"


def test_links_that_lead_out(here, new, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "x.yaml").write_text("mine\n")
    (here / "data/runs/x.yaml").symlink_to(outside / "x.yaml")
    code, _, err = new("--script run.sh --id x --force")
    assert (code, "points outside the data directory" in err) == (1, True)
    shutil.rmtree(here / "data/runs")
    (here / "data/runs").symlink_to(outside)
    code, _, err = new("--script run.sh")
    assert (code, "points outside the data directory" in err) == (1, True)
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("x.yaml", "mine\n")]


def test_no_data_directory(tmp_path, new):
    (tmp_path / "run.sh").write_text(f"{RUN} trainer.nnodes=1\n")
    assert new("--script run.sh")[2] == "verl-resources: no data directory here; give one with --output DIR\n"
    code, result, _ = new("--script run.sh --dry-run")
    assert (code, result["written"], result["id"]) == (0, False, "run-ppo-8-gpus")
    assert [path.name for path in tmp_path.iterdir()] == ["run.sh"]
    assert new("--script run.sh --output own")[0] == 0
    assert len([*(tmp_path / "own/runs").iterdir()]) == 1
    for words in ("", "--script run.sh --blank", "--blank --issue x", "--log run.log --env A=1"):
        assert new(words)[0] == 2


def test_a_template(data, new):
    code, result, err = new("--blank --id mine")
    assert (code, err, result["submit"]) == (0, "", None)
    run = yaml.safe_load((data.path / "runs/mine.yaml").read_text("utf-8"))
    required = {name for name, field in Run.model_fields.items() if field.is_required()}
    assert {*run} == required | {"contributor", "kind", "added", "evidence", "versions"}
    assert len(result["todo"]) == 10


# -- links and issues


@pytest.fixture
def git(tmp_path):
    def run(*arguments):
        words = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    run("init", "-q")
    return run


def test_a_committed_script(tmp_path, git):
    script = tmp_path / "examples" / "run it.sh"
    script.parent.mkdir()
    script.write_text("x\n")
    git("add", ".")
    git("commit", "-q", "-m", "x")
    sources = Sources(path=str(script))
    assert (link_of(sources), sources.problems[0].code) == (
        {},
        "script_place",
    )  # a checkout of something else
    (tmp_path / "verl").mkdir()
    (tmp_path / "verl/__init__.py").touch()
    git("add", "verl")
    git("commit", "-q", "-m", "y")
    assert link_of(sources) == {"ref": git("rev-parse", "HEAD"), "path": "examples/run it.sh"}
    script.write_text("y\n")
    assert link_of(sources) == {}
    other = Sources(path=str(script.with_name("new.sh")))
    Path(other.path).touch()
    assert link_of(other) == {}


def test_an_issue_gives_the_file_that_the_form_was_filled_with(here, root, new, monkeypatch):
    monkeypatch.setattr(metadata, "metadata", lambda _: Meta(["Issues, https://example.org/o/n/issues"]))
    _, result, _ = new("--script run.sh --log run.log --dry-run")
    address = urlsplit(result["submit"])
    query = {name: text for name, (text,) in parse_qs(address.query).items()}
    assert address.geturl().startswith("https://example.org/o/n/issues/new?")
    assert (query.pop("template"), query.pop("title")) == ("run.yml", "Run: qwen2-5-7b-grpo-2xh100")
    items = yaml.safe_load((root / ".github/ISSUE_TEMPLATE/run.yml").read_text("utf-8"))["body"]
    forms = {item["id"]: item for item in items if "id" in item}
    assert (
        {*query}
        == {"model", "task", "gpus", "train", "infer", "versions", "settings", "measured"}
        <= {*forms}
    )
    body = ""
    for name, item in forms.items():
        answer = query.get(name, "_No response_")
        answer = f"```yaml\n{answer}\n```" if item["attributes"].get("render") else answer
        body += f"### {item['attributes']['label']}\n\n{answer}\n\n"
    Path("issue.md").write_text(body.replace("\n", "\r\n"), "utf-8")
    _, issue, err = new("--issue issue.md --dry-run")
    assert (issue["text"], err) == (result["text"], "")


def test_issues_with_mistakes(new, monkeypatch):
    for body, message in (
        ("hello\n", "x.md:1:1: ERROR: the text has no headings of the form; give all of it"),
        ("### Model\n\n[a\n", "x.md:3:3: ERROR: "),
        (
            "### GPUs\n\n8xH100x\n\n### Rollout engine\n\nvllm 0.8\n",
            "ERROR: infer: expected keys and values, got 'vllm 0.8'",
        ),
    ):
        Path("x.md").write_text(body, "utf-8")
        code, _, err = new("--issue x.md --dry-run")
        assert (code, message in err) == (1, True), err


class Meta:
    """The metadata of a package with project links."""

    def __init__(self, urls):
        self.urls = urls

    def get_all(self, name):
        return self.urls if name == "Project-URL" else None


def test_what_is_written_has_the_layout_of_recorded_runs():
    assert run_text({"tag": "TODO", "id": "a"}).splitlines()[1:] == [
        "id: a",
        "tag: TODO  # MIN: settings that save memory, or the least hardware; RECOMMENDED: faster than recorded runs",
    ]
