"""A real git checkout of verl: existing and missing commits and files, and safety."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sphinx_verl_resources import git
from sphinx_verl_resources.commands import main
from sphinx_verl_resources.git import GitError, open_repository

PATH = "examples/run_qwen2_5_7b_fsdp.sh"
SCRIPT = """\
N_GPUS=${N_GPUS:-2}
python3 -m verl.trainer.main_ppo \\
    data.train_batch_size=$((N_GPUS * 128)) \\
    +actor_rollout_ref.model.lora_rank=32 \\
    actor_rollout_ref.model.target_modules=all-linear \\
    actor_rollout_ref.model.path="$MODEL" \\
    actor_rollout_ref.model.use_remove_padding=True data.shuffle=True \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6
"""


@pytest.fixture
def repository(verl):
    return verl({PATH: SCRIPT, "examples/tuning/a.sh": "", "docs/a.md": "A\n"})


def script(ref="v0.4.0", path=PATH):
    return {"ref": ref, "path": path}


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("data.train_batch_size", 256, None),
        ("data.train_batch_size", 1024, "data.train_batch_size is 1024 here, but 256 in the script"),
        ("actor_rollout_ref.model.lora_rank", 32.0, None),
        ("actor_rollout_ref.model.lora_rank", 64, "lora_rank is 64 here, but 32 in the script"),
        ("actor_rollout_ref.model.use_remove_padding", False, "is false here, but true in the script"),
        ("data.shuffle", 1, "is 1 here, but true in the script"),
        ("actor_rollout_ref.model.target_modules", "all-linear", None),
        ("actor_rollout_ref.rollout.gpu_memory_utilization", 0.4, "is 0.4 here, but 0.6 in the script"),
        ("actor_rollout_ref.model.path", "Qwen/Qwen2.5-7B", None),  # the script alone does not determine it
        ("data.max_prompt_length", 77, None),  # the script leaves the default
    ],
)
def test_settings_beside_those_of_the_script(checked, repository, key, value, found):
    checked.run(script=script(), settings={key: value})
    problems = [line for line in checked.problems(repository) if "script_differs" in line]
    assert [found in line for line in problems] == ([True] if found else [])


@pytest.mark.parametrize(("gpu", "size"), [("H100", 2), ("Ascend A3", 4)])
def test_the_script_is_read_for_the_device_of_the_run(checked, verl, gpu, size):
    probe = "DEVICE=${DEVICE:-$(python3 -c 'import torch_npu' && echo npu || echo gpu)}"
    text = f'{probe}\nif [ "$DEVICE" = npu ]; then TP=4; else TP=2; fi\n{SCRIPT[:-1]} a.b=$TP\n'
    repository = verl({PATH: text})
    for value in (2, 4):
        checked.run(script=script(), settings={"a.b": value}, gpus={"count": 8, "type": gpu})
        problems = [line for line in checked.problems(repository) if "script_differs" in line]
        assert bool(problems) == (value != size)


def test_the_script_is_that_of_the_commit_and_not_the_one_on_disk(checked, repository, verl_git):
    checked.run(script=script(), settings={"data.train_batch_size": 256})
    (repository.path / PATH).write_text(SCRIPT.replace("128", "1"), "utf-8")
    assert checked.codes(repository) == []
    verl_git(repository.path, "commit", "-q", "-a", "-m", "Another batch")
    fresh = open_repository(str(repository.path), "verl")
    assert checked.codes(fresh) == []
    checked.run(script=script(ref=fresh.commit("main")), settings={"data.train_batch_size": 256})
    assert checked.codes(fresh) == ["script_differs"]


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("examples/run-qwen2_5_7b_fsdp.sh", PATH),
        ("examples/tuning/7b/run_qwen2_5_7b_fsdp.sh", PATH),
        ("examples/tuning/A.sh", "examples/tuning/a.sh"),
    ],
)
def test_a_dead_link_names_the_nearest_file(checked, repository, path, near):
    checked.run(evidence=[{"kind": "script", "ref": "v0.4.0", "path": path}])
    (found,) = checked.problems(repository)
    assert (
        f"evidence.0.path: v0.4.0 has no file {path!r}; did you mean {near!r}? [verl.unknown_path]" in found
    )


def test_a_folder_is_no_file(checked, repository):
    checked.run(evidence=[{"kind": "script", "ref": "v0.4.0", "path": "examples"}])
    assert checked.codes(repository) == ["unknown_path"]


def test_a_commit_alone(checked, repository):
    checked.run(evidence=[{"kind": "commit", "ref": repository.commit("main")[:9]}])
    assert checked.codes(repository) == []
    checked.run(evidence=[{"kind": "commit", "ref": "0" * 40}])
    (found,) = checked.problems(repository)
    assert f"verl has no commit, tag or branch '{'0' * 40}'; correct it, or fetch it" in found


def test_a_branch_is_given_as_the_commit_that_it_is_at(checked, repository):
    checked.run(script=script(ref="main"))
    (found,) = checked.problems(repository)
    assert (
        f"'main' is a branch, which can change; write {repository.commit('main')} [verl.moving_ref]" in found
    )


def test_a_branch_that_is_nowhere_is_said_to_be_missing_and_nothing_else(checked, repository):
    checked.run(script=script(ref="nowhere"))
    assert checked.codes(repository) == ["unknown_ref"]
    assert checked.codes() == ["moving_ref"]


def test_a_branch_is_where_others_see_it(repository, verl_git, tmp_path):
    """A commit that was never pushed has no page to link."""
    verl_git(tmp_path, "clone", "-q", str(repository.path), "clone")
    clone = open_repository(str(tmp_path / "clone"), "clone")
    verl_git(clone.path, "commit", "-q", "--allow-empty", "-m", "Mine")
    assert clone.commit("main") == repository.commit("main")
    verl_git(clone.path, "branch", "mine")
    clone = open_repository(str(tmp_path / "clone"), "clone")
    assert clone.commit("mine") == verl_git(clone.path, "rev-parse", "mine") != repository.commit("main")


def test_a_shallow_clone_says_that_it_is_one(checked, repository, verl_git, tmp_path):
    first = repository.commit("main")
    verl_git(repository.path, "commit", "-q", "--allow-empty", "-m", "Later")
    verl_git(tmp_path, "clone", "-q", "--depth", "1", "--no-tags", repository.path.as_uri(), "clone")
    clone = open_repository(str(tmp_path / "clone"), "clone")
    checked.run(script=script(ref=first))
    (found,) = checked.problems(clone)
    assert "was not checked: clone is a shallow clone without it; fetch all commits" in found
    assert found.endswith("[verl.unknown_ref]")


def test_a_clone_without_contents_fetches_none(checked, repository, verl_git, tmp_path):
    verl_git(repository.path, "config", "uploadpack.allowFilter", "true")
    origin = repository.path.as_uri()
    verl_git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", origin, "clone")
    clone = open_repository(str(tmp_path / "clone"), "clone")
    checked.run(script=script(), settings={"data.train_batch_size": 1})
    (found,) = checked.problems(clone)
    assert f"the settings were not compared: clone has no text of {PATH!r}; if the clone is partial" in found


def test_a_hook_that_is_run_in_another_repository_changes_nothing(repository, verl, monkeypatch):
    other = verl({"b.txt": "B"}, "other")
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.path / ".git/index"))
    again = open_repository(str(repository.path), "verl")
    assert again.paths(again.commit("main")) == ("docs/a.md", PATH, "examples/tuning/a.sh")


def test_names_that_git_would_take_for_options(repository):
    assert repository.commit("--all") is None
    assert repository.commit("-h") is None
    assert "--help" not in repository.paths(repository.commit("main"))
    assert repository.text(repository.commit("main"), "nothing") is None


def test_what_is_no_checkout(checked, monkeypatch, capsys):
    checked.run()
    monkeypatch.chdir(checked.path)
    # The temporary directory may be inside a checkout, as in `make matrix`.
    monkeypatch.setitem(git._ENVIRONMENT, "GIT_CEILING_DIRECTORIES", str(checked.path))
    for name, message in (
        ("nowhere", "no such directory"),
        ("data", "not a git checkout, or owned by another user"),
    ):
        assert main(["check", "data", "--repo", name]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith(f"verl-resources: {name}: {message}")
        assert printed.err.count("\n") == 1


def test_without_git(repository, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(GitError, match="git is not installed"):
        open_repository(str(repository.path), "verl")


def test_git_that_gives_no_answer(repository, monkeypatch, tmp_path):
    slow = tmp_path / "bin/git"
    slow.parent.mkdir()
    slow.write_text(f"#!{shutil.which('sh')}\nexec {shutil.which('sleep')} 60\n", "utf-8")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(slow.parent))
    monkeypatch.setattr("sphinx_verl_resources.git.TIMEOUT", 0.2)
    with pytest.raises(GitError, match="git did not answer"):
        open_repository(str(repository.path), "verl")


def test_nothing_in_the_checkout_is_run(checked, verl, verl_git, tmp_path):
    """Neither scripts nor programs from the repository's configuration are run."""
    trace = tmp_path / "trace"
    repository = verl(
        {PATH: f"touch {trace}\n{SCRIPT}\n$(touch {trace})\n", ".gitattributes": "*.sh diff=x\n"}
    )
    for name in ("diff.x.textconv", "core.fsmonitor", "diff.external", "core.pager"):
        verl_git(repository.path, "config", name, f"touch {trace};:")
    hook = Path(repository.path, ".git/hooks/post-index-change")
    hook.write_text(f"#!/bin/sh\ntouch {trace}\n", "utf-8")
    hook.chmod(0o755)
    checked.run(script=script(), settings={"data.train_batch_size": 1})
    assert checked.codes(repository) == ["script_differs"]
    assert not trace.exists()


#: Refs that git resolves only in this checkout.
LOCAL = ["@", "HEAD", "HEAD@{0}", "HEAD^{/Every}", "main~0", "main@{0}", "ORIG_HEAD", "stash", "heads/main"]


@pytest.mark.parametrize("ref", LOCAL)
def test_what_only_this_checkout_knows_is_no_commit(repository, verl_git, ref):
    verl_git(repository.path, "update-ref", "ORIG_HEAD", "HEAD")
    (repository.path / "new").write_text("", "utf-8")
    verl_git(repository.path, "add", "new")
    verl_git(repository.path, "stash")
    assert verl_git(repository.path, "rev-parse", f"{ref}^{{commit}}")
    assert repository.commit(ref) is None


@pytest.mark.parametrize("name", ["v9.9.9-g{}", "no-such-branch-g{}", "v0.4.0-1-g{}"])
def test_a_name_that_ends_like_a_commit_is_none(repository, verl_git, name):
    ref = name.format(verl_git(repository.path, "rev-parse", "--short", "HEAD"))
    assert verl_git(repository.path, "rev-parse", f"{ref}^{{commit}}")
    assert repository.commit(ref) is None


def test_a_branch_called_like_a_commit_is_none(repository, verl_git):
    verl_git(repository.path, "branch", "deadbeef")
    assert repository.commit("deadbeef") is None
    head = verl_git(repository.path, "rev-parse", "HEAD")
    assert repository.commit(head) == repository.commit(head[:9]) == head


def test_a_tag_is_not_taken_for_a_branch_of_its_name(repository, verl_git):
    tagged = repository.commit("v0.4.0")
    verl_git(repository.path, "commit", "-q", "--allow-empty", "-m", "Later")
    verl_git(repository.path, "branch", "v0.4.0")
    assert open_repository(str(repository.path), "verl").commit("v0.4.0") == tagged
