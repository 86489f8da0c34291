"""docs/hardware.rst alone in another documentation, with the theme and the extensions of verl's documentation."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.slow

LABEL = re.compile(
    r"^\.\. _(\S+):$|^   (?:.*<)?([a-z]+(?:-[a-z]+)+)>?$|:(?:doc|ref):`(?:.*<)?([\w-]+)>?`", re.MULTILINE
)


@pytest.fixture
def alone(hardware_page, project):
    """A project with this page, but without the pages that it links."""
    # verl's documentation has a section "Data", and autosectionlabel makes each title a label.
    project.page("Text.\n\n.. toctree::\n\n   hardware\n\nData\n----\n\nText.\n")
    project.page(hardware_page, "hardware.rst")
    project.conf.update(
        extensions=["sphinx.ext.autosectionlabel"], html_theme="sphinx_rtd_theme", nitpicky=True
    )
    return project


def labels(root) -> set[str]:
    """Return every label and page in the source of the page."""
    source = (root / "docs" / "hardware.rst").read_text("utf-8")
    return {name for result in LABEL.findall(source) for name in result if name}


def test_it_builds_without_a_warning_or_a_raw_label(root, alone):
    build = alone.build()
    assert build.warnings == []
    soup = build.soup("hardware.html")
    assert [mark.get_text() for mark in soup.select(".xref") if not mark.find_parent("a")] == []
    texts = {text.strip() for text in soup.select_one("[itemprop=articleBody]").find_all(string=True)}
    assert texts & labels(root) == set()
    how = soup.select_one("section#contribute-a-run").get_text()
    assert "verl-resources new --script" in how, "no page of this documentation explains it"
    assert soup.select_one(".verl-empty").find("a") is None
    places = {element["id"] for element in soup.select("[id]")}
    for link in soup.select("[itemprop=articleBody] a[href^='#']"):
        assert link["href"][1:] in places, link


def test_with_two_runs_it_has_no_empty_section(alone, data):
    data.run("a")
    data.run("b", kind="stated", size="3B", gpus={"count": 8, "type": None}, tag=None)
    build = alone.build(verl_resources_data=["../data"])
    assert build.warnings == []
    sections = build.soup("hardware.html").select("section[id^=size-]")
    assert [section["id"] for section in sections] == ["size-3b", "size-7b"]
    assert all(section.select("table.verl-runs tbody tr") for section in sections)
