"""No command reads, shows or writes a file outside a data directory through links in it."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.cli import main
from sphinx_verl_resources.testing import assert_data

SECRET = "hunter2-hunter2"
#: A run that --fix would change, and a registry with mistakes that would be shown.
RUN = "id: {id}\nsize: 7B\ntag: MIN\nmodel: Qwen/Qwen2.5-7B-Instruct\ntask: {task}\ngpus: {{count: 2, type: H100}}\ntrain: fsdp\ninfer: {{engine: vllm, version: 0.8}}\n"
SECRET_RUN = RUN.format(id=SECRET, task=SECRET) + f"{SECRET}: 1\n"
IMPORTED, NEW = "qwen2-5-7b-grpo-2xh100", "qwen2-5-7b-ppo-8xh100"
PAGE = """Hardware
========

7B
~~

.. list-table::

   * - Tag
     - Model
     - Task
     - Resource
     - Train
     - Infer
   * - MIN
     - Qwen/Qwen2.5-7B-Instruct
     - GRPO
     - 2*H100
     - fsdp
     - vllm0.8.3
"""
SCRIPT = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct\n"
CASE = "- {id: x, model: Qwen/Qwen2.5-7B, gpus: {count: 8, type: H100}, config: {}, outcome: fits}\n"
COMMANDS = {
    "check": ["check", "data"],
    "file": ["check", "data/runs/a.yaml"],
    "fix": ["check", "--fix", "data"],
    "fix-file": ["check", "--fix", "data/runs/a.yaml", "data/exceptions.yaml"],
    "import": ["import-rst", "page.rst", "--output", "data"],
    "force": ["import-rst", "page.rst", "--output", "data", "--force"],
    "compare": ["import-rst", "page.rst", "--output", "data", "--check"],
    "new": ["new", "--script", "run.sh", "--gpus", "8*H100", "--output", "data"],
    "new-force": ["new", "--script", "run.sh", "--gpus", "8*H100", "--output", "data", "--force"],
    "table": ["table", "data"],
    "export": ["export", "data"],
    "export-files": ["export", "data", "--output", "data/schema"],
    "estimate": ["estimate", "data/runs/a.yaml"],
    "schema": ["schema", "--output", "data/schema"],
}
FILES = [f"runs/{name}.yaml" for name in ("a", IMPORTED, NEW)]
FILES += ["cases/a.yaml", "gpus.yaml", "architectures.yaml", "analysis.yaml", "config_keys.yaml"]
FILES += ["accuracy.yaml", "exceptions.yaml", "schema/run.json"]
TARGETS = {
    "secret": "{up}../outside/secret.yaml",
    "nowhere": "{up}../outside/none.yaml",
    "folder": "{up}../outside/runs",
    "beside": "{up}gpus.yaml",
    "around": "{up}../outside/../data/gpus.yaml",
    "chain": "{up}.chain",
    "whole": "/etc/hostname",
}


def make(place: Path, links: dict[str, str]) -> None:
    """Create a data directory with these links and otherwise plain files, also next to it."""
    outside = place / "outside"
    (outside / "runs").mkdir(parents=True)
    for name in ("secret.yaml", "runs/a.yaml", f"runs/{IMPORTED}.yaml", f"runs/{NEW}.yaml"):
        (outside / name).write_text(SECRET_RUN)
    (place / "page.rst").write_text(PAGE)
    (place / "run.sh").write_text(SCRIPT)
    (place / "cases.yaml").write_text(CASE)
    (place / "data").mkdir()
    (place / "data/.chain").symlink_to("../outside/secret.yaml")
    for folder in ("runs", "cases", "schema"):
        if folder in links:
            (place / "data" / folder).symlink_to("../outside/runs")
        else:
            (place / "data" / folder).mkdir()
    for name, kind in links.items():
        if "/" not in name and not name.endswith(".yaml"):
            continue
        if (place / "data" / name).parent.is_symlink():
            continue
        (place / "data" / name).symlink_to(TARGETS[kind].format(up="../" * name.count("/")))
    for path, text in (("runs/b.yaml", RUN.format(id="c", task="GRPO")), ("gpus.yaml", "gpus: []\n")):
        if not os.path.lexists(place / "data" / path) and not (place / "data" / path).parent.is_symlink():
            (place / "data" / path).write_text(text)


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return the content of a folder, with modification times."""
    return {
        path.relative_to(folder).as_posix(): (
            path.read_bytes() if path.is_file() else b"",
            path.stat().st_mtime_ns,
        )
        for path in (folder, *folder.rglob("*"))
    }


def shown(arguments: list[str]) -> str:
    """Return the whole output of a command."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        assert main(arguments) in (0, 1, 2)
    return out.getvalue() + err.getvalue()


def look(links: dict[str, str], names: list[str]) -> None:
    """Run commands in a directory with links."""
    before_test = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), links)
        os.chdir(folder)
        try:
            before = state(Path("outside"))
            for name in names:
                text = shown(COMMANDS[name])
                assert SECRET not in text, (name, links)
                assert state(Path("outside")) == before, (name, links)
        finally:
            os.chdir(before_test)


kinds = st.sampled_from(sorted(TARGETS))
folders = st.fixed_dictionaries({}, optional={name: st.just("") for name in ("runs", "cases", "schema")})
trees = st.builds(
    lambda files, links: files | links, st.dictionaries(st.sampled_from(FILES), kinds, max_size=5), folders
)


@pytest.mark.slow
@given(trees, st.lists(st.sampled_from(sorted(COMMANDS)), min_size=3, max_size=5, unique=True))
def test_nothing_outside_is_read_or_written(links, names):
    look(links, names)


@pytest.mark.parametrize("name", [*FILES, "runs", "cases", "schema"])
def test_each_link_alone(name):
    """Examples: a file of exceptions, a run file, the folder of run files."""
    others = {"runs/a.yaml": ["estimate"]}
    others |= {"schema/run.json": ["schema"], "schema": ["schema", "export-files"]}
    look({name: "secret"}, ["check", "fix", "force", "new-force", *others.get(name, [])])


def test_a_link_at_the_file_of_exceptions_is_an_error(data, tmp_path, monkeypatch, capsys):
    (tmp_path / "secret.txt").write_text(SECRET)
    (data.path / "exceptions.yaml").symlink_to("../secret.txt")
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--fix", "data"]) == 1
    assert capsys.readouterr().err == (
        "data/exceptions.yaml:1:1: ERROR: the link points outside the data directory and was not followed; replace the "
        "link with the file itself [verl.file_unreadable]\n"
    )
    with pytest.raises(AssertionError, match="points outside"):
        assert_data("data")


def test_a_link_inside_the_directory_is_written_through(data, monkeypatch):
    """The link points to another file in the directory, along a different path."""
    data.write("runs/.a.yaml", RUN.format(id="b", task="GRPO"))
    (data.path / "runs/a.yaml").symlink_to("../../data/runs/.a.yaml")
    monkeypatch.chdir(data.path.parent)
    main(["check", "--fix", "data"])
    assert (data.path / "runs/.a.yaml").read_text().startswith("id: a\n")
    assert (data.path / "runs/a.yaml").is_symlink()


def test_a_path_with_dots_after_a_link_is_the_place_that_the_system_finds(data, monkeypatch, capsys):
    """The path without its dots may be in a different data directory."""
    folder = data.path.parent
    here = data.write("runs/a.yaml", RUN.format(id="mine", task="GRPO"))
    there = folder / "other/data/runs/b.yaml"
    there.parent.mkdir(parents=True)
    (folder / "other/sub").mkdir()
    there.write_text(RUN.format(id="theirs", task="GRPO"))
    (folder / "link").symlink_to("other/sub")
    monkeypatch.chdir(folder)
    for path in ("link/../data", "link/../data/runs/b.yaml"):
        there.write_text(RUN.format(id="theirs", task="GRPO"))
        main(["check", "--fix", path])
        assert capsys.readouterr().err.startswith(
            "other/data/runs/b.yaml:1: repaired: id 'theirs' changed to 'b', "
        )
    assert here.read_text() == RUN.format(id="mine", task="GRPO")


def test_import_names_the_link_and_writes_nothing(data, monkeypatch, capsys, tmp_path):
    (tmp_path / "page.rst").write_text(PAGE)
    (tmp_path / "out").mkdir()
    (data.path / "runs").rmdir()
    (data.path / "runs").symlink_to("../out")
    monkeypatch.chdir(tmp_path)
    assert main(["import-rst", "page.rst", "--output", "data", "--force"]) == 2
    assert capsys.readouterr().err == (
        f"verl-resources: data/runs/{IMPORTED}.yaml: the link points outside the data directory and was not followed; "
        "replace the link with the file itself; nothing was written\n"
    )
    assert list((tmp_path / "out").iterdir()) == []
