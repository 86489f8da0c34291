"""``verl-resources table`` selects as the directive does; ``export`` writes the pages' downloads."""

from __future__ import annotations

import json
import os

import pytest

from sphinx_verl_resources.cli import main

NAMES = ["verl-resources.csv", "verl-resources.json"]


@pytest.fixture
def runs(data, monkeypatch):
    """Return runs that differ in every field with a filter."""
    data.run("a", max_batch=64)
    data.run("b", size="3B", tag="RECOMMENDED", gpus={"count": 8, "type": "H800"}, max_batch=256)
    data.run("c", task="PPO LoRA", train="megatron", infer={"engine": "sglang"}, model="Qwen/Qwen3-8B")
    data.run("d", kind="stated", gpus={"count": 16, "type": "H100"})
    monkeypatch.chdir(data.path.parent)
    return data


@pytest.fixture
def ids(runs, capsys):
    """Return a function that returns the ids of the rows."""

    def find(*words):
        code = main(["table", "--columns", "id", "--format", "json", *words])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return [row["id"] for row in json.loads(out)]

    return find


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "bacd"),
        ("--size 7B", "acd"),
        ("--size 7b,3B", "acdb"),  # in the order of --size, like the sections of the directive
        ("--gpu h100-sxm5-80gb", "acd"),
        ("--gpu H800,H100 --tag MIN", "acd"),
        ("--task ppo-lora", "c"),
        ("--infer vllm0.8.3 --kind stated", "d"),
        ("--model Qwen/Qwen3-8B", "c"),
        ("--sort=-gpus", "dbac"),
        ("--sort -max_batch,id", "bacd"),
    ],
)
def test_rows(ids, runs, words, expected):
    if "h100-sxm5" in words:
        runs.write(
            "gpus.yaml",
            "gpus:\n- {name: H100, vendor: nvidia, memory_gb: 80, memory_mib: 81559, kind: reading, "
            "aliases: [H100-SXM5-80GB]}\n",
        )
    if words.startswith("--sort -"):
        words = words.replace("--sort -", "--sort=-")
    assert "".join(ids(*words.split())) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size", "9B"], "--size: unknown size class '9B'; the nearest is 7B"),
        (["--gpu", "H1000"], "--gpu: unknown value 'H1000'; did you mean 'H100'?"),
        (["--columns", "modle"], "--columns: unknown field 'modle'; did you mean 'model'?"),
        (["--sort", "estimate.peak"], "--sort: 'estimate.peak' is computed"),
    ],
)
def test_what_nothing_can_match(runs, capsys, words, message):
    assert main(["table", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"verl-resources: {message}")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("form", "end"),
    [
        ("json", '"estimate.phase": null\n  }\n]\n'),
        ("csv", "Run,Estimated peak (GiB),Peak phase\ne,,\n"),
        ("list-table", "  - Peak phase\n   * - e\n     -\n     -\n"),
    ],
)
def test_computed_columns_are_empty_where_settings_are_missing(runs, capsys, form, end):
    runs.run("e", size="0.5B", settings={"data.train_batch_size": 64})
    columns = "id,estimate.peak,estimate.phase"
    assert main(["table", "--columns", columns, "--format", form, "--size", "0.5B"]) == 0
    assert capsys.readouterr().out.endswith(end)


@pytest.mark.parametrize("how", [["other"], ["--data", "other"], ["--data", "data", "--data", "other"]])
@pytest.mark.parametrize(
    "command", [["table", "--columns", "id", "--format", "csv"], ["export", "--format", "csv"]]
)
def test_where_the_data_lie(data, monkeypatch, capsys, how, command):
    data.run("a")
    (data.path.parent / "other").mkdir()
    (data.path / "runs").rename(data.path.parent / "other" / "runs")
    data.run("b")
    monkeypatch.chdir(data.path.parent)
    assert main([*command, *how]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.partition(",")[0] for line in lines] == (["a", "b"] if "data" in how else ["a"])


def test_a_folder_called_data_that_holds_none(tmp_path, monkeypatch, capsys):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    for words in (["table", "--columns", "id"], ["export"]):
        assert main(words) == 0
        assert "qwen2-5-7b-grpo-lora-1xh100" in capsys.readouterr().out


def test_output_goes_into_a_file(runs, capsys, tmp_path):
    assert main(["table", "--format", "csv"]) == 0
    printed = capsys.readouterr().out
    assert main(["table", "--format", "csv", "--output", "rows.csv"]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "rows.csv").read_text("utf-8") == printed
    before = (tmp_path / "rows.csv").stat().st_ino
    assert main(["table", "--output", "rows.csv", "--tag", "MAX"]) == 2
    assert (tmp_path / "rows.csv").stat().st_ino == before, "could not run: left as it was"
    for name, message in (("data", "is a directory"), ("no/such/file", "no such directory")):
        assert main(["table", "--output", name]) == 2
        assert message in capsys.readouterr().err


def test_export_is_what_the_page_offers(own, runs, capsys, tmp_path):
    build = own.page(".. verl-downloads::\n").build()
    assert main(["export", "--output", "out/"]) == 0
    assert sorted(os.listdir(tmp_path / "out")) == NAMES  # noqa: PTH208
    for name in NAMES:
        assert (tmp_path / "out" / name).read_bytes() == (build.out / name).read_bytes()
    assert main(["export"]) == 0
    assert capsys.readouterr().out == build.text("verl-resources.json")


@pytest.mark.parametrize(
    ("words", "name", "same"),
    [
        ("--output x.csv", "x.csv", NAMES[0]),
        ("--output x.json --format csv", "x.json", NAMES[0]),
        ("--output new/ --format csv", f"new/{NAMES[0]}", NAMES[0]),
        ("--output .", NAMES[1], NAMES[1]),
    ],
)
def test_where_the_export_goes(runs, capsys, tmp_path, words, name, same):
    assert main(["export", "--output", "all/"]) == 0
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert main(["export", *words.split()]) == 0
    assert (tmp_path / name).read_bytes() == (tmp_path / "all" / same).read_bytes()
    new = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert len(new) == (2 if words == "--output ." else 1)
    assert capsys.readouterr() == ("", "")


def test_runs_with_errors_are_left_out_and_told(runs, capsys):
    runs.run("broken", tag="X")
    for command in ("table", "export"):
        assert main([command]) == 1
        out, err = capsys.readouterr()
        assert "broken" not in out
        assert err.startswith("data/runs/broken.yaml:3:6: ERROR: ")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["export", "--output", "x.json"], "x.json"),
    ],
)
def test_files_are_replaced_whole(runs, tmp_path, monkeypatch, capsys, words, name):
    """An error while writing leaves the old file."""
    (tmp_path / "cases.yaml").write_text(
        "- {id: x, model: Qwen/Qwen2.5-7B, gpus: {count: 8, type: H100}, config: {}, outcome: measured, "
        "measured: {gib: 40, counter: perf/max_memory_allocated_gb}}\n",
        "utf-8",
    )
    (tmp_path / name).write_text("old", "utf-8")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert main(words) == 2
    assert (tmp_path / name).read_text("utf-8") == "old"
    assert main(words) in {0, 1}
    assert (tmp_path / name).read_text("utf-8") != "old"
    assert not list(tmp_path.glob(".*.tmp"))
