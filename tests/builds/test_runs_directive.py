"""Tables of ``.. verl-runs::`` in real builds: rows, cells, targets."""

from __future__ import annotations

import pytest


def test_table_structure(own, data):
    data.run("a")
    table = own.page(".. verl-runs:: 7B").build().soup().select_one("table.verl-runs")
    assert [cell.name for cell in table.select("thead tr > *")] == ["th"] * 9
    assert len(table.select("tbody td")) == 9
    assert len(table.select("colgroup col")) == 9
    assert table.select_one("tbody tr td").find(id="run-a")


def test_filters_and_columns_and_sort(own, data):
    data.run("a", settings={"data.max_response_length": 1024}, measured={"gib": 71.25, "counter": "device"})
    data.run("b", task="GRPO-LoRA", gpus={"count": 16, "type": "H20"})
    data.run("c", gpus={"count": 8, "type": "H20"}, script={"ref": "abc", "path": "x/y.sh"})
    data.run("d", size="3B", settings={"data.max_response_length": 512})
    text = ".. verl-runs:: 7B\n   :task: grpo\n   :columns: id gpus measured.gib settings.data.max_response_length link\n   :sort: -gpus\n"
    build = own.page(text).build()
    assert build.warnings == []
    assert build.rows("size-7b") == [
        ["Run", "Resource", "Peak (GiB)", "data.max_response_length", "Link"],
        ["c", "8*H20", "", "", "y.sh"],
        ["a", "2*H100", "71.25", "1024", ""],
    ]


def test_caption_makes_one_table(own, data):
    data.run("a")
    data.run("b", size="3B")
    data.run("c", size="0.5B", kind="stated")
    build = own.page(".. verl-runs::\n   :caption: All of *them*\n").build()
    assert build.warnings == []
    soup = build.soup()
    assert soup.select("section[id^=size-]") == []
    assert soup.select_one("table.verl-runs caption .caption-text").get_text() == "All of *them*"
    assert [target["id"] for target in soup.select("tbody span[id^=run-]")] == ["run-b", "run-a", "run-c"]


def test_what_only_another_builder_shows_takes_no_target_away(own, data):
    data.run("a", notes=[{"code": "x", "text": "A remark."}])
    soup = own.page(".. only:: latex\n\n   .. verl-runs:: 7B\n\n.. verl-runs:: 7B\n").build().soup()
    assert soup.find(id="run-a")
    assert "A remark." in soup.get_text()


def test_a_captioned_table_keeps_its_target_when_its_last_run_breaks(own, data):
    data.run("a", tag="X")
    build = own.page(".. verl-runs:: 7B\n   :caption: All\n   :name: all\n\nSee :ref:`all`.\n").build()
    assert [line.split("[")[-1] for line in build.warnings] == ["verl.unknown_value]"]
    assert build.soup().select_one("table.verl-runs caption").get_text().startswith("All")
    assert build.soup().select_one(".verl-problem")


def test_a_captioned_table_can_be_referred_to(own, data):
    data.run("a")
    text = (
        "See :ref:`one`, :numref:`one` and :numref:`two`.\n\n"
        ".. _one:\n\n.. verl-runs:: 7B\n   :caption: First\n\n"
        ".. verl-runs:: 7B\n   :caption: Second\n   :name: two\n   :class: wide\n"
    )
    build = own.page(text).build(numfig=True)
    assert build.warnings == []
    assert "See First, Table 1 and Table 2." in build.soup().get_text()
    assert build.soup().select_one("table.verl-runs.wide")


def test_notes_are_marked_in_the_row_and_shown_once_for_all_their_runs(own, data):
    note = {"code": "contested", "about": "max_batch", "text": "Others *saw* <b>less</b>."}
    data.run("a", max_batch=16, notes=[note])
    data.run(
        "b", max_batch=8, gpus={"count": 4, "type": "H20"}, notes=[note, {"code": "y", "text": "Second."}]
    )
    build = own.page(".. verl-runs:: 7B").build()
    assert build.warnings == []
    soup = build.soup()
    items = soup.select("ol.verl-notes > li")
    assert [item.get_text().strip() for item in items] == [
        "Qwen2.5-7B-Instruct on 2×H100, Qwen2.5-7B-Instruct on 4×H20: Others *saw* <b>less</b>.",
        "Qwen2.5-7B-Instruct on 4×H20: Second.",
    ]
    rows = soup.select("table.verl-runs tbody tr")
    assert rows[0].select("td")[4].get_text() == "16\N{NO-BREAK SPACE}[1]"
    assert rows[1].select("td")[4].get_text() == "8\N{NO-BREAK SPACE}[1]"
    assert rows[1].select("td")[0].get_text() == "MIN\N{NO-BREAK SPACE}[2]"
    for link in soup.select("table.verl-runs a.verl-mark, ol.verl-notes a"):
        assert soup.find(id=link["href"].removeprefix("#")), link


@pytest.mark.parametrize(
    ("kind", "tag", "evidence", "shown"),
    [
        ("tested", "MIN", "document", "MIN"),
        ("measured", "MIN", "metrics", "MIN"),
        ("measured", None, "log", "ran"),
        ("measured", "MIN", "document", "MIN (reported)"),
        ("stated", None, "log", "claimed"),
        ("script-default", "RECOMMENDED", "document", "RECOMMENDED (claimed)"),
    ],
)
def test_anything_but_a_run_that_ran_says_so_in_its_row(own, data, kind, tag, evidence, shown):
    data.run("a", kind=kind, tag=tag, evidence=[{"kind": evidence, "url": "https://example.org/x"}])
    assert own.page(".. verl-runs:: 7B").build().rows("size-7b")[1][0] == shown
    other = own.page(".. verl-runs:: 7B\n   :columns: model gpus\n").build().rows("size-7b")[1]
    word = next((word for word in ("reported", "claimed") if word in shown), "")
    assert other == ["Qwen2.5-7B-Instruct" + (f" ({word})" if word else ""), "2*H100"]


def test_resources_that_a_source_does_not_name(own, data):
    data.run("a", kind="stated", gpus={"count": 128, "type": None}, infer=None)
    data.run("b", kind="stated", gpus={"count": 1, "type": None, "memory_gb": 24})
    rows = own.page(".. verl-runs:: 7B").build().rows("size-7b")
    assert [row[3] for row in rows[1:]] == ["1*GPU 24 GB", "128*GPU"]
    assert rows[2][6] == ""


def test_links_are_made_from_ref_and_path(own, data):
    data.run(
        "a",
        script={"ref": "abc123", "path": "examples/a b/x.sh"},
        evidence=[
            {"kind": "document", "ref": "def", "path": "docs/x.md", "lines": "4-9"},
            {"kind": "commit", "ref": "0123456789ab"},
            {"kind": "log", "url": "https://example.org/?a=1&b=2"},
        ],
        contributor={"name": "Somebody", "url": "https://example.org/me"},
    )
    own.page(".. verl-runs:: 7B\n   :columns: script evidence contributor\n")
    links = [link["href"] for link in own.build().soup().select("table.verl-runs tbody a")]
    assert links == [
        "https://github.com/verl-project/verl/blob/abc123/examples/a%20b/x.sh",
        "https://github.com/verl-project/verl/blob/def/docs/x.md#L4-L9",
        "https://github.com/verl-project/verl/commit/0123456789ab",
        "https://example.org/?a=1&b=2",
        "https://example.org/me",
    ]
    moved = own.build(verl_resources_script_url="https://example.org/{path}@{ref}")
    assert moved.read == {"index"}
    assert (
        moved.soup().select_one("table.verl-runs tbody a")["href"]
        == "https://example.org/examples/a%20b/x.sh@abc123"
    )


def test_text_is_never_markup(own, data):
    nasty = "<script>alert(1)</script> *x* `y`_ |z| :ref:`q` {{ q }}"
    data.run(
        "a",
        task=nasty,
        label=nasty,
        contributor={"name": nasty},
        script={"ref": "r", "path": "p", "text": nasty},
    )
    build = own.page(".. verl-runs:: 7B").build()
    assert build.warnings == []
    assert "<script>alert" not in build.text("index.html")
    row = build.rows("size-7b")[1]
    assert [row[1], row[2], row[7], row[8]] == [nasty] * 4


def test_the_style_sheet_is_linked_where_it_is_needed_and_nowhere_else(own, data):
    data.run("a")
    own.page(".. verl-runs:: 7B").page("Text.", "other.rst")
    build = own.build()
    assert "verl-resources.css" in build.text("index.html")
    assert "verl-resources.css" not in build.text("other.html")
    assert (build.out / "_static/verl-resources.css").is_file()


def test_figures_in_prose(own, data):
    data.run("a", added="2026-01-31")
    data.run("b", kind="stated")
    build = own.page(
        "Updated :verl:data:`last-updated`, :verl:data:`runs` runs, :verl:data:`runs-that-ran` ran."
    ).build()
    assert build.warnings == []
    assert "Updated 2026-01-31, 2 runs, 1 ran." in build.soup().get_text()
