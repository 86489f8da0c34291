"""Hand-written pages and their tables: reading, corrections and messages."""

from __future__ import annotations

from textwrap import dedent

import pytest
from docutils.parsers.rst import directives, languages, roles
from docutils.utils import new_document
from hypothesis import given, settings
from hypothesis import strategies as st
from typed_pages import COLUMNS, COMMIT, listed, page_of, read

from sphinx_verl_resources.catalog.yaml_data import MAX_BYTES
from sphinx_verl_resources.diagnostics import Code, NoAnswerError, Severity


def test_a_row():
    page = read(page_of(listed(COLUMNS.values())))
    assert dict(page.runs[0].fields) == {
        "id": "qwen2-5-7b-grpo-2xh800", "size": "7B", "tag": "MIN", "model": "Qwen/Qwen2.5-7B-Instruct",
        "task": "GRPO", "gpus": {"count": 2, "type": "H800"}, "max_batch": 16, "train": "fsdp",
        "infer": {"engine": "vllm", "version": "0.8.2"}, "script": {"ref": COMMIT, "path": "examples/a.sh"},
        "contributor": {"name": "Jane"},
    }  # fmt: skip
    assert [str(problem) for problem in page.problems] == [
        "page.rst:19:1: WARNING: Model: the label 'Qwen2.5-7B-Instruct' is read as the model "
        "Qwen/Qwen2.5-7B-Instruct; if the script loads another model, use --model "
        "Qwen2.5-7B-Instruct=CHECKPOINT [verl.page_assumed]"
    ]


GRID = """
+------+---------------------+------+-----------+-------+------------+
| TAG  | Model               | task | resource  | TRAIN | infer      |
+======+=====================+======+===========+=======+============+
| min  | Qwen2.5-7B-Instruct | GRPO | 2 x H800  | FSDP  | vLLM 0.8.2 |
+------+---------------------+------+-----------+-------+------------+
"""
SIMPLE = r"""
====  ===================  =====  ========  =======  ===========  ==========
Tag   Model                Task   Resource  Train    Infer        Max Batch
====  ===================  =====  ========  =======  ===========  ==========
MIN   Qwen2.5-7B-Instruct  GRPO   2×H800    fsdp     vllm==0.8.2  \
====  ===================  =====  ========  =======  ===========  ==========
"""
CSV = """
.. csv-table::
   :header: Infer, Train, Resource, Task, Model, Tag, MaxBatch

   vllm-0.8.2, fsdp, 2*H800, GRPO, Qwen2.5-7B-Instruct, MIN, N/A
"""


@pytest.mark.parametrize(
    "table", [GRID, SIMPLE, CSV, f".. table::\n   :widths: auto\n{SIMPLE}".replace("\n", "\n   ")]
)
@pytest.mark.parametrize("heading", ["7B\n~~", "7b models\n---------", "~~~\n7B\n~~~", "7 B\n~~~"])
def test_tables_of_every_kind_under_headings_of_any_level(table, heading):
    if table.startswith(".. table"):
        table = table.replace("   .. table", ".. table")
    page = read(page_of(table, heading))
    (run,) = page.runs
    assert run.fields["gpus"] == {"count": 2, "type": "H800"}
    assert run.fields["infer"] == {"engine": "vllm", "version": "0.8.2"}
    assert (run.fields["size"], run.fields["tag"], run.fields["train"]) == ("7B", "MIN", "fsdp")
    assert {problem.code for problem in page.problems} == {Code.page_assumed, Code.page_mended}


def test_columns_that_are_not_known_or_there_twice():
    headings = [*COLUMNS, "Colour", "Tag"]
    page = read(page_of(listed([*COLUMNS.values(), "red", "RECOMMENDED"], headings=headings)))
    assert page.runs[0].fields["tag"] == "MIN"
    messages = [problem.message for problem in page.problems if problem.code is Code.page_cell]
    assert messages == [
        "unknown or repeated column 'Colour'; it is left out", "unknown or repeated column 'Tag'; it is left out",
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), [
    (page_of(listed(COLUMNS.values()) + "\n   Some words.\n"), "The list-table must contain exactly one list; the table is not read"),
    (page_of(listed(COLUMNS.values()).replace("   * -", "     * -").replace("     -", "       -")), "must contain exactly one list"),
    (page_of(listed(COLUMNS.values()), "7B and 14B\n----------"), "the heading '7B and 14B' is not a size class"),
    (page_of(listed(COLUMNS.values(), headings=[*[*COLUMNS][:-1], ""])).replace("Jane", "J"), "unknown or repeated column ''; it is left out; allowed: Contributor"),
    ("No table.\n", "the page contains no runs"),
    (page_of(listed(COLUMNS.values()), "Others\n------"), "is not under the heading of a size class"),
    (page_of(listed(COLUMNS.values()), "8B\n--"), "the heading '8B' is not a size class"),
    (page_of(listed(["a", "b"], headings=["One", "Two"])), "no column Tag, Model, Task, Resource, Train, Infer; its rows are not read; write all headings in its first row"),
    (page_of(listed(["MIN", "m", "GRPO"], headings=["Tag", "Model", "Task"])), "no column Resource, Train, Infer"),
    (page_of(".. list-table::\n\n   * - Tag\n     - Model\n     - Task\n   * none\n"), "no column Resource"),
    (page_of(".. csv-table::\n   :file: /etc/hostname\n"), "File and URL access deactivated"),
    (page_of("=== ===\nTag Model\n=== ===\n12345 7\n=== ===\n"), "Malformed table"),
])  # fmt: skip
def test_tables_that_are_not_understood(text, words):
    page = read(text)
    assert not page.runs or "left out" in words
    assert any(words in problem.text and problem.is_error for problem in page.problems), page.problems


def test_a_row_without_its_cells_is_named_by_its_line():
    page = read(page_of(listed(COLUMNS.values()).replace("   * - MIN", "   * MIN")))
    said = [str(problem) for problem in page.problems if problem.code is Code.page_row]
    assert said == [
        "page.rst:19:1: ERROR: 0 cells under 9 headings; missing: Tag, Model, Task, Resource, MaxBatch, Train, "
        "Infer, Link, Contributor; no run file is written; the cells read as nothing [verl.page_row]"
    ]


def test_a_name_that_leads_nowhere_loses_no_table():
    page = read(page_of(listed(COLUMNS.values())) + "\nSee `the table of models`_.\n")
    found = [problem for problem in page.problems if problem.code is Code.page_syntax]
    assert [problem.severity for problem in found] == [Severity.WARNING]


def test_other_tables_of_the_page_do_not_matter():
    other = listed(["a", "b"], headings=["One", "Two"])
    page = read(f"Title\n=====\n\n{other}\n7B\n--\n\n{listed(COLUMNS.values())}")
    assert len(page.runs) == 1
    assert {problem.code for problem in page.problems} == {Code.page_assumed}


def test_ids_differ():
    page = read(page_of(listed(*[COLUMNS.values()] * 3)))
    assert [run.record.id for run in page.runs] == [
        "qwen2-5-7b-grpo-2xh800", "qwen2-5-7b-grpo-2xh800-fsdp", "qwen2-5-7b-grpo-2xh800-fsdp-2",
    ]  # fmt: skip


@pytest.mark.parametrize(("line", "added"), [
    ("Last updated: 06/25/2025.", "2025-06-25"), ("*Last updated*: 2025-06-25", "2025-06-25"),
    ("Last updated: 25/06/2025.", None), ("Updated lately.", None), ("**Last update**: 2025/6/25", "2025-06-25"),
    ("Last updated: June 25, 2025.", None), ("Last updated: 06/25/2025, by Jane.", "2025-06-25"),
    ("Last updated 2025.06.25", "2025-06-25"), ("Updated last: 2025.06.25", None),
])  # fmt: skip
def test_the_day_of_the_page(line, added):
    page = read(f"Title\n=====\n\n{line}\n\n7B\n--\n\n{listed(COLUMNS.values())}")
    assert str(page.runs[0].fields.get("added")) == str(added)
    places = [problem.place.line for problem in page.problems if "date" in problem.message]
    assert places == ([4] if "Last " in line else [])


@pytest.mark.parametrize(
    ("underline", "mended"), [("~~~", "3 characters"), ("~", "1 character"), ("~~~~", "")]
)
@pytest.mark.parametrize("title", ["1.5B", "1.5B models"])
def test_underlines_that_are_too_short(underline, mended, title):
    page = read(page_of(listed(COLUMNS.values()), f"{title}\n{underline}"))
    assert page.runs[0].fields["size"] == "1.5B"
    found = [problem for problem in page.problems if problem.code is Code.page_mended]
    if title == "1.5B":
        assert bool(found) == bool(mended)
    message = f"the underline of the heading {title!r} has {mended or '4 characters'}"
    assert [(problem.place.line, problem.message) for problem in found] == [(5, message)] * len(found)


def test_what_only_sphinx_knows_is_no_obstacle():
    before = directives.directive, roles.role
    text = dedent("""
        :orphan:

        .. role:: mine
        .. default-role:: math
        .. include:: /etc/hostname
        .. raw:: html

           <script>
        .. toctree::
           :hidden:

           a
        .. code-block:: python
           :caption: x

           See :doc:`a` and |x|.
        .. tab-set::
           :sync: a

           .. tab-item:: One

        """)
    inside = "".join(f"      {line}\n" if line else "\n" for line in listed(COLUMNS.values()).split("\n"))
    page = read(
        f"{text}{inside}\nEnd with :ref:`text <label>`.\n".replace(".. tab-set", "\n7B\n--\n\n.. tab-set")
    )
    assert len(page.runs) == 1
    assert {problem.code for problem in page.problems} == {Code.page_assumed}
    assert before == (directives.directive, roles.role)
    # Definitions end with the page.
    context = languages.get_language("en"), 1, new_document("").reporter
    assert roles.role("mine", *context)[0] is None


def test_files_that_a_page_names_stay_closed_whatever_docutils_is_configured_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docutils.conf").write_text("[general]\nfile_insertion_enabled: yes\n")
    (tmp_path / "rows.csv").write_text(",".join(COLUMNS))
    page = read(page_of(".. csv-table::\n   :file: rows.csv\n"))
    assert any("File and URL access deactivated" in problem.message for problem in page.problems)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_encodings(encoding, ends):
    text = page_of(listed({**COLUMNS, "Contributor": "Zoë 张"}.values())).replace("\n", ends)
    assert read(text.encode(encoding)).runs[0].fields["contributor"] == {"name": "Zoë 张"}


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_lines_are_counted_as_an_editor_counts_them(separator):
    text = f"Title\n=====\n\na{separator}b\n\n1.5B\n~~~\n\n{listed(COLUMNS.values())}"
    page = read(text)
    assert [(run.fields["size"], run.place.line) for run in page.runs] == [("1.5B", 21)]
    assert [problem.place.line for problem in page.problems] == [7, 21]


@pytest.mark.parametrize(("content", "said"), [
    ("7B\n".encode("utf-16-le"), "page.rst:1:1: ERROR: NUL character, as in UTF-32 or in UTF-16 without a byte order mark; save the page as UTF-8 [verl.encoding]"),
    (b"a\n" + b"\t" * 1250 + b"x", "page.rst:2:1: ERROR: the line is longer than 10000 characters; break it; docutils rejects longer lines [verl.page_syntax]"),
    (b"ok\n\xff", "page.rst:2:1: ERROR: the page is not UTF-8 text; save it as UTF-8 [verl.encoding]"),
    ("7B".encode("utf-32"), "page.rst:1:1: ERROR: NUL character, as in UTF-32 or in UTF-16 without a byte order mark; save the page as UTF-8 [verl.encoding]"),
    (b"\xff\xfea", "page.rst:1:1: ERROR: the page is not UTF-16 text; save it as UTF-8 [verl.encoding]"),
    (b" " * (MAX_BYTES + 1), "page.rst:1:1: ERROR: the page is larger than 1 MiB; import it in parts [verl.file_too_large]"),
])  # fmt: skip
def test_pages_that_cannot_be_read(content, said):
    with pytest.raises(NoAnswerError) as caught:
        read(content)
    assert [str(problem) for problem in caught.value.diagnostics] == [said]


PIECES = st.sampled_from([
    "7B", "~~~", "==", "=== ===", ".. list-table::", "   :header-rows: 1", "", "   * - Tag", "     - Model", "     - Task",
    "   * - MIN", "     - `a <b>`_", "     - \\", ".. csv-table:: x", "   a, b, \"c", "+---+---+", "| a | b |", "|x|", "__ x",
    ".. |x| replace:: |x|", ".. role:: a(b)", ".. default-role:: c", "`a`_ b_ c__", ".. _a: b_", ".. _b: a_", "*", "[1]_ [#]_",
    "..", "::", "   * ", ".. class:: x", ".. table::", ".. unknown:: y", "   :o: p", ":r:`q <s>`", "a@example.org", "\t-",
])  # fmt: skip


@settings(deadline=None)
@given(st.one_of(st.text(), st.lists(PIECES, max_size=25).map("\n".join), st.binary()))
def test_any_text_gives_a_page_or_a_reason(text):
    try:
        page = read(text)
    except NoAnswerError as error:
        assert error.diagnostics[0].message  # noqa: PT017
    else:
        assert page.runs or page.problems
        assert all(str(problem).startswith("page.rst:") for problem in page.problems)
