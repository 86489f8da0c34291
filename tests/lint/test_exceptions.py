"""Excused warnings, and wrong exceptions."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import date

import pytest

from sphinx_verl_resources.catalog.files import bundled_directory, configured_directory
from sphinx_verl_resources.cli import main

REASON = "The log was lost with the machine."
LOST = f"{{code: no_evidence, files: [runs/a.yaml], reason: {REASON}}}"


def test_a_warning_with_a_reason(checked):
    checked.run(evidence=...)
    assert checked.codes() == ["no_evidence"]
    checked.suppress(LOST)
    verdict = checked.check()
    assert verdict.problems == ()
    ((problem, reason),) = verdict.suppressed
    assert (problem.code.name, problem.place.path, reason) == ("no_evidence", "data/runs/a.yaml", REASON)


def test_only_this_code_in_this_file(checked):
    checked.run(evidence=..., versions=...)
    checked.run("b", evidence=..., gpus={"count": 4, "type": "H100"})
    checked.suppress(LOST)
    assert checked.codes() == ["no_version", "no_evidence"]


def test_warnings_of_the_catalog_are_excused_too(checked):
    script = {"ref": "v0.4.0", "path": "examples/qwen2-7b_grpo_4_h100_fsdp_vllm.sh"}
    checked.run(script=script)
    assert checked.codes() == ["script_name"]
    checked.suppress(
        "{code: script_name, files: [runs/a.yaml], reason: The name of the script was never right.}"
    )
    assert checked.codes() == []


def test_one_that_is_no_longer_needed_is_an_error(checked):
    checked.run()
    checked.suppress(LOST)
    (found,) = checked.problems()
    assert found.startswith("data/exceptions.yaml:3:33: ERROR: 'runs/a.yaml' has no warning no_evidence; ")
    assert found.endswith("[verl.stale_exception]")


def test_a_file_that_is_gone(checked):
    checked.run(evidence=...)
    checked.suppress(LOST.replace("a.yaml", "a.yaml, runs/gone.yaml"))
    (found,) = checked.problems()
    assert found.startswith("data/exceptions.yaml:3:46: ERROR: 'runs/gone.yaml' has no warning")


def test_a_file_with_errors_is_not_looked_at(checked):
    checked.run(evidence=..., tag="MOST")
    checked.suppress(LOST)
    assert checked.codes() == ["unknown_value"]


def test_errors_cannot_be_excused(checked):
    checked.run(gpus={"count": 3, "type": "H100", "nodes": 2})
    checked.suppress("{code: gpu_count, files: [runs/a.yaml], reason: One of the nodes has only one GPU.}")
    assert checked.codes() == ["excused_error", "gpu_count"]


def test_nor_can_errors_of_codes_that_are_warnings_elsewhere(checked):
    checked.run(tag="MOST")
    checked.suppress("{code: unknown_value, files: [runs/a.yaml], reason: This is what the source says.}")
    assert checked.codes() == ["excused_error", "unknown_value"]


def test_rules_that_need_a_checkout_are_not_stale_without_one(checked, verl):
    repository = verl({"a.sh": "python3 -m verl.trainer.main_ppo data.train_batch_size=8\n"})
    changed = {"ref": "v0.4.0", "path": "a.sh"}
    entry = "{code: script_differs, files: [runs/a.yaml], reason: The script was changed after the run.}"
    checked.run(script=changed, settings={"data.train_batch_size": 16})
    checked.suppress(entry)
    assert checked.codes() == []
    assert checked.codes(repository) == []
    checked.run(script=changed, settings={"data.train_batch_size": 8})
    assert checked.codes() == []
    assert checked.codes(repository) == ["stale_exception"]


def test_entries_by_name(checked):
    card = "name: {}, vendor: nvidia, memory_gb: 80, memory_mib: 81559, kind: reading"
    checked.run()
    checked.write(
        "gpus.yaml",
        "# yaml-language-server: $schema=schema/gpus.json\ngpus:\n"
        + "".join(f"  - {{{card.format(name)}}}\n" for name in ("X1", "X2")),
    )
    entry = "{{code: unused_entry, files: [gpus.yaml], names: [{}], reason: Readers plan with it.}}"
    checked.suppress(entry.format("X1"))
    (found,) = checked.problems()
    assert "X2: no run and no case uses this GPU" in found
    checked.suppress(entry.format("X1, X2, X3"))
    (found,) = checked.problems()
    assert "no warning unused_entry is about 'X3'" in found
    assert found.startswith("data/exceptions.yaml:3:62: ERROR: ")
    checked.suppress(entry.format("X1, X2"))
    assert checked.codes() == []


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{code: no_evidense, files: [a], reason: It is as it is.}", "there is no code 'no_evidense'; did you mean 'no_evidence'?"),
        ("{code: verl.no_evidence, files: [a], reason: It is as it is.}", "did you mean 'no_evidence'?"),
        ("{code: no_evidence, files: [], reason: It is as it is.}", "files: expected at least one item"),
        ("{code: no_evidence, files: [a, a], reason: It is as it is.}", "duplicate entry 'a'"),
        ("{code: no_evidence, files: [a]}", "the key 'reason' is missing"),
        ("{code: no_evidence, files: [a], reason: known}", "expected a sentence with a full stop"),
        ("{code: no_evidence, files: [a], reason: TODO say why it is so.}", "the value is still TODO"),
        ("{code: no_evidence, file: [a], reason: It is as it is.}", "unknown key 'file'; did you mean 'files'?"),
    ],
)  # fmt: skip
def test_exceptions_that_say_too_little(checked, entry, message):
    checked.run(evidence=...)
    checked.suppress(entry)
    found = checked.problems()
    assert len(found) == 2  # a file with errors excuses nothing
    assert message in found[0]
    assert found[0].startswith("data/exceptions.yaml:3:")


def test_each_directory_has_its_own(checked, base):
    from sphinx_verl_resources.lint.check import check_data
    from sphinx_verl_resources.lint.context import CheckContext

    checked.run(evidence=...)
    checked.suppress(LOST)
    (checked.path / "data").rename(checked.path / "first")
    checked.run("b", evidence=..., gpus={"count": 4, "type": "H100"})
    directories = [configured_directory(name, checked.path) for name in ("first", "data")]
    today = max(run.run.added for run in CheckContext(directories, bundled=base).runs)
    found = check_data(CheckContext(directories, bundled=base, today=today)).problems
    assert [(item.place.path, item.code.name) for item in found] == [("data/runs/b.yaml", "no_evidence")]


DAY = "published_before: 2025-06-13\n"


def test_what_old_runs_lack_is_counted_and_no_warning(checked):
    checked.run(evidence=..., versions=..., added=date(2025, 6, 12))
    checked.run("b", evidence=..., added=date(2025, 6, 13), gpus={"count": 4, "type": "H100"})
    assert checked.codes() == ["no_evidence", "no_version", "no_evidence"]
    checked.write("exceptions.yaml", DAY)
    result = checked.check()
    assert [(item.place.path, item.code.name) for item in result.problems] == [
        ("data/runs/b.yaml", "no_evidence")
    ]
    assert [item.problem.code.name for item in result.gaps] == ["no_evidence", "no_version"]
    assert {item.reason for item in result.gaps} == {"The run was published before 2025-06-13."}
    assert (result.suppressed, str(result.published_before)) == ((), "2025-06-13")


def test_other_warnings_about_old_runs_stay(checked):
    script = {"ref": "main", "path": "examples/a.sh"}
    checked.run(script=script, evidence=..., added=date(2025, 6, 12))
    checked.write("exceptions.yaml", DAY)
    assert checked.codes() == ["moving_ref"]


def test_a_run_without_a_day_is_new(checked):
    checked.run(evidence=..., added=...)
    checked.write("exceptions.yaml", DAY)
    assert sorted(checked.codes()) == ["no_date", "no_evidence"]


def test_an_exception_about_an_old_run_is_not_stale(checked):
    checked.run(evidence=..., added=date(2025, 6, 12))
    checked.write("exceptions.yaml", f"{DAY}exceptions:\n  - {LOST}\n")
    result = checked.check()
    assert (result.problems, len(result.suppressed), result.gaps) == ((), 1, ())


def test_the_package_knows_the_day_of_verls_page_and_a_directory_another(checked, tmp_path):
    bundled = configured_directory("package", tmp_path)
    shutil.copytree(checked.base.path, bundled.path)
    (bundled.path / "exceptions.yaml").write_text((bundled_directory().path / "exceptions.yaml").read_text())
    checked = replace(checked, base=bundled)
    checked.run(evidence=..., added=date(2025, 6, 25))
    assert checked.codes() == []
    checked.run(evidence=..., added=date(2025, 6, 26))
    assert checked.codes() == ["no_evidence"]
    checked.write("exceptions.yaml", "published_before: 2025-06-27\n")
    assert checked.codes() == []
    checked.write("exceptions.yaml", "published_before: soon\n")
    assert checked.codes()[1:] == ["no_evidence"]


def test_the_summary_counts_gaps(checked, monkeypatch, capsys):
    monkeypatch.chdir(checked.path)
    checked.run(evidence=..., versions=..., added=date(2025, 6, 25))
    checked.run("b", evidence=..., added=date(2025, 6, 26), gpus={"count": 4, "type": "H100"})
    assert main(["check"]) == 0
    end = "2 gaps in rows published before 2025-06-26\n"
    assert capsys.readouterr().out == f"data: 2 runs, 0 errors, 1 warning, {end}"
    assert main(["check", "data/runs/b.yaml"]) == 0
    assert capsys.readouterr().out == "data: 2 runs, 0 errors, 1 warning\n"
    assert main(["check", "--format", "sarif"]) == 0
    results = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    assert len([item for item in results if "suppressions" in item]) == 2


def test_a_file_that_cannot_be_read(checked):
    checked.run()
    (checked.path / "data/exceptions.yaml").mkdir()
    (found,) = checked.problems()
    assert found.startswith("data/exceptions.yaml:1:1: ERROR: the file cannot be read: not a regular file")


def test_builds_take_no_notice(own, data):
    """A build does not warn about the file, change pages for it, or read pages again."""
    data.run("a")
    own.page(".. verl-runs:: 7B\n")
    assert own.build().warnings == []
    data.write("exceptions.yaml", "nonsense")
    built = own.build()
    assert (built.warnings, built.read) == ([], set())


def test_a_misspelt_name_of_the_file_is_named(checked):
    checked.run()
    checked.write("exception.yaml", "exceptions: []\n")
    (found,) = checked.problems()
    assert "the file 'exception.yaml' is not read; did you mean 'exceptions.yaml'?" in found
