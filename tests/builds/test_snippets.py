"""Examples: each gives the golden page from reStructuredText and from MyST, and its golden text.

The examples of the documentation are in docs/directives.rst; tests/builds/snippets contains those of the README
and more, so that every option occurs. A golden file has what readers of the page get: elements, our classes, ids,
links and texts, the same in every version of Sphinx; then the page as plain text, where nothing folds. After
an intended change, write them anew with ``UPDATE_GOLDEN=1``, ``-n 0`` and this file, and read the difference.
"""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bs4 import NavigableString
from page_cases import check_page, in_myst, without_answers
from reference_lists import forms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bs4 import Tag

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/builds/golden"
SNIPPETS = {
    path.stem: path.read_text("utf-8") for path in sorted(ROOT.glob("tests/builds/snippets/*.rst"))
} | {
    name: f"{textwrap.dedent(text).strip()}\n"
    for name, text in re.findall(
        r"(?m)^   \.\. docs-snippet:: (\S+)\n((?:\n|      .*\n)+)",
        (ROOT / "docs/directives.rst").read_text("utf-8"),
    )
}
#: The runs on the pages, so that a new run in the data changes no golden file.
RUNS = (
    "qwen2-5-7b-grpo-lora-1xh100", "qwen2-5-3b-grpo-lora-1xh100", "qwen2-5-14b-grpo-lora-2xh100",
    "qwen2-5-32b-grpo-lora-4xh100", "qwen2-5-72b-grpo-32xh800", "qwen2-5-32b-dapo-64xh20-fsdp",
)  # fmt: skip
#: Their figures change with constants and cases; other tests compare them.
OTHER_FIGURES = ("estimate", "fewest", "accuracy", "runs-details", "role-data", "what-if")
#: The attributes that matter; of classes, those that are ours.
ATTRIBUTES = (
    "id",
    "href",
    "role",
    "aria-label",
    "aria-labelledby",
    "scope",
    "start",
    "type",
    "hidden",
    "title",
)


@pytest.fixture(scope="module", params=["rst", pytest.param("md", marks=pytest.mark.slow)])
def builds(request, new_project):
    """The builds of all examples in one language, one page each: in HTML, then as text."""
    project = new_project("snippets")
    project.conf.update(extensions=["myst_parser"], verl_resources_data=["data"])
    (project.path / "data/runs").mkdir(parents=True)
    for run in RUNS:
        shutil.copy(ROOT / "data/runs" / f"{run}.yaml", project.path / "data/runs")
    project.page("Text.\n")
    for name, text in SNIPPETS.items():
        project.page(text if request.param == "rst" else in_myst(text), f"{name}.{request.param}")
    with without_answers():
        return project.build(), project.build("text")


def outline(element: Tag) -> Iterator[str]:
    """Yield a line for each element and text; leave out what differs between themes and versions."""
    for child in element.children:
        if type(child) is NavigableString and (text := " ".join(child.split())):
            yield text
        if isinstance(child, NavigableString) or child.name in {"colgroup", "script"}:
            continue
        if "headerlink" in child.get("class", ()):
            continue
        attributes = [f"{name}={child[name]}" for name in ATTRIBUTES if name in child.attrs]
        attributes += [f".{name}" for name in child.get("class", ()) if re.match("verl-|(num|wide)$", name)]
        inside = [*outline(child)]
        if child.name in {"span", "p", "tbody"} and not attributes:
            yield from inside
        elif len(inside) == 1 and not inside[0].startswith("<"):
            yield " ".join([f"<{child.name}>", *attributes, "--", *inside])
        else:
            yield " ".join([f"<{child.name}>", *attributes])
            yield from (f"  {line}" for line in inside)


@pytest.mark.parametrize("name", SNIPPETS)
def test_page(builds, name):
    html, text = builds
    soup = html.soup(f"{name}.html")
    check_page(soup)
    section = soup.select_one("[role=main] section")
    section.h1.extract()
    result = "\n".join(outline(section)) + "\n"
    if name.startswith(OTHER_FIGURES):
        result = re.sub(r"(?<![\w-])\d[\d,.]*(?![\w-])", "0", result)
    else:
        result += "\n".join(["", "-- as text", *text.text(f"{name}.txt").split("\n")[3:]])
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(result, "utf-8")
    assert result == golden.read_text("utf-8")


def test_no_message_and_no_other_golden_file(builds):
    assert [build.warnings for build in builds] == [[], []]
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted(SNIPPETS)


def used(text: str) -> set[tuple[str, str]]:
    """Return each directive with each of its options in a text in reStructuredText."""
    result = set()
    for block in re.split(r"^\.\. ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("::")
        result |= {(name, option) for option in ("", *re.findall(r"^   :([a-z-]+):", rest, re.MULTILINE))}
    return result


def test_every_directive_option_and_role_has_an_example(builds):
    every = {
        (name, option)
        for (name, _form), directive in forms().items()
        for option in ("", *(option.name for option in directive.takes))
    }
    assert every - set().union(*map(used, SNIPPETS.values())) == set()
    roles = set(re.findall(r":verl:([a-z]+):`", "".join(SNIPPETS.values())))
    assert roles == set(builds[0].app.env.get_domain("verl").roles)


@pytest.mark.parametrize(("language", "write"), [("rst", str), ("markdown", in_myst)])
def test_the_readme_shows_examples_that_are_tested(language, write):
    readme = (ROOT / "README.md").read_text("utf-8")
    snippets = re.findall(rf"^(`{{3,4}}){language}\n(.*?)^\1$", readme, re.MULTILINE | re.DOTALL)
    assert snippets
    assert {text for _, text in snippets} <= {write(text) for text in SNIPPETS.values()}
