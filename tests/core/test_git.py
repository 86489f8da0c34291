"""Links and settings of runs beside a checkout of verl, which is only read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from repositories import git

from sphinx_verl_resources.commands import main

PATH = "examples/run_qwen2_5_7b_fsdp.sh"
TABLE = yaml.safe_load(Path(__file__).with_name("git.yaml").read_text("utf-8"))


@pytest.fixture
def verl(tmp_path, monkeypatch):
    """Return a checkout with a script, tagged v0.4.0, and with names that only it knows; the folder is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for name, text in {
        PATH: TABLE["script"],
        "examples/tuning/a.sh": "",
        ".gitattributes": "*.sh diff=x\n",
    }.items():
        Path("verl", name).parent.mkdir(parents=True, exist_ok=True)
        Path("verl", name).write_text(text, "utf-8")
    for line in (
        "init -q -b main",
        "add -A",
        "commit -q -m Everything",
        "tag v0.4.0",
        "branch deadbeef",
        "update-ref ORIG_HEAD HEAD",
    ):
        git(*line.split())
    Path("verl/new").write_text("", "utf-8")
    git("add", "new")
    git("stash")
    return tmp_path / "verl"


@pytest.fixture
def report(capsys):
    """Return a function that checks runs with these links, and returns the problems with the checkout by run."""

    def check(links: list[str], repository: str = "verl") -> list[list[str]]:
        Path("data/runs").mkdir(parents=True, exist_ok=True)
        for at, link in enumerate(links):
            text = TABLE["run"].replace("AT", str(at)).replace("LINK", link)
            Path(f"data/runs/r{at}.yaml").write_text(text, "utf-8")
        main(["check", "data", "--repo", repository])
        lines = capsys.readouterr().err.splitlines()
        codes = r"\[verl\.(unknown_ref|unknown_path|moving_ref|script_differs)\]$"
        return [
            [line for line in lines if line.startswith(f"data/runs/r{at}.yaml:") and re.search(codes, line)]
            for at in range(len(links))
        ]

    return check


def script(ref="v0.4.0", path=PATH, settings=""):
    return f"script: {{ref: {ref}, path: {path}}}\nsettings: {{{settings}}}"


def test_commits(verl, report):
    head = git("rev-parse", "HEAD")
    names = {"HEAD": head, "SHORT": head[:9], "ZEROS": "0" * 40}
    refs = {ref.format(**names): codes for ref, codes in TABLE["refs"].items()}
    problems = dict(zip(refs, report([script(ref) for ref in refs]), strict=True))
    codes = {ref: [line.rpartition("[verl.")[2][:-1] for line in lines] for ref, lines in problems.items()}
    assert codes == refs
    assert f"'main' is a branch, which can change; write {head} [" in problems["main"][0]
    assert f"verl has no commit, tag or branch '{'0' * 40}'" in problems["0" * 40][0]
    evidence = [f"evidence: [{{kind: commit, ref: {ref}}}]" for ref in (head, "0" * 40)]
    assert [len(lines) for lines in report(evidence)] == [0, 1]


def test_paths(verl, report):
    problems = report([f"evidence: [{{kind: script, ref: v0.4.0, path: {path}}}]" for path in TABLE["paths"]])
    for lines, words in zip(problems, TABLE["paths"].values(), strict=True):
        matches = [words in line and "evidence.0.path: v0.4.0 has no file" in line for line in lines]
        assert matches == [True] * bool(words)


def test_settings_beside_those_of_the_script(verl, report):
    problems = report([script(settings=line) for line in TABLE["settings"]])
    for lines, words in zip(problems, TABLE["settings"].values(), strict=True):
        assert [f"is {words}" in line for line in lines] == [True] * bool(words)


def test_the_script_is_that_of_the_commit_and_not_the_one_on_disk(verl, report):
    batch = "data.train_batch_size: 256"
    links = [script(ref, settings=batch) for ref in ("v0.4.0", git("rev-parse", "HEAD"))]
    Path("verl", PATH).write_text(TABLE["script"].replace("128", "1"), "utf-8")
    assert report(links) == [[], []]
    git("commit", "-q", "-a", "-m", "Another batch")
    git("branch", "v0.4.0")
    links.append(script(git("rev-parse", "main"), settings=batch))
    assert [*map(len, report(links))] == [0, 0, 1], "the tag is not taken for the branch of its name"


def test_clones(verl, report):
    first = git("rev-parse", "HEAD")
    git("commit", "-q", "--allow-empty", "-m", "Later")
    git("config", "uploadpack.allowFilter", "true")
    git("clone", "-q", "--depth", "1", "--no-tags", verl.as_uri(), "shallow", folder=".")
    git("clone", "-q", "--no-checkout", "--filter=blob:none", verl.as_uri(), "partial", folder=".")
    git("clone", "-q", verl.as_uri(), "ahead", folder=".")
    git("commit", "-q", "--allow-empty", "-m", "Mine", folder="ahead")
    ((line,),) = report([script(first)], "shallow")
    assert "[verl.unknown_ref]" in line
    ((line,),) = report([script(settings="data.train_batch_size: 1")], "partial")
    assert "partial" in line
    ((line,),) = report([script("main")], "ahead")
    assert f"write {git('rev-parse', 'main')} [" in line, "a commit that was never pushed has no page to link"


def test_nothing_in_the_checkout_is_run_and_no_other_is_read(verl, report, tmp_path, monkeypatch):
    trace = tmp_path / "trace"
    Path("verl", PATH).write_text(f"touch {trace}\n{TABLE['script']}\n$(touch {trace})\n", "utf-8")
    git("commit", "-q", "-a", "-m", "A script that leaves a trace")
    for name in ("diff.x.textconv", "core.fsmonitor", "diff.external", "core.pager"):
        git("config", name, f"touch {trace};:")
    hook = Path("verl/.git/hooks/post-index-change")
    hook.write_text(f"#!/bin/sh\ntouch {trace}\n", "utf-8")
    hook.chmod(0o755)
    links = [script(git("rev-parse", "main"), settings="data.train_batch_size: 1"), script()]
    trace.unlink(missing_ok=True)
    git("init", "-q", "other", folder=".")
    # The variables of a hook of another repository.
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other/.git/index"))
    assert [len(lines) for lines in report(links)] == [1, 0]
    assert not trace.exists()


def test_what_is_no_checkout(verl, report, monkeypatch, capsys):
    report([script()])
    # The tests may run inside a checkout; this file ends git's search for one.
    Path("data/.git").write_text("gitdir: nowhere", "utf-8")
    assert main(["check", "data", "--repo", "data"]) == 2
    assert capsys.readouterr().err.startswith("verl-resources: data: not a git checkout")
    monkeypatch.setenv("PATH", "")
    assert main(["check", "data", "--repo", "verl"]) == 2
    assert "git is not installed" in capsys.readouterr().err
