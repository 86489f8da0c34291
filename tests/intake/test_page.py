"""Hand-typed pages: what is read of them, what is mended, what is reported."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from docutils.parsers.rst import directives, languages, roles
from docutils.utils import new_document
from hypothesis import given, settings
from hypothesis import strategies as st

from sphinx_verl_resources.catalog.files import DataFile
from sphinx_verl_resources.catalog.yaml_data import MAX_BYTES
from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.diagnostics import Code, NoAnswerError, Severity
from sphinx_verl_resources.intake.page import Known, read_page

FACTS = read_data([]).registries
KNOWN = Known(FACTS.gpus, FACTS.architectures)
COMMIT = "2239fd0ff7210c80ad63e20581924d1f66167429"
REPOSITORY = "https://github.com/verl-project/verl"
COLUMNS = {
    "Tag": "MIN", "Model": "Qwen2.5-7B-Instruct", "Task": "GRPO", "Resource": "2*H800", "MaxBatch": "16",
    "Train": "fsdp", "Infer": "vllm0.8.2", "Link": f"`a.sh <{REPOSITORY}/blob/{COMMIT}/examples/a.sh>`_",
    "Contributor": "Jane",
}  # fmt: skip


def read(text: str | bytes, known: Known = KNOWN):
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return read_page(DataFile(Path("page.rst"), "page.rst", content), known)


def listed(*rows, headings=COLUMNS) -> str:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (headings, *rows):
        lines += [f"   {'  -' if index else '* -'} {cell}" for index, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def page_of(table: str, heading: str = "7B\n~~~") -> str:
    return f"Title\n=====\n\n{heading}\n\n{table}"


def one(known: Known = KNOWN, **changes):
    """The fields of a row with these cells, and the codes of what is said of it."""
    page = read(page_of(listed({**COLUMNS, **changes}.values())), known)
    fields = dict(page.runs[0].fields) if page.runs else None
    return fields, [problem.code for problem in page.problems if problem.code is not Code.page_assumed]


def test_a_row():
    page = read(page_of(listed(COLUMNS.values())))
    assert dict(page.runs[0].fields) == {
        "id": "qwen2-5-7b-grpo-2xh800", "size": "7B", "tag": "MIN", "model": "Qwen/Qwen2.5-7B-Instruct",
        "task": "GRPO", "gpus": {"count": 2, "type": "H800"}, "max_batch": 16, "train": "fsdp",
        "infer": {"engine": "vllm", "version": "0.8.2"}, "script": {"ref": COMMIT, "path": "examples/a.sh"},
        "contributor": {"name": "Jane"},
    }  # fmt: skip
    assert [str(problem) for problem in page.problems] == [
        "page.rst:19:1: WARNING: Model: the model 'Qwen2.5-7B-Instruct' is taken for the checkpoint "
        "Qwen/Qwen2.5-7B-Instruct; see which one the script loads, and say so with --model "
        "Qwen2.5-7B-Instruct=CHECKPOINT if it is another [verl.page_assumed]"
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


@pytest.mark.parametrize(("changes", "message"), [
    ({"Tag": "min"}, "Tag: 'min' is written as 'MIN'"),
    ({"Resource": "2 x H800"}, "Resource: '2 x H800' is written as '2*H800'"),
    ({"MaxBatch": "016"}, "MaxBatch: '016' is written as '16'"),
    ({"Train": "FSDP"}, "Train: 'FSDP' is written as 'fsdp'"),
    ({"Infer": "vLLM 0.8.2"}, "Infer: 'vLLM 0.8.2' is written as 'vllm0.8.2'"),
    ({"Link": f"{REPOSITORY}/blob/{COMMIT}/x/a.sh"}, "Link: '{0} <{0}>' is written as 'a.sh <{0}>'".format(f"{REPOSITORY}/blob/{COMMIT}/x/a.sh")),
    ({}, None),
])  # fmt: skip
def test_other_spellings_are_said(changes, message):
    page = read(page_of(listed({**COLUMNS, **changes}.values())))
    found = [problem.named_message for problem in page.problems if problem.code is Code.page_mended]
    assert found == ([message] if message else [])


@pytest.mark.parametrize("text", ["\\", "/", "-", "", "N/A", "--"])
def test_nothing_recorded(text):
    fields, codes = one(MaxBatch=text, Link=text, Contributor=text)
    assert not {"max_batch", "script", "contributor"} & {*fields}
    assert codes == []
    empty = read(page_of(listed([text] * 9)))
    assert (empty.rows, empty.runs) == (0, [])


@pytest.mark.parametrize(("text", "gpus"), [
    ("4*H800", {"count": 4, "type": "H800"}), ("4 x H800", {"count": 4, "type": "H800"}),
    ("32*H20", {"count": 32, "type": "H20"}), ("8*GPU", {"count": 8, "type": None}),
    ("8*GPU 80 GB", {"count": 8, "type": None, "memory_gb": 80.0}),
])  # fmt: skip
def test_resources(text, gpus):
    fields, _ = one(Resource=text, Tag="stated")
    assert fields["gpus"] == gpus


def test_runs_that_nobody_tested():
    assert one(Tag="MIN (script default)")[0]["kind"] == "script-default"
    assert one(Tag="stated")[0]["tag"] is None


def link(address: str) -> str:
    return f"`a.sh <{address}>`_"


@pytest.mark.parametrize(("cell", "script", "codes"), [
    (link(f"{REPOSITORY}/blob/{COMMIT}/x/a.sh"), {"ref": COMMIT, "path": "x/a.sh"}, []),
    (link(f"{REPOSITORY}/tree/{COMMIT}/x/a.sh"), {"ref": COMMIT, "path": "x/a.sh"}, [Code.page_mended]),
    (link(f"{REPOSITORY.replace('verl-project', 'volcengine')}/blob/{COMMIT}/x/a.sh"), {"ref": COMMIT, "path": "x/a.sh"}, [Code.page_mended]),
    (link(f"{REPOSITORY}/blob/v0.4.0/x/a.sh#L3"), {"ref": "v0.4.0", "path": "x/a.sh"}, [Code.page_mended]),
    (link(f"{REPOSITORY}/blob/main/x/a.sh"), {"ref": "main", "path": "x/a.sh"}, [Code.page_link]),
    (link("../../x/a.sh"), {"ref": "main", "path": "x/a.sh"}, [Code.page_link, Code.page_mended]),
    ("x/a.sh", None, [Code.page_link]),
    ("`b <{}>`__".format(f"{REPOSITORY}/blob/{COMMIT}/x/a.sh"), {"ref": COMMIT, "path": "x/a.sh", "text": "b"}, [Code.page_link]),
    ("`a <{}>`__".format(f"{REPOSITORY}/blob/{COMMIT}/x/a.sh"), {"ref": COMMIT, "path": "x/a.sh", "text": "a"}, []),
    ("named_", {"ref": COMMIT, "path": "x/n.sh", "text": "named"}, [Code.page_link]),
    ("`anonymous`__", {"ref": COMMIT, "path": "x/o.sh", "text": "anonymous"}, [Code.page_link]),
    (f"`a.sh <{REPOSITORY}/blob/{COMMIT}/x/a.sh>`", None, [Code.page_link]),
    ("`gone`_", None, [Code.page_link, Code.page_syntax]),
    ("by hand", None, [Code.page_link]),
    (link("ftp://example.org/a.sh"), None, [Code.page_link]),
])  # fmt: skip
def test_links(cell, script, codes):
    text = page_of(listed({**COLUMNS, "Link": cell}.values()))
    targets = f"\n.. _named: {REPOSITORY}/blob/{COMMIT}/x/n.sh\n__ {REPOSITORY}/blob/{COMMIT}/x/o.sh\n"
    page = read(text + (targets if cell.endswith("_") and "<" not in cell and "gone" not in cell else ""))
    found = sorted(problem.code.name for problem in page.problems if problem.code is not Code.page_assumed)
    if "anonymous" in cell or "named" in cell:  # the one that is not used is docutils' business
        found = [name for name in found if name != "page_syntax"]
    assert page.runs[0].fields.get("script") == script
    assert found == sorted(code.name for code in codes)


def test_links_are_pinned_on_request():
    known = Known(FACTS.gpus, FACTS.architectures, ref=COMMIT)
    fields, codes = one(known, Link=link(f"{REPOSITORY}/blob/main/x/a.sh"))
    assert fields["script"]["ref"] == COMMIT
    assert codes == [Code.page_link, Code.page_mended]
    assert one(known, Link=link(f"{REPOSITORY}/blob/v0.4.0/x/a.sh"))[0]["script"]["ref"] == "v0.4.0"


def test_what_leads_elsewhere_is_evidence():
    fields, codes = one(Link=link("https://example.org/a.sh"))
    assert fields["evidence"] == [{"kind": "document", "url": "https://example.org/a.sh"}]
    assert codes == [Code.page_link]


@pytest.mark.parametrize(("cell", "contributor"), [
    ("Jane Doe", {"name": "Jane Doe"}),
    ("`Jane <https://example.org/jane>`_", {"name": "Jane", "url": "https://example.org/jane"}),
    ("`Jane <mailto:jane@example.org>`_", {"name": "Jane"}),
    ("`Jane <jane@example.org>`_", {"name": "Jane"}),
    ("Jane <jane@example.org>", {"name": "Jane"}),
    ("Jane (jane@example.org)", {"name": "Jane"}),
    ("Jane (a team)", {"name": "Jane (a team)"}),
    ("`Jane <https://social.example/~jane>`_", {"name": "Jane", "url": "https://social.example/~jane"}),
    ("jane@example.org", None),
    ("`jane@example.org <mailto:jane@example.org>`_", None),
])  # fmt: skip
def test_contributors_by_name_and_never_by_mail(cell, contributor):
    page = read(page_of(listed({**COLUMNS, "Contributor": cell}.values())))
    assert page.runs[0].fields.get("contributor") == contributor
    mails = [problem for problem in page.problems if problem.code is Code.email_address]
    assert bool(mails) == ("@" in cell)
    assert all("jane@" not in str(problem) for problem in page.problems)
    assert "jane@" not in page.runs[0].text


@pytest.mark.parametrize(("label", "model", "code"), [
    ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B", None),
    ("Qwen2.5-7B", "Qwen/Qwen2.5-7B", Code.page_assumed),
    ("qwen2.5 7b instruct", "Qwen/Qwen2.5-7B-Instruct", Code.page_assumed),
    ("Qwen2.5-VL-7B", "Qwen/Qwen2.5-VL-7B-Instruct", Code.page_assumed),
    ("Qwen2-14B", "TODO", Code.unknown_model),
    ("A model of ours", "TODO", Code.unknown_model),
])  # fmt: skip
def test_checkpoints_are_known_or_left_open(label, model, code):
    page = read(page_of(listed({**COLUMNS, "Model": label}.values())))
    (run,) = page.runs
    assert run.fields["model"] == model
    assert run.record.short_name == label
    assert [problem.code for problem in page.problems] == ([code] if code else [])
    if label == "Qwen2-14B":
        assert (
            "model: TODO  # there is no checkpoint called 'Qwen2-14B'; the nearest is Qwen/Qwen2" in run.text
        )


def test_checkpoints_that_the_user_names():
    known = Known(FACTS.gpus, FACTS.architectures, {"Qwen2-14B": "Qwen/Qwen2.5-Coder-14B-Instruct"})
    fields, codes = one(known, Model="Qwen2-14B")
    assert (fields["model"], fields["label"]) == ("Qwen/Qwen2.5-Coder-14B-Instruct", "Qwen2-14B")
    assert (fields["id"], codes) == ("qwen2-5-coder-14b-grpo-2xh800", [])


@pytest.mark.parametrize(("changes", "written", "code", "words"), [
    ({"Resource": "8*H900"}, True, Code.unknown_gpu, "unknown GPU 'H900'; it is kept"),
    ({"MaxBatch": "many"}, True, Code.page_cell, "MaxBatch: 'many' is not understood"),
    ({"Model": link("https://example.org")}, True, Code.page_link, "a link is left out"),
    ({"Resource": "２*H800"}, False, Code.page_cell, "Resource: '２*H800' is not understood"),
    ({"Link": "`a.sh <x/a.sh>`"}, True, Code.page_link, "'a.sh <x/a.sh>' is not one link to a script"),
    ({"Resource": "some"}, False, Code.page_cell, "Resource: 'some' is not understood"),
    ({"Tag": "MAX"}, False, Code.page_cell, "Tag: 'MAX' is not understood"),
    ({"Train": "deepspeed"}, False, Code.page_cell, "Train: 'deepspeed' is not understood"),
    ({"Infer": "llama"}, False, Code.page_cell, "Infer: 'llama' is not understood"),
    ({"Task": "\\"}, False, Code.page_row, "the row is left out for lack of Task"),
    ({"Task": "TODO"}, False, Code.todo, "the row is left out: task: TODO"),
    ({"Task": "x" * 300}, False, Code.wrong_value, "the row is left out: task"),
])  # fmt: skip
def test_cells_that_are_not_understood(changes, written, code, words):
    page = read(page_of(listed({**COLUMNS, **changes}.values(), COLUMNS.values())))
    assert len(page.runs) == (2 if written else 1)
    assert any(problem.code is code and words in problem.named_message for problem in page.problems)
    assert {problem.place.line for problem in page.problems} <= {19, 28}


def test_links_of_one_text_keep_their_addresses():
    """docutils has something to say about them, depending on its version."""
    script = "https://github.com/volcengine/verl/blob/v0.4.0/examples/{}/a.sh"
    rows = [[*[*COLUMNS.values()][:7], link(script.format(name)), "Jane"] for name in ("one", "two")]
    page = read(page_of(listed(*rows)))
    assert [run.fields["script"]["path"] for run in page.runs] == ["examples/one/a.sh", "examples/two/a.sh"]
    assert Code.page_syntax not in {problem.code for problem in page.problems}
    targets = ".. _x: https://example.org/1\n.. _x: https://example.org/2\n\nSee x_.\n"
    texts = [problem.text for problem in read(page_of(f"{targets}\n{listed(COLUMNS.values())}")).problems]
    assert any("cannot be used as a unique reference" in text for text in texts)
    assert not any("Duplicate explicit" in text for text in texts)


def test_columns_that_are_not_known_or_there_twice():
    headings = [*COLUMNS, "Colour", "Tag"]
    page = read(page_of(listed([*COLUMNS.values(), "red", "RECOMMENDED"], headings=headings)))
    assert page.runs[0].fields["tag"] == "MIN"
    messages = [problem.message for problem in page.problems if problem.code is Code.page_cell]
    assert messages == [
        "the column 'Colour' is not known or there twice; it is left out", "the column 'Tag' is not known or there twice; it is left out",
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), [
    (page_of(listed(COLUMNS.values()) + "\n   Some words.\n"), "The list-table holds something else than one list; the table is not read"),
    (page_of(listed(COLUMNS.values()).replace("   * -", "     * -").replace("     -", "       -")), "holds something else than one list"),
    (page_of(listed(COLUMNS.values()), "7B and 14B\n----------"), "'7B and 14B', which is not one size class"),
    (page_of(listed(COLUMNS.values(), headings=[*[*COLUMNS][:-1], ""])).replace("Jane", "J"), "the column '' is not known or there twice; it is left out; allowed: Contributor"),
    ("No table.\n", "the page holds no row of runs"),
    (page_of(listed(COLUMNS.values()), "Others\n------"), "stands under no heading that names a size class"),
    (page_of(listed(COLUMNS.values()), "8B\n--"), "'8B', which is not one size class"),
    (page_of(listed(["a", "b"], headings=["One", "Two"])), "no column Tag, Model, Task, Resource, Train, Infer; none of its rows is read; name all columns in its first row"),
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
    # What the page defines ends with the page.
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
    ("7B\n".encode("utf-16-le"), "page.rst:1:1: ERROR: a NUL character, as in UTF-32 or in UTF-16 without a byte order mark; save the page as UTF-8 [verl.encoding]"),
    (b"a\n" + b"\t" * 1250 + b"x", "page.rst:2:1: ERROR: the line is longer than 10000 characters; break it: docutils reads no page with such a line [verl.page_syntax]"),
    (b"ok\n\xff", "page.rst:2:1: ERROR: the page is not UTF-8 text; save it as UTF-8 [verl.encoding]"),
    ("7B".encode("utf-32"), "page.rst:1:1: ERROR: a NUL character, as in UTF-32 or in UTF-16 without a byte order mark; save the page as UTF-8 [verl.encoding]"),
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


@settings(deadline=None)
@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30), min_size=9, max_size=9
    )
)
def test_any_cells_give_a_row_or_a_reason(cells):
    row = [" ".join(cell.split()) for cell in cells]
    page = read(page_of(listed(row, COLUMNS.values())))
    assert page.runs or page.problems
