"""Tables of pages: each file in YAML lists groups of pages that one build makes, and what each page must show.

A group has ``name``, ``pages``, and where they matter: ``data`` (files of the data directory; the fields of
a run that differ from a plain one), ``conf``, ``files`` (beside the pages), ``markdown`` (also written in
MyST), ``builder``, ``nasty`` (what NASTY in files stands for) and ``warnings`` (messages about the data and conf.py).

A page has ``page`` (its text in reStructuredText, or in MyST if ``name`` ends in ``.md``), and: ``says``
(messages by line of that text), ``select`` (texts by CSS selector; ``selector@name`` gives attributes; a row
is its cells between bars), ``json`` (values by selector), ``text`` (what its text has, and how often) and
``lacks`` (what its markup has not). Of another builder than HTML, ``output`` names the file, which is searched
as it is. ``…`` stands for anything. What holds for every page is in ``check_page``.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree  # noqa: ICN001

import pytest
import yaml
from run_texts import run_text

from sphinx_verl_resources.fit import form

sys.path.append(str(Path(__file__).resolve().parents[1] / "docs/_ext"))
from reference_lists import in_myst

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bs4 import BeautifulSoup, Tag
    from conftest import Build


@dataclass
class Built:
    """A built group.

    Attributes:
        build: the build.
        says: messages on each page, as pairs of line and message, in order.
        others: messages about anything else.
    """

    build: Build
    says: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


def pages_in(*paths: Path) -> list[Any]:
    """Return each page with its group, once for each language, as a parameter of a test."""
    rows = []
    for group in chain(*(yaml.safe_load(path.read_text("utf-8")) for path in paths)):
        for suffix in ("rst", "md") if group.get("markdown") else ("rst",):
            marks = [pytest.mark.slow] if suffix == "md" else []
            for number, case in enumerate(group["pages"]):
                name = f"{group['name']}, {suffix}: {case.get('name', number)}"
                rows.append(pytest.param(group, suffix, number, id=name, marks=marks))
    return rows


@contextmanager
def without_answers() -> Iterator[None]:
    """Leave out the answers of the form besides the first, which take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(form, "answers_texts", lambda model, *_others: [json.dumps({"model": model})] * 2)
        yield


def file_of(group: dict[str, Any], number: int, suffix: str) -> str:
    """Return the file name of a page."""
    name = group["pages"][number].get("name", f"page-{number}")
    return name if name.endswith(".md") else f"{name}.{suffix}"


@pytest.fixture(scope="session", name="build_group")
def group_builder(new_project: Callable[[str], Any]) -> Callable[[dict[str, Any], str], Built]:
    """A function that builds a group in a language once."""
    builds: dict[tuple[str, str], Built] = {}

    def build(group: dict[str, Any], suffix: str) -> Built:
        key = (group["name"], suffix)
        if key not in builds:
            builds[key] = _build(new_project("docs"), group, suffix)
        return builds[key]

    return build


def write_data(folder: Path, files: dict[str, Any]) -> None:
    """Write data files; a name without a dot is that of a run, with the fields that differ from a plain one."""
    for name, content in files.items():
        path = folder / (name if "." in name else f"runs/{name}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else run_text(**{"id": name, **(content or {})})
        path.write_text(text, "utf-8")


def _build(project: Any, group: dict[str, Any], suffix: str) -> Built:
    pages = {file_of(group, number, suffix): case["page"] for number, case in enumerate(group["pages"])}
    if "data" in group:
        (project.path.parent / "data/runs").mkdir(parents=True)
        data = {
            name: content.replace("NASTY", group.get("nasty", "")) if isinstance(content, str) else content
            for name, content in group["data"].items()
        }
        write_data(project.path.parent / "data", data)
        project.conf["verl_resources_data"] = ["../data"]
    if any(name.endswith(".md") for name in pages):
        project.conf["extensions"] = ["myst_parser"]
    for name, text in group.get("files", {}).items():
        (project.path / name).write_text(text, "utf-8")
    project.page("Text.")
    for name, text in pages.items():
        project.page(in_myst(f"{text.rstrip()}\n") if suffix == "md" else text, name)
    build = Built(project.build(group.get("builder", "html"), **group.get("conf", {})))
    build.says = {name: [] for name in pages}
    for line in build.build.warnings:
        place, _, message = line.replace(f"{project.path}/", "").partition(": ")
        name, _, number = place.rpartition(":")
        if name in pages:
            lines = (project.path / name).read_text("utf-8").splitlines()
            above = next(at for at, text in enumerate(lines) if text[:1] in ("=", "#")) + 2
            build.says[name].append((int(number) - above, message))
        else:
            build.others.append(f"{place}: {message}")
    return build


def fits(pattern: str, text: str) -> bool:
    """Return whether a text has the form of a pattern, in which ``…`` stands for anything."""
    return bool(re.fullmatch("(?s:.*?)".join(map(re.escape, pattern.split("…"))), text))


def assert_fits(expected: list[str], result: list[str]) -> None:
    """Fail unless each text has the form of the pattern at its place."""
    assert len(expected) == len(result), result
    for pattern, text in zip(expected, result, strict=True):
        assert fits(pattern, text), (pattern, result)


def words(element: Tag) -> str:
    """Return the text of an element on one line; a row is its cells between bars."""
    if element.name == "tr":
        return re.sub(" +", " ", " | ".join(words(cell) for cell in element.find_all(["th", "td"]))).strip()
    texts = (text for text in element.find_all(string=True) if not text.find_parent(class_="headerlink"))
    return " ".join("".join(texts).split())


def selected(soup: BeautifulSoup, selector: str) -> list[str]:
    """Return the texts of elements, or their attributes."""
    selector, _, name = selector.partition("@")
    if not name:
        return [words(element) for element in soup.select(selector)]
    result = (element.get(name, "") for element in soup.select(selector))
    return [" ".join(value) if isinstance(value, list) else value for value in result]


def check_case(build: Built, group: dict[str, Any], suffix: str, number: int) -> None:
    """Fail unless a page is as its case says, and the build has said of all else just what the group expects."""
    patterns, others = group.get("warnings", []), build.others
    assert len(others) == len(patterns), others
    for pattern in patterns:
        assert sum(fits(pattern, text) for text in others) == 1, (pattern, others)
    case, name = group["pages"][number], file_of(group, number, suffix)
    if "output" in case:
        _check_output(build.build.text(case["output"]), case)
        return
    soup = build.build.soup(f"{name.rpartition('.')[0]}.html")
    body = soup.select_one("[role=main]") or soup
    says = sorted(case.get("says", {}).items())
    expected = {line: [each] if isinstance(each, str) else each for line, each in says}
    messages = sorted(build.says[name], key=lambda each: each[0])
    assert [line for line, _ in messages] == [line for line, each in expected.items() for _ in each], messages
    assert_fits([*chain(*expected.values())], [message for _, message in messages])
    for selector, texts in case.get("select", {}).items():
        result = selected(soup, selector)
        if isinstance(texts, int):
            assert len(result) == texts, (selector, result)
        else:
            assert_fits([texts] if isinstance(texts, str) else texts, result)
    for selector, value in case.get("json", {}).items():
        result = json.loads(soup.select_one(selector).string)
        assert result == value, result
    _check_text(words(body), str(body), case)
    check_page(soup)
    # Every error is visible where the content would be, and every box has its error.
    boxes = [words(box) for box in soup.select(".verl-problem")]
    for error in (message for _, message in messages if re.match(r"ERROR: verl[:-]", message)):
        text = error.removeprefix("ERROR: ").partition(";")[0].partition(" [verl.")[0]
        box = next((box for box in boxes if text in box), None)
        assert box, (text, boxes)
        boxes.remove(box)
    if "suppress_warnings" not in group.get("conf", {}):
        assert all(" has errors" in box for box in boxes), boxes


def _check_text(text: str, markup: str, case: dict[str, Any]) -> None:
    """Fail unless a page has some texts, a number of times if that is given, and has not some markup."""
    expected = case.get("text", {})
    for part in expected:
        count = expected[part] if isinstance(expected, dict) else 0
        assert text.count(part) == count if count else part in text, (part, text.count(part), text)
    for part in case.get("lacks", []):
        assert part not in markup


def _check_output(text: str, case: dict[str, Any]) -> None:
    """Fail unless a file of another builder is as its case says; XML must be well-formed, links must land."""
    for target in re.findall(r"\\hyperref\[\\detokenize\{([^}]*)\}\]", text):
        assert rf"\label{{\detokenize{{{target}}}}}" in text, target
    plain = "".join(ElementTree.fromstring(text).itertext()) if case["output"].endswith("ml") else text
    _check_text(" ".join(plain.split()), text, case)


def check_page(soup: BeautifulSoup) -> None:
    """Fail unless what holds for every page of ours holds for this one."""
    ids = [element["id"] for element in soup.select("[id]")]
    assert len(ids) == len(set(ids)), sorted(ids)
    for link in soup.select("[role=main] a[href^='#']"):
        assert link["href"] in {"#", *(f"#{name}" for name in ids)}, link
    for table in soup.select("table[class*='verl-']"):
        region = table.find_parent(class_="verl-scroll")
        assert (region["role"], region["tabindex"]) == ("region", "0")
        assert {cell.get("scope") for cell in table.select("thead th")} <= {"col"}
        assert {cell.get("scope") for cell in table.select("tbody th")} <= {"row"}
    names = [region["aria-label"] for region in soup.select(".verl-scroll")]
    assert len(names) == len(set(names)), names
    for script in soup.select("script[type='application/json']"):
        json.loads(script.string)  # nothing in it ends the element
        assert "<" not in script.string
    text = re.sub('href="[^"]*"', "", str(soup))  # an address may contain anything
    for inner in ("system-message", "verl_", "Traceback", "pending_xref"):
        assert inner not in text, inner
