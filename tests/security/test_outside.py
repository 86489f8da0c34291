"""No command reads, shows or writes a file outside a data directory through links in it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from sphinx_verl_resources.commands import main

SECRET = "hunter2-hunter2"
RUN = "id: {id}\nsize: 7B\ntag: MIN\nmodel: Qwen/Qwen2.5-7B-Instruct\ntask: {task}\ngpus: {{count: 2, type: H100}}\ntrain: fsdp\ninfer: {{engine: vllm}}\n"
NEW = "qwen2-5-7b-ppo-8xh100"
SCRIPT = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct\n"
#: Commands that are run whatever the link is, and with some links.
ALWAYS = ("check data", "table data", "new --script run.sh --gpus 8*H100 --output data --force")
ALSO = {
    "runs/a.yaml": ["estimate data/runs/a.yaml"], "cases/a.yaml": ["estimate data/cases/a.yaml"],
    "schema/run.json": ["schema --output data/schema"], "schema": ["schema --output data/schema", "export data --output data/schema/x"],
}  # fmt: skip
LINKS = [
    f"runs/{NEW}.yaml",
    "gpus.yaml",
    "architectures.yaml",
    "analysis.yaml",
    "config_keys.yaml",
    "accuracy.yaml",
    "runs",
    "cases",
    *ALSO,
]


def state(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {
        path: (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in (folder, *folder.rglob("*"))
    }


@pytest.mark.parametrize("link", LINKS)
def test_each_link_alone(link, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for folder in {
        "outside/runs",
        "data",
        *(f"data/{name}" for name in {"runs", "cases", "schema"} - {link}),
    }:
        Path(folder).mkdir(parents=True, exist_ok=True)
    for name in ("secret.yaml", "runs/a.yaml", f"runs/{NEW}.yaml"):
        Path("outside", name).write_text(RUN.format(id=SECRET, task=SECRET) + f"{SECRET}: 1\n")
    Path("run.sh").write_text(SCRIPT)
    Path("data", link).symlink_to(tmp_path / "outside" / ("runs" if "." not in link else "secret.yaml"))
    before = state(Path("outside"))
    for line in (*ALWAYS, *ALSO.get(link, [])):
        assert main(shlex.split(line)) in (0, 1, 2)
        assert SECRET not in "".join(capsys.readouterr()), line
        assert state(Path("outside")) == before, line


def test_links_inside_the_directory_and_to_it_are_fine(data, tmp_path, monkeypatch, capsys):
    data.run("a").rename(data.path / "runs" / ".a.yaml")
    (data.path / "runs/a.yaml").symlink_to(".a.yaml")
    (data.path / "rums").symlink_to("/etc")
    data.path.rename(tmp_path / "moved")
    data.path.symlink_to("moved")
    monkeypatch.chdir(tmp_path)
    assert main(["table", "--format", "csv", "--columns", "id"]) == 0
    assert capsys.readouterr() == ("Run\na\n", "")


def test_a_path_with_dots_after_a_link_is_the_place_that_the_system_finds(
    data, tmp_path, monkeypatch, capsys
):
    """The path without its dots may be in a different data directory."""
    monkeypatch.chdir(tmp_path)
    data.write("runs/a.yaml", RUN.format(id="mine", task="GRPO"))
    data.write("../other/data/runs/b.yaml", RUN.format(id="theirs", task="GRPO"))
    data.write("../other/sub/x", "")
    Path("link").symlink_to("other/sub")
    for path in ("link/../data", "link/../data/runs/b.yaml"):
        main(["check", path])
        assert capsys.readouterr().err.startswith("other/data/runs/b.yaml:1:5: ERROR: id: 'theirs' differs")
