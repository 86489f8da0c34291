"""Files with endless lines or a wrong name."""

from __future__ import annotations


def test_no_line_is_endless(data, make_run_text):
    data.write(
        "runs/a.yaml",
        make_run_text() + f"{'k' * 1000}: 1\n" + f"label: {'x' * 100_000}\n" + f"added: {'y' * 100_000}\n",
    )
    data.write("runs/b.yaml", make_run_text(id="b", tag="M" * 100_000))
    problems = data.problems()
    assert len(problems) == 4
    assert max(map(len, problems)) < 1500


def test_names_that_are_never_read(data, make_run_text):
    data.write("runs/a.yml", make_run_text())
    data.write("runs/.hidden", "x")
    data.write("runs/README.md", "x")
    data.write("b.yaml", make_run_text())
    assert data.problems() == [
        "data/b.yaml:1:1: WARNING: the file 'b.yaml' is not read; put run files into the folder 'runs' "
        "[verl.file_unexpected]",
        "data/runs/a.yml:1:1: WARNING: the file 'a.yml' is not read; a run file is named <id>.yaml "
        "[verl.file_unexpected]",
    ]
