"""Cells of hand-typed pages: reading, corrections and messages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typed_pages import COLUMNS, COMMIT, FACTS, KNOWN, REPOSITORY, listed, page_of, read

from sphinx_verl_resources.diagnostics import Code
from sphinx_verl_resources.intake.page import Known


def one(known: Known = KNOWN, **changes):
    """Return the fields of a row with these cells, and the codes of its messages."""
    page = read(page_of(listed({**COLUMNS, **changes}.values())), known)
    fields = dict(page.runs[0].fields) if page.runs else None
    return fields, [problem.code for problem in page.problems if problem.code is not Code.page_assumed]


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
    if "anonymous" in cell or "named" in cell:  # docutils reports the unused one
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
        assert "model: TODO  # unknown model 'Qwen2-14B'; the nearest is Qwen/Qwen2" in run.text


def test_checkpoints_that_the_user_names():
    known = Known(FACTS.gpus, FACTS.architectures, {"Qwen2-14B": "Qwen/Qwen2.5-Coder-14B-Instruct"})
    fields, codes = one(known, Model="Qwen2-14B")
    assert (fields["model"], fields["label"]) == ("Qwen/Qwen2.5-Coder-14B-Instruct", "Qwen2-14B")
    assert (fields["id"], codes) == ("qwen2-5-coder-14b-grpo-2xh800", [])


@pytest.mark.parametrize(("changes", "written", "code", "words"), [
    ({"Resource": "8*H900"}, True, Code.unknown_gpu, "unknown GPU 'H900'; it is kept"),
    ({"MaxBatch": "many"}, True, Code.page_cell, "MaxBatch: invalid value 'many'"),
    ({"Model": link("https://example.org")}, True, Code.page_link, "a link is left out"),
    ({"Resource": "２*H800"}, False, Code.page_cell, "Resource: invalid value '２*H800'"),
    ({"Link": "`a.sh <x/a.sh>`"}, True, Code.page_link, "'a.sh <x/a.sh>' is not a single link to a script"),
    ({"Resource": "some"}, False, Code.page_cell, "Resource: invalid value 'some'"),
    ({"Tag": "MAX"}, False, Code.page_cell, "Tag: invalid value 'MAX'"),
    ({"Train": "deepspeed"}, False, Code.page_cell, "Train: invalid value 'deepspeed'"),
    ({"Infer": "llama"}, False, Code.page_cell, "Infer: invalid value 'llama'"),
    ({"Task": "\\"}, False, Code.page_row, "the row is left out, because it lacks Task"),
    ({"Task": "TODO"}, False, Code.todo, "the row is left out: task: the value is still TODO"),
    ({"Task": "x" * 300}, False, Code.wrong_value, "the row is left out: task"),
])  # fmt: skip
def test_cells_that_are_not_understood(changes, written, code, words):
    page = read(page_of(listed({**COLUMNS, **changes}.values(), COLUMNS.values())))
    assert len(page.runs) == (2 if written else 1)
    assert any(problem.code is code and words in problem.named_message for problem in page.problems)
    assert {problem.place.line for problem in page.problems} <= {19, 28}


def test_links_of_one_text_keep_their_addresses():
    """Some versions of docutils report them."""
    script = "https://github.com/volcengine/verl/blob/v0.4.0/examples/{}/a.sh"
    rows = [[*[*COLUMNS.values()][:7], link(script.format(name)), "Jane"] for name in ("one", "two")]
    page = read(page_of(listed(*rows)))
    assert [run.fields["script"]["path"] for run in page.runs] == ["examples/one/a.sh", "examples/two/a.sh"]
    assert Code.page_syntax not in {problem.code for problem in page.problems}
    targets = ".. _x: https://example.org/1\n.. _x: https://example.org/2\n\nSee x_.\n"
    texts = [problem.text for problem in read(page_of(f"{targets}\n{listed(COLUMNS.values())}")).problems]
    assert any("cannot be used as a unique reference" in text for text in texts)
    assert not any("Duplicate explicit" in text for text in texts)


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
