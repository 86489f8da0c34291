"""No command reads, shows or writes a file outside a data directory through links in it."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from sphinx_verl_resources.commands import main

SECRET = "hunter2-hunter2"
#: A run file.
RUN = "id: {id}\nsize: 7B\ntag: MIN\nmodel: Qwen/Qwen2.5-7B-Instruct\ntask: {task}\ngpus: {{count: 2, type: H100}}\ntrain: fsdp\ninfer: {{engine: vllm, version: 0.8}}\n"
SECRET_RUN = RUN.format(id=SECRET, task=SECRET) + f"{SECRET}: 1\n"
NEW = "qwen2-5-7b-ppo-8xh100"
SCRIPT = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct\n"
CASE = "- {id: x, model: Qwen/Qwen2.5-7B, gpus: {count: 8, type: H100}, config: {}, outcome: fits}\n"
COMMANDS = {
    "check": ["check", "data"],
    "new-force": ["new", "--script", "run.sh", "--gpus", "8*H100", "--output", "data", "--force"],
    "export-files": ["export", "data", "--output", "data/schema"],
    "estimate": ["estimate", "data/runs/a.yaml"],
    "schema": ["schema", "--output", "data/schema"],
}
FILES = [f"runs/{name}.yaml" for name in ("a", NEW)]
FILES += ["cases/a.yaml", "gpus.yaml", "architectures.yaml", "analysis.yaml", "config_keys.yaml"]
FILES += ["accuracy.yaml", "schema/run.json"]


def make(place: Path, link: str) -> None:
    """Create a data directory with one link to outside and otherwise plain files, also next to it."""
    outside = place / "outside"
    (outside / "runs").mkdir(parents=True)
    for name in ("secret.yaml", "runs/a.yaml", f"runs/{NEW}.yaml"):
        (outside / name).write_text(SECRET_RUN)
    (place / "run.sh").write_text(SCRIPT)
    (place / "cases.yaml").write_text(CASE)
    (place / "data").mkdir()
    for folder in {"runs", "cases", "schema"} - {link}:
        (place / "data" / folder).mkdir()
    target = "secret.yaml" if link.endswith((".yaml", ".json")) else "runs"
    (place / "data" / link).symlink_to(f"{'../' * link.count('/')}../outside/{target}")
    if link != "runs":
        (place / "data/runs/b.yaml").write_text(RUN.format(id="c", task="GRPO"))


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


@pytest.mark.parametrize("name", [*FILES, "runs", "cases", "schema"])
def test_each_link_alone(name, tmp_path, monkeypatch):
    others = {"runs/a.yaml": ["estimate"]}
    others |= {"schema/run.json": ["schema"], "schema": ["schema", "export-files"]}
    make(tmp_path, name)
    monkeypatch.chdir(tmp_path)
    before = state(Path("outside"))
    for command in ("check", "new-force", *others.get(name, [])):
        assert SECRET not in shown(COMMANDS[command]), command
        assert state(Path("outside")) == before, command


def test_a_path_with_dots_after_a_link_is_the_place_that_the_system_finds(data, monkeypatch, capsys):
    """The path without its dots may be in a different data directory."""
    folder = data.path.parent
    data.write("runs/a.yaml", RUN.format(id="mine", task="GRPO"))
    there = folder / "other/data/runs/b.yaml"
    there.parent.mkdir(parents=True)
    (folder / "other/sub").mkdir()
    there.write_text(RUN.format(id="theirs", task="GRPO"))
    (folder / "link").symlink_to("other/sub")
    monkeypatch.chdir(folder)
    for path in ("link/../data", "link/../data/runs/b.yaml"):
        main(["check", path])
        assert capsys.readouterr().err.startswith("other/data/runs/b.yaml:1:5: ERROR: id: 'theirs' differs")
