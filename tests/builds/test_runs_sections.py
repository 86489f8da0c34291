"""Sections of ``.. verl-runs::`` in real builds, and captions in places without sections."""

from __future__ import annotations

import pytest

PAGE_SECTIONS = [
    "size-0-5b",
    "size-1-5b",
    "size-3b",
    "size-7b",
    "size-14b",
    "size-32b",
    "size-70b",
    "size-405b",
    "size-671b",
]


def test_a_section_per_size_class_in_ascending_order_empty_ones_included(own, data):
    data.run("a")
    build = own.page(".. verl-runs::").build()
    assert build.warnings == []
    soup = build.soup()
    assert [section["id"] for section in soup.select("section[id^=size-]")] == PAGE_SECTIONS
    assert [title.get_text()[:-1] for title in soup.select("section[id^=size-] > h2")][:2] == ["0.5B", "1.5B"]
    assert build.rows("size-7b") == [
        ["Tag", "Model", "Task", "Resource", "MaxBatch", "Train", "Infer", "Link", "Contributor"],
        [
            "MIN",
            "Qwen2.5-7B-Instruct",
            "GRPO",
            "2*H100",
            "",
            "fsdp",
            "vllm0.8.3",
            "",
            "",
        ],
    ]
    empty = soup.find(id="size-405b")
    assert empty.find("table") is None
    assert "No run is recorded for 405B yet. Add one." in empty.get_text()


def test_a_size_without_a_section_of_its_own_gets_one_with_its_first_run(own, data):
    data.run("a", size="235B")
    sections = [
        section["id"] for section in own.page(".. verl-runs::").build().soup().select("section[id^=size-]")
    ]
    assert sections == [*PAGE_SECTIONS[:7], "size-235b", *PAGE_SECTIONS[7:]]


def test_sections_are_in_the_table_of_contents(own, data):
    data.run("a")
    own.page(".. verl-runs:: 7B", "runs.rst")
    soup = own.page(".. toctree::\n\n   runs\n").build().soup()
    assert [link["href"] for link in soup.select(".toctree-l2 > a")] == ["runs.html#size-7b"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("index.rst", ".. note::\n\n   .. verl-runs:: 7B 405B\n"),
        ("index.rst", "* .. verl-runs:: 7B 405B\n"),
        ("index.md", "````{note}\n```{verl-runs} 7B 405B\n```\n````\n"),
    ],
)
def test_where_no_section_can_stand_there_is_a_caption(own, data, name, text):
    data.run("a")
    own.conf["extensions"] = ["myst_parser"]
    build = own.page(text, name).build()
    assert build.warnings == []
    around = build.soup().select_one(".admonition, article li, .body li")
    assert around.select_one("table.verl-runs caption .caption-text").get_text() == "7B"
    assert "No run is recorded for 405B yet." in around.get_text()
    assert around.select("section") == []
    assert "verl_size" not in own.build("pseudoxml").text("index.pseudoxml")


@pytest.mark.parametrize("name", ["index.rst", "index.md"])
def test_sections_stay_below_the_section_that_they_are_in(own, data, name):
    data.run("a")
    own.conf["extensions"] = ["myst_parser"]
    if name.endswith(".md"):
        own.page("## Part\n\n```{verl-runs} 7B\n```\n\n## Next\n\nText.\n", name)
    else:
        own.page("Part\n----\n\n.. verl-runs:: 7B\n\nNext\n----\n\nText.\n", name)
    build = own.build()
    assert build.warnings == []
    assert build.soup().find(id="size-7b").parent["id"] == "part"
    assert build.soup().find(id="next").parent["id"] == "index"


def test_hidden_sizes_are_named_where_references_to_them_lead(own, data):
    data.run("a")
    data.run("b", size="3B")
    own.page("See :verl:size:`405B`.\n\n.. verl-runs:: 0.5B 3B 405B 7B\n   :hide-empty:\n")
    build = own.build()
    assert build.warnings == []
    soup = build.soup()
    assert [section["id"] for section in soup.select("section[id^=size-]")] == ["size-3b", "size-7b"]
    (last,) = soup.select(".verl-empty")
    assert last.get_text() == "No run is recorded for 0.5B, 405B yet. Add one. verl-resources new --help"
    assert last.find_parent("section")["id"] == "size-7b"
    assert {place["id"] for place in last.select("[id]")} == {"size-0-5b", "size-405b"}
    assert soup.select_one("p a.verl, a:has(.verl)")["href"] == "#size-405b"
    assert own.build("latex").warnings == own.build("text").warnings == []


def test_hiding_everything_leaves_a_sentence(own):
    soup = own.page(".. verl-runs::\n   :hide-empty:\n").build().soup()
    sentence = soup.select_one(".verl-empty")
    assert sentence.get_text() == "No run is recorded yet. Add one. verl-resources new --help"
    assert {place["id"] for place in sentence.select("[id]")} == {*PAGE_SECTIONS}


def test_the_empty_section_leads_to_where_runs_are_added(own):
    page = own.page(".. verl-runs:: 405B")
    empty = page.build().soup().select_one(".verl-empty")
    assert empty.find("a") is None
    assert empty.code.get_text() == "verl-resources new --help", "if no page explains it, the command does"
    own.page("Text.\n\n.. _verl-add-a-run:\n\nHow\n---\n\nText.\n", "how.rst")
    build = own.build(fresh=True)
    assert build.warnings == []
    assert build.soup().select_one(".verl-empty a")["href"] == "how.html#verl-add-a-run"
    assert own.build(verl_resources_add_run="https://example.org/add").soup().select_one(".verl-empty a")[
        "href"
    ] == ("https://example.org/add")
