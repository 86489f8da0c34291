"""Several directories, cross-checks between files, and hostile input."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.dataset import Dataset, Directory, bundled_directory, configured_directory
from sphinx_verl_resources.diagnostics import Diagnostic, Location

GPU = "gpus:\n  - {{name: {name}, vendor: nvidia, memory_gb: 80, memory_mib: {mib}, kind: nominal}}\n"


def load(base: Path, *names: str):
    directories = [configured_directory(name, base) for name in names]
    loaded = Dataset(directories, missing=Location("conf.py", 3, 1))
    _ = loaded.runs
    return loaded


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def test_bundled_runs_stay_without_own_runs(tmp_path):
    write(tmp_path / "data/gpus.yaml", GPU.format(name="X9000", mib=1))
    assert list(load(tmp_path, "data").runs) == list(load(tmp_path).runs) != []


def test_own_runs_replace_the_bundled_ones(tmp_path, make_run_text):
    write(tmp_path / "data/runs/a.yaml", make_run_text())
    assert list(load(tmp_path, "data").runs) == ["a"]
    (tmp_path / "data/runs/a.yaml").unlink()
    assert list(load(tmp_path, "data").runs) == []


def test_registries_extend_and_override_by_name(tmp_path):
    write(tmp_path / "data/gpus.yaml", GPU.format(name="X9000", mib=1))
    write(tmp_path / "more/gpus.yaml", GPU.format(name="H20", mib=2))
    catalog = load(tmp_path, "data", "more")
    assert catalog.diagnostics == ()
    assert catalog.gpus.get("x-9000").memory_mib == 1
    assert catalog.gpus.get("H20").memory_mib == 2
    assert catalog.gpus.get("NVIDIA H20").memory_mib == 2, "its aliases go on to lead to the name"
    assert catalog.gpus.get("H100").memory_mib == 81559


@pytest.mark.parametrize("name", ["H20", "h20", "h-20"])
def test_an_entry_replaces_another_in_whatever_spelling(tmp_path, name):
    write(tmp_path / "data/gpus.yaml", GPU.format(name=name, mib=1))
    catalog = load(tmp_path, "data")
    assert catalog.gpus.get("H20").memory_mib == catalog.gpus.get("NVIDIA H20").memory_mib == 1
    assert len(list(catalog.gpus)) == len(list(load(tmp_path).gpus))


def test_a_later_file_may_claim_an_alias_of_an_earlier_entry(tmp_path):
    write(tmp_path / "data/gpus.yaml", GPU.format(name="nvidia h20", mib=1))
    catalog = load(tmp_path, "data")
    assert catalog.diagnostics == ()
    assert catalog.gpus.get("NVIDIA H20").memory_mib == 1
    assert catalog.gpus.get("H20").memory_mib != 1


def test_good_entries_of_a_registry_stay_when_another_is_wrong(tmp_path):
    wrong = GPU.format(name="X2", mib=2).removeprefix("gpus:\n").replace("nvidia", "nvidea")
    write(tmp_path / "data/gpus.yaml", GPU.format(name="X1", mib=1) + wrong)
    catalog = load(tmp_path, "data")
    assert [problem.code for problem in catalog.diagnostics] == ["unknown_value"]
    assert catalog.gpus.get("X1").memory_mib == 1
    assert catalog.gpus.get("X2") is None


def test_the_bundled_directory_may_be_configured_too(tmp_path, make_run_text):
    write(tmp_path / "data/runs/a.yaml", make_run_text())
    write(tmp_path / "data/gpus.yaml", GPU.format(name="X1", mib=-1))
    twice = Dataset(
        [Directory(tmp_path / "data", "data")], bundled=Directory(tmp_path / "data", "package/data")
    )
    assert [file.shown for file in (*twice.files["runs"], *twice.files["gpus.yaml"])] == [
        "data/runs/a.yaml",
        "data/gpus.yaml",
    ]


@pytest.mark.parametrize(("name", "file"), [("run", "x.txt"), ("Runs", "a.yaml"), ("mine", "a.yaml")])
def test_a_folder_that_looks_like_data_and_is_never_read(tmp_path, name, file):
    write(tmp_path / "data/gpus.yaml", GPU.format(name="X1", mib=1))
    write(tmp_path / f"data/{name}/{file}", "")
    write(tmp_path / "data/pictures/a.png", "")
    assert [str(problem) for problem in load(tmp_path, "data").diagnostics] == [
        f"data/{name}:1:1: WARNING: the folder {name!r} is not read; put data files into the folder 'runs' "
        "[verl.file_unexpected]"
    ]


def test_spellings_that_are_looked_up_alike_are_the_same_name(tmp_path):
    text = GPU.format(name="Z-1", mib=1) + GPU.format(name="z 1", mib=2).removeprefix("gpus:\n")
    write(tmp_path / "data/gpus.yaml", text)
    assert [str(problem) for problem in load(tmp_path, "data").diagnostics] == [
        "data/gpus.yaml:3:5: ERROR: 'z 1' is also a name of entry 1 of 'gpus', 'Z-1'; keep it in one of the two "
        "[verl.duplicate_name]"
    ]


def test_a_new_gpu_and_model_can_be_used_at_once(tmp_path, make_run_text):
    write(tmp_path / "data/gpus.yaml", GPU.format(name="X9000", mib=1))
    architecture = yaml.safe_load((bundled_directory().path / "architectures.yaml").read_text())[
        "architectures"
    ][0]
    architecture |= {"name": "Mine", "hf_id": "me/mine-7B", "aliases": ["me/mine-7B-it"]}
    write(tmp_path / "data/architectures.yaml", yaml.safe_dump({"architectures": [architecture]}))
    write(
        tmp_path / "data/runs/a.yaml",
        make_run_text(model="me/mine-7B-it", gpus={"count": 1, "type": "x 9000"}),
    )
    assert load(tmp_path, "data").diagnostics == ()


def test_the_same_id_in_two_directories_names_both_places(tmp_path, make_run_text):
    write(tmp_path / "one/runs/a.yaml", "# first\n" + make_run_text())
    write(tmp_path / "two/runs/a.yaml", make_run_text())
    catalog = load(tmp_path, "one", "two")
    assert [str(problem) for problem in catalog.diagnostics] == [
        "two/runs/a.yaml:1:5: ERROR: the id 'a' is already recorded at one/runs/a.yaml:2:5; rename one of the runs: "
        "its file and its id [verl.duplicate_id]"
    ]
    assert list(catalog.runs) == ["a"]


def test_missing_directory(tmp_path):
    catalog = load(tmp_path, "nowhere", "../elsewhere")
    assert [str(problem) for problem in catalog.diagnostics] == [
        "conf.py:3:1: ERROR: the data directory '../elsewhere' does not exist; the path is relative to the directory of "
        "conf.py [verl.file_unreadable]",
        "conf.py:3:1: ERROR: the data directory 'nowhere' does not exist; the path is relative to the directory of "
        "conf.py [verl.file_unreadable]",
    ]
    assert catalog.runs


def test_the_same_directory_twice_counts_once(tmp_path, make_run_text):
    write(tmp_path / "data/runs/a.yaml", make_run_text())
    catalog = load(tmp_path, "data", "data/", "./data/../data", str(tmp_path / "data"))
    assert catalog.diagnostics == ()


def test_links_that_lead_nowhere_are_reported(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/gpus.yaml").symlink_to("nowhere")
    (tmp_path / "data/architectures.yaml").symlink_to("architectures.yaml")
    (tmp_path / "data/runs").symlink_to("nowhere")
    catalog = load(tmp_path, "data")
    assert [problem.place.path for problem in catalog.diagnostics] == [
        "data/architectures.yaml", "data/gpus.yaml", "data/runs",
    ]  # fmt: skip
    assert catalog.runs == {}, "broken runs of one's own do not bring the bundled ones back"


def test_an_entry_with_errors_does_not_make_its_runs_wrong(tmp_path, make_run_text):
    text = GPU.format(name="X9000", mib=1).replace("nvidia", "nvidea")
    write(tmp_path / "data/gpus.yaml", text)
    write(tmp_path / "data/runs/a.yaml", make_run_text(gpus={"count": 2, "type": "x9000"}))
    catalog = load(tmp_path, "data")
    assert [problem.code for problem in catalog.diagnostics] == ["unknown_value"]
    assert list(catalog.runs) == ["a"]
    assert catalog.gpus.get("x9000") is None


def test_a_directory_outside_is_shown_relative(tmp_path):
    write(tmp_path / "data/runs/a.yaml", "a: [")
    (tmp_path / "docs").mkdir()
    (problem,) = load(tmp_path / "docs", "../data").diagnostics
    assert problem.place.path == "../data/runs/a.yaml"


def test_order_of_problems_does_not_depend_on_the_file_system(tmp_path, make_run_text):
    for name in "cab":
        write(tmp_path / f"data/runs/{name}.yaml", make_run_text(id=name, size="X", tag="Y"))
    catalog = load(tmp_path, "data")
    assert [(problem.place.path[-6], problem.place.line) for problem in catalog.diagnostics] == [
        ("a", 2), ("a", 3), ("b", 2), ("b", 3), ("c", 2), ("c", 3),
    ]  # fmt: skip


def test_runs_survive_pickling_and_cannot_be_changed(tmp_path, make_run_text):
    write(tmp_path / "data/runs/a.yaml", make_run_text())
    run = load(tmp_path, "data").runs["a"]
    assert pickle.loads(pickle.dumps(run)) == run
    with pytest.raises(ValueError, match="frozen"):
        run.tag = "RECOMMENDED"


def check_outcome(folder: Path) -> None:
    catalog = Dataset([Directory(folder, "data")])
    assert len(catalog.runs) + len(catalog.broken) == 1
    assert all(isinstance(problem, Diagnostic) for problem in catalog.diagnostics)
    assert len(catalog.runs) + len(catalog.broken) == 1
    if catalog.broken:
        assert any(problem.place.path == "data/runs/a.yaml" for problem in catalog.diagnostics)
    for problem in catalog.diagnostics:
        assert "\n" not in str(problem)
        assert problem.place.line >= 1
        assert problem.place.column >= 1


@given(st.data())
def test_any_cut_or_damage_gives_a_run_or_problems(data):
    content = (bundled_directory().path / "runs/qwen2-5-32b-grpo-8xh20.yaml").read_bytes()
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 40)))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "runs/a.yaml"
        path.parent.mkdir()
        path.write_bytes(content[:start] + data.draw(st.binary(max_size=10)) + content[end:])
        check_outcome(Path(name))
