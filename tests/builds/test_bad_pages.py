"""Mistakes in pages, data and configuration: a message with a place, a visible placeholder, no traceback."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


def located(build) -> list[str]:
    """The messages without the directory of the project."""
    prefix = f"{build.app.srcdir}/"
    assert all(warning.startswith(prefix) for warning in build.warnings), build.warnings
    return [warning.removeprefix(prefix) for warning in build.warnings]


#: Arguments, options and text of a directive, and the start of the message about it.
WRONG = [
    (('verl-runs 7X',), "unknown size class '7X'; the size classes are 0.5B, 1.5B, 3B, 7B, 14B, 32B, 70B, 122B, 235B, 405B, 671B [verl.unknown_size]"),
    (('verl-runs 7B 7b',), "the size class '7b' is given twice; keep one of the two [verl.directive]"),
    (('verl-runs', ':columns: modle'), ":columns: unknown field 'modle'; did you mean 'model'? [verl.directive]"),
    (('verl-runs', ':gpu: H1000'), ":gpu: unknown value 'H1000'; did you mean 'H100'? If not, add it to gpus.yaml [verl.directive]"),
    (('verl-runs ,',), 'name at least one size class, or leave the argument out [verl.unknown_size]'),
    (('verl-runs', ':columns: settings.'), ":columns: 'settings.' needs a key of verl's configuration after the dot [verl.directive]"),
    (('verl-runs', ':task: ,'), ':task: name at least one value [verl.directive]'),
    (('verl-runs', ':colums: tag'), ":colums: unknown option; did you mean 'columns'? [verl.directive]"),
    (('verl-runs', ':tag:'), ':tag: a value is missing; write one [verl.directive]'),
    (('verl-runs', ':hide-empty: no'), ":hide-empty: takes no value, got 'no'; remove it [verl.directive]"),
    (('verl-runs', ':name: x'), ':name: requires :caption:, which makes one table [verl.directive]'),
    (('verl-runs', ':tag: MIN', '', 'Text.'), 'the directive takes no text; remove the text [verl.directive]'),
]  # fmt: skip


@pytest.fixture(scope="module", params=["rst", pytest.param("md", marks=pytest.mark.slow)])
def wrong(request, build_together, written, make_run_text):
    """A page for each of ``WRONG``, in both languages, in one build."""
    suffix = request.param
    pages = {f"wrong-{number}.{suffix}": written(lines, suffix) for number, (lines, _) in enumerate(WRONG)}
    return suffix, build_together(pages, {"runs/a.yaml": make_run_text(id="a")})


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_directive(wrong, number):
    suffix, together = wrong
    message = WRONG[number][1]
    found = together.problems[f"wrong-{number}.{suffix}"]
    assert list(found) == [1]
    assert found[1].startswith(f"ERROR: verl-runs: {message}")
    box = together.build.soup(f"wrong-{number}.html").select_one(".verl-problem")
    assert message.split(" [verl")[0] in box.get_text()


def test_everything_wrong_with_a_directive_at_once(own, data):
    data.run("a")
    build = own.page(
        ".. verl-runs:: 7X\n   :gpu: H1000\n   :columns: modle\n   :colour: red\n   :tag: X\n"
    ).build()
    found = [line.split("verl-runs: ")[1].split(";")[0] for line in build.warnings]
    assert found == [
        ":columns: unknown field 'modle'", ":colour: unknown option",
    ]  # fmt: skip
    assert len(build.soup().select(".verl-problem")) == 2


def test_a_broken_run_of_a_class_that_the_page_does_not_show_otherwise(own, data):
    data.run("a", size="235B", tag="X")
    build = own.page(".. verl-runs::").build()
    (box,) = build.soup().select(".verl-problem")
    assert box.find_parent("section")["id"] == "size-235b"


def test_a_setting_that_no_run_records(own, data):
    data.run("a", settings={"data.max_prompt_length": 1})
    build = own.page(".. verl-runs:: 7B\n   :columns: id settings.data.max_prompt_lenght\n").build()
    assert located(build) == [
        "index.rst:4: WARNING: verl-runs: no run records the setting 'data.max_prompt_lenght'; did you mean "
        "'data.max_prompt_length'? [verl.directive]"
    ]
    assert build.rows("size-7b")[1] == ["a", ""]


@pytest.mark.slow
def test_strict_builds_fail_as_long_as_the_data_are_wrong(own, data):
    data.run("a", tag="X")
    own.page(".. verl-runs:: 3B").build()
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        str(own.path),
        str(own.path / "_out"),
    ]
    for _ in range(2):
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode != 0
        assert "../data/runs/a.yaml:3:6: ERROR: tag: unknown value 'X'" in result.stderr
        assert "Traceback" not in result.stderr
    data.run("a")
    assert subprocess.run(command, capture_output=True).returncode == 0


def test_role(own, data):
    data.run("a")
    build = own.page("There are :verl:data:`rums` runs.").build()
    assert located(build) == [
        "index.rst:4: ERROR: verl:data: unknown figure 'rums'; did you mean 'runs'? [verl.directive]"
    ]
    assert "There are [verl:data: unknown figure 'rums'] runs." in build.soup().get_text()


def test_a_broken_run_leaves_a_box_under_its_size_and_the_others_stay(own, data):
    data.run("a")
    data.write("runs/b.yaml", "id: b\nsize: 7B\nmodle: x\n")
    data.write("runs/c.yaml", "c: [")
    build = own.page(".. verl-runs::").build()
    assert build.warnings[0] == (
        "../data/runs/b.yaml:1:1: ERROR: the key 'gpus' is missing; add it: Number of GPUs over all nodes, and their type, for example gpus: {count: 4, type: H800} [verl.missing_key]"
    )
    assert any(
        line.startswith("../data/runs/c.yaml:1:5: ERROR: a value is missing") for line in build.warnings
    )
    assert all("Traceback" not in line for line in build.warnings)
    boxes = {box.find_parent("section")["id"]: box.get_text() for box in build.soup().select(".verl-problem")}
    assert "../data/runs/b.yaml has errors and is not shown" in boxes["size-7b"]
    assert "../data/runs/c.yaml has errors" in boxes["size-0-5b"]
    assert len(build.rows("size-7b")) == 2


def test_a_run_with_wrong_settings_is_shown(own, data):
    """``check`` reports keys that verl does not have."""
    data.run("a", settings={"data.max_respone_length": 1024})
    data.run("b", settings={"actor_rollout_ref.rollout.tensor_model_parallel_size": 3})
    build = own.page(".. verl-runs:: 7B").build()
    assert build.warnings == []
    assert len(build.rows("size-7b")) == 3


def test_problems_are_printed_once_however_many_pages_ask(own, data):
    data.run("a", tag="X")
    own.page(".. verl-runs::\n\n.. verl-runs:: 7B\n").page(".. verl-runs:: 7B", "other.rst")
    assert len(own.build().warnings) == 1


def test_nothing_is_printed_where_no_page_asks(own, data):
    data.run("a", tag="X")
    assert own.page("Text.").build().warnings == []


def test_a_warning_can_be_suppressed_by_its_code(own, data):
    data.run("a", tag="X")
    data.write("runs/b.txt", "x")
    own.page(".. verl-runs:: 7B")
    assert len(own.build().warnings) == 2
    (left,) = own.build(suppress_warnings=["verl.unknown_value"], fresh=True).warnings
    assert left.endswith("[verl.file_unexpected]")


@pytest.mark.parametrize("shown", [True, False])
def test_the_code_is_there_once_whether_sphinx_adds_it_or_not(own, data, shown):
    data.run("a", tag="X")
    (line,) = own.page(".. verl-runs:: 7B").build(show_warning_types=shown).warnings
    assert line.count("[verl.unknown_value]") == 1


def test_missing_directory_is_reported_at_its_line_of_conf_py(own):
    build = own.page(".. verl-runs:: 7B").build(verl_resources_data=["../nowhere"], project="x")
    assert build.warnings == [
        "conf.py:2:1: ERROR: the data directory '../nowhere' does not exist; the path is relative to the directory of "
        "conf.py [verl.file_unreadable]"
    ]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("script_url", "https://x.org/{ref}", "must contain {ref} and {path} and no other placeholder"),
        (
            "script_url",
            "https://x.org/{ref}/{path",
            "is not a valid template: expected '}' before end of string",
        ),
        ("script_url", "javascript:{ref}{path}", "must begin with https:// and contain no spaces or quotes"),
        ("commit_url", "https://x.org/", "must contain {ref} and no other placeholder"),
    ],
)
def test_bad_templates(own, data, name, value, message):
    data.run("a", script={"ref": "abc", "path": "x.sh"})
    build = own.page(".. verl-runs:: 7B").build(**{f"verl_resources_{name}": value})
    assert build.warnings == [
        f"conf.py:3:1: ERROR: verl_resources_{name} {message}; the default is used instead [verl.config]"
    ]
    assert build.soup().select_one("table.verl-runs tbody a")["href"].startswith("https://github.com/")


def test_a_label_that_does_not_exist(own, data):
    own.page(".. verl-runs:: 405B")
    assert own.build().warnings == [], "the default may be missing"
    for value in ("typo-label", "javascript:alert(1)"):
        build = own.build(verl_resources_add_run=value)
        assert build.warnings == [
            f"conf.py:3:1: ERROR: verl_resources_add_run: {value!r} is neither an address nor a label; write an address "
            "that begins with https://, or the label of a heading [verl.config]"
        ]
        assert build.soup().select_one(".verl-empty code").get_text() == "verl-resources new --help"
    own.page(".. _Typo-Label:\n\nText\n----\n\nText.\n", "other.rst")
    build = own.build(verl_resources_add_run="typo-label")
    assert build.warnings == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../conf-is-a-file", "cannot be read: Not a directory"),
        ("../empty", "contains no data"),
        ("../" + "a" * 5000, "cannot be read: File name too long"),
    ],
)
def test_directories_that_are_none(own, tmp_path, name, message):
    (tmp_path / "conf-is-a-file").write_text("x")
    (tmp_path / "empty").mkdir()
    (line,) = own.page(".. verl-runs:: 7B").build(verl_resources_data=[name]).warnings
    assert line.startswith("conf.py:2:1: ERROR: the data directory")
    assert message in line
    assert len(line) < 500


@pytest.mark.parametrize("value", [[3], 5])
def test_data_that_is_no_list_of_names(own, value):
    build = own.page(".. verl-runs:: 7B").build(verl_resources_data=value)
    assert [line for line in build.warnings if "[verl." in line] == [
        'conf.py:2:1: ERROR: verl_resources_data must be a list of directory names; write ["data"], for example '
        "[verl.config]"
    ]


def test_options_that_nobody_can_read_are_reported_by_the_parser(own, data):
    data.run("a")
    own.conf["extensions"] = ["myst_parser"]
    own.page("Text.\n\n.. verl-runs:: 7B\n   :tag: MIN\n   :tag: MIN\n")
    own.page("```{verl-runs} 7B\n:tag MIN\n```\n", "other.md")
    build = own.build()
    lines = [line.replace(f"{build.app.srcdir}/", "") for line in build.warnings]
    places = [line for line in lines if line.startswith(("index.rst", "other.md"))]
    assert places[0].startswith('index.rst:6: ERROR: Error in "verl-runs" directive:')
    # MyST 4 reads the file name as a document name.
    assert re.match(r"other\.md(\.rst)?:\d+: WARNING: 'verl-runs': Invalid options format", places[1])
    assert build.rows("size-7b", "other.html")[1][0] == "MIN"
