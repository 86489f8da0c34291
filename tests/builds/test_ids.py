"""Our ids are unique, and each reference points to its object."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

#: Ids of runs that look like ids of other things.
RUNS = (
    "a", "a-details", "a-2", "a-title", "a-1-table", "1", "size-7b", "run-a", "7b", "remark-phases", "verl-chart-a",
)  # fmt: skip
TITLES = (
    "Run a", "Run a details", "Run a 2", "Run size 7b", "Size 7B", "7B", "Size 7B 2", "Gpu H100 80GB", "Note a 1",
    "Note a 1 table 2", "Verl chart a", "Verl chart a title", "Verl runs all", "Verl filter tag",
    "Verl resources page", "Model Qwen Qwen2 5 7B", "Fewest 80 GB", "Verl remark debug level", "Verl case note 1",
)  # fmt: skip
DIRECTIVES = (
    ".. verl-runs:: 7B\n   :details:\n",
    ".. verl-runs:: 7B 3B\n",
    ".. verl-runs:: 3B\n   :details:\n",
    ".. verl-runs::\n   :hide-empty:\n",
    ".. verl-runs:: 7B\n   :caption: All\n",
    ".. only:: not html\n\n   .. verl-runs:: 7B\n      :caption: All\n\n.. verl-runs:: 7B 3B\n",
    ".. note::\n\n   .. verl-runs:: 7B\n",
    ".. include:: part.txt\n",
    ".. verl-gpus:: H100\n",
    ".. verl-models:: Qwen/Qwen2.5-7B\n",
    ".. verl-memory::\n   :run: a\n   :show: chart\n",
    ".. verl-fewest::\n   :sizes: 7B\n   :memory: 80 141\n",
    ".. verl-analysis:: monitoring\n",
    ".. verl-accuracy::\n   :group: other\n",
)
#: A role for each object, with the object in its text.
ROLES = [
    f":verl:{kind}:`{kind}={name} <{name}>`"
    for kind, names in (
        ("run", RUNS),
        ("size", ("7B",)),
        ("gpu", ("H100-80GB",)),
        ("model", ("Qwen/Qwen2.5-7B",)),
    )
    for name in names
]


@pytest.fixture
def runs(own, data):
    """A project with runs that have remarks and settings, and with included files."""
    for name in RUNS:
        size = "3B" if name == "a-details" else "7B"
        notes = [{"code": f"n-{number}", "text": f"Remark {number} on {name}."} for number in (1, 2)]
        data.run(name, size=size, notes=notes, settings={"data.train_batch_size": 64})
    (own.path / "part.txt").write_text(".. verl-runs:: 7B\n\n.. verl-gpus:: H100\n")
    own.conf["extensions"] = ["myst_parser"]
    own.conf["suppress_warnings"] = ["verl.reference", "toc"]
    return own


def section(title: str, suffix: str, mark: str = "-") -> str:
    """Return a section with this title that starts with a paragraph, unlike our sections."""
    return f"{title}\n{mark * len(title)}\n\nText.\n\n" if suffix == "rst" else f"## {title}\n\nText.\n\n"


def page(name: str, suffix: str, blocks: list[str]) -> tuple[str, str]:
    """Return the name of a file and its text: titles, and directives in reStructuredText."""
    parts = [f"{name}\n{'=' * len(name)}\n\n" if suffix == "rst" else f"# {name}\n\n", "Text.\n\n"]
    for block in [*blocks, "\n\n".join(ROLES)]:
        if block in TITLES:
            parts.append(section(block, suffix))
        else:
            parts.append(f"{block}\n\n" if suffix == "rst" else f"```{{eval-rst}}\n{block}\n```\n\n")
    return f"{name}.{suffix}", "".join(parts)


def random_page(name: str, chosen: random.Random) -> tuple[str, str]:
    """Return a page with random titles and directives."""
    blocks = []
    for _ in range(chosen.randint(2, 5)):
        if chosen.random() < 0.6:
            blocks.append(chosen.choice(TITLES))
        blocks.append(chosen.choice(DIRECTIVES))
        if chosen.random() < 0.3:  # a nested title, which an `eval-rst` hides from the page
            title = chosen.choice(TITLES)
            blocks.append(section(f"Within {len(blocks)}", "rst") + section(title, "rst", "~"))
    return page(name, chosen.choice(("rst", "md")), blocks)


def is_of_the_page(element) -> bool:
    """Return whether an element is a section that is not from our directives."""
    return element.name == "section" and any(
        child.get_text() == "Text." for child in element.find_all("p", recursive=False)
    )


def leads_there(element, kind: str, name: str) -> bool:
    """Return whether an element is the object of a role."""
    if kind == "size":
        return (not is_of_the_page(element) and bool(element.select("table.verl-runs"))) or element.name in {
            "table",
            "span",
        }
    row = element.find_parent("tr")
    if row is None:
        return False
    if kind == "run":
        return f"verl-run-{name}" in row["class"]
    return row.find("td").get_text(strip=True).startswith(name)


def check(build, pages: tuple[str, ...]) -> int:
    """Fail if an id occurs twice or a reference points elsewhere; return the number of references."""
    soups = {name: build.soup(name) for name in pages}
    followed = 0
    for name, soup in soups.items():
        counted = Counter(element["id"] for element in soup.select("[id]"))
        for id_ in (id_ for id_, times in counted.items() if times > 1):
            # On joined pages, Sphinx itself gives equal titles equal ids.
            assert all(map(is_of_the_page, soup.select(f'[id="{id_}"]'))), (name, id_)
        for link in soup.select("a:has(> .xref.verl)"):
            kind, _, named = link.get_text().partition("=")
            there, _, anchor = link["href"].rpartition("#")
            assert (there or name) in soups, link
            element = soups[there or name].find(id=anchor)
            assert element is not None, (name, link)
            assert leads_there(element, kind, named), (name, link, str(element)[:200])
            followed += 1
        for link in soup.select("a.verl-mark, .verl-tabs a, td a.internal[href^='#']"):
            assert soup.find(id=link["href"][1:]), link
    return followed


def build_and_check(project, pages: list[tuple[str, str]]) -> int:
    """Write pages, build them separately and joined, and check both."""
    names = [name.partition(".")[0] for name, _text in pages]
    project.page(".. toctree::\n   :numbered:\n\n" + "".join(f"   {name}\n" for name in names))
    for name, text in pages:
        (project.path / name).write_text(text, "utf-8")
    html = project.build(fresh=True)
    assert [line for line in html.warnings if "Duplicate ID" in line] == []
    followed = check(html, ("index.html", *(f"{name}.html" for name in names)))
    assert check(project.build("singlehtml"), ("index.html",)) == followed
    return followed


DETAILS, TABLE, CAPTION = DIRECTIVES[0], DIRECTIVES[1], DIRECTIVES[4]
#: Pages with past failures, by name.
EXAMPLES = {
    "a run named as the details of another": ("rst", [".. verl-runs:: 7B 3B\n   :details:\n"]),
    "a title like the id of a row": ("rst", ["Run a", "Size 7B", TABLE, CAPTION]),
    "a title like an id, after it": ("rst", [DETAILS, "Run a", "Size 7B", TABLE]),
    "titles outside an eval-rst": ("md", ["Size 7B", "Gpu H100 80GB", "Run a", DETAILS, ".. verl-gpus:: H100\n"]),
    "titles outside an eval-rst, after it": ("md", [DETAILS, ".. verl-gpus:: H100\n", "Size 7B", "Gpu H100 80GB", "Run a"]),
    "a title in the same eval-rst": ("md", ["7B", "7B", section("Size 7B", "rst") + section("Run a", "rst") + DETAILS]),
    "titles in another eval-rst": ("md", [section("Within", "rst") + section("Size 7B", "rst", "~"), DETAILS]),
    "one part twice": ("rst", [".. include:: part.txt\n", "7B", ".. include:: part.txt\n"]),
    "ids of remarks, forms and charts": ("rst", ["Note a 1", "Verl chart a title", "Verl filter tag", "Verl resources page", DETAILS, TABLE]),
}  # fmt: skip


def test_examples(runs):
    pages = [page(f"page{number}", *example) for number, example in enumerate(EXAMPLES.values())]
    assert build_and_check(runs, pages) > 50


def test_ids_keep_their_form_where_nothing_else_has_them(runs):
    (_, text) = page("one", "rst", [DETAILS])
    (runs.path / "one.rst").write_text(text, "utf-8")
    ids = {element["id"] for element in runs.page("Text.").build().soup("one.html").select("[id]")}
    assert {"run-a", "run-a-details", "run-size-7b", "size-7b", "note-a-1", "note-a-2"} <= ids


@pytest.mark.parametrize("suffix", ["rst", "md"])
def test_a_title_does_not_take_the_id_of_a_row_or_a_size(runs, suffix):
    """Links to the title follow, and the row of another run keeps its id."""
    link = {"rst": "`Run a`_", "md": "[](#one-label)"}[suffix]
    runs.conf["extensions"] = ["myst_parser"]
    label = {"rst": ".. _one-label:\n\n", "md": "(one-label)=\n"}[suffix]
    table = {"rst": f"{DETAILS}\n", "md": "```{verl-runs} 7B\n:details:\n```\n\n"}[suffix]
    head = {"rst": "one\n===\n\n", "md": "# one\n\n"}[suffix]
    text = head + section("Size 7B", suffix) + label + section("Run a", suffix) + f"{link}\n\n{table}"
    (runs.path / f"one.{suffix}").write_text(text, "utf-8")
    soup = runs.page(".. toctree::\n\n   one\n").build().soup("one.html")
    for run in ("a", "a-2"):
        assert f"verl-run-{run}" in soup.find(id=f"run-{run}").find_parent("tr")["class"]
    assert soup.find(id="size-7b").select("table.verl-runs")
    title = next(found for found in soup.select("h2") if found.get_text().startswith("Run a")).parent
    followed = soup.find("a", class_="reference", string=re.compile("Run a"))
    assert followed["href"].removeprefix("#") in {
        title["id"],
        *(span["id"] for span in title.select("span[id]")),
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_pages(runs, seed):
    chosen = random.Random(seed)
    assert build_and_check(runs, [random_page(f"page{number}", chosen) for number in range(3)])
