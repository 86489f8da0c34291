"""Files that are too large, have too many mistakes or a wrong name, or are not files."""

from __future__ import annotations

from sphinx_verl_resources.diagnostics import listed


def test_a_flood_of_problems_is_cut_short(data, make_run_text):
    data.write("runs/a.yaml", make_run_text() + "".join(f"k{index}: 1\n" for index in range(4000)))
    problems = [str(problem) for problem in listed(data.load().diagnostics)]
    assert len(problems) == 51
    assert "3950 more problems are not listed; fix the others first" in problems[-1]
    data.write("runs/a.yaml", "\x01\n" * 100_000)
    assert len(data.problems()) == 50


def test_no_line_is_endless(data, make_run_text):
    data.write(
        "runs/a.yaml",
        make_run_text() + f"{'k' * 1000}: 1\n" + f"label: {'x' * 100_000}\n" + f"added: {'y' * 100_000}\n",
    )
    data.write("runs/b.yaml", make_run_text(id="b", tag="M" * 100_000))
    problems = data.problems()
    assert len(problems) == 4
    assert max(map(len, problems)) < 1500


def test_a_key_many_times(data, make_run_text):
    data.write("runs/a.yaml", make_run_text() + "id: a\n" * 10_000)
    assert len(data.problems()) == 50


def test_twenty_megabytes_are_not_read(data):
    data.write("runs/a.yaml", b"# " + b"x" * 20_000_000)
    assert data.problems() == [
        "data/runs/a.yaml:1:1: ERROR: the file is larger than 1 MiB and was not read; split it; a run file has "
        "a few kilobytes [verl.file_too_large]"
    ]


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


def test_what_is_no_file(data):
    (data.path / "runs" / "a.yaml").mkdir()
    (data.path / "runs" / "b.yaml").symlink_to("nowhere")
    problems = data.problems()
    assert (
        problems[0]
        == "data/runs/a.yaml:1:1: ERROR: cannot be read: not a regular file; check its permissions, or delete it [verl.file_unreadable]"
    )
    assert (
        problems[1]
        == "data/runs/b.yaml:1:1: ERROR: cannot be read: No such file or directory; check its permissions, or delete it [verl.file_unreadable]"
    )
