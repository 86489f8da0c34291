"""Documentation, docstrings, comments, messages and data are in plain English, and the documentation stays short."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prose import Finding, Passage, findings, passages, problems, undefined

if TYPE_CHECKING:
    from pathlib import Path

#: Sentences that are right as they are, by a part of them.
EXCEPTIONS = {"What is recorded, and what is not": "a heading, whose id is linked"}
#: The most words of a page, and of all pages in docs without the lists that are generated.
LIMITS = {"README.md": 600, "CONTRIBUTING.md": 700}
ALL_PAGES = 10_000


@pytest.fixture(scope="module")
def found(root) -> list[Passage]:
    return passages(root)


@pytest.fixture(scope="module")
def every(found) -> list[Finding]:
    return findings(found)


def test_prose_is_plain(every):
    left = [
        f"{item.place}: {item.rule}: {item.sentence}"
        for item in every
        if not any(part in item.sentence for part in EXCEPTIONS)
    ]
    assert left == [], "see PHRASES in tests/prose.py for what to write instead"


def test_no_exception_is_left_over(every):
    assert [part for part in EXCEPTIONS if not any(part in item.sentence for item in every)] == []


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("phrase: of their own", "Rows have colours of their own."),
        ("phrase: stands in", "The reason stands in the file."),
        ("phrase: is said", "An error is said once."),
        ("riddle", "What is left over goes to the next GPU."),
        ("riddle", "Where a log has no step, the script decides."),
        ("passive chain", "The key is known to be read by verl."),
        ("passive chain", "It is made, is checked and is written."),
        ("long sentence", "The build " + "reads one page and " * 9 + "stops."),
    ],
)
def test_a_rule_finds_what_it_forbids(rule, sentence):
    assert [item.rule for item in problems(Passage("a.rst", 1, "documentation", sentence))] == [rule]


def test_an_abbreviation_is_explained_or_known():
    def found(text: str) -> list[str]:
        return [item.rule for item in undefined("a.rst", [Passage("a.rst", 1, "documentation", text)])]

    assert found("The GPU runs XYZ.") == ["undefined abbreviation: XYZ"]
    assert found("The GPU runs the extra yarn zone (XYZ), and XYZ is slow.") == []


def test_code_is_not_prose(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.rst").write_text(
        "Text::\n\n   somebody\n\n.. code-block:: text\n\n   whatever\n\n.. note::\n\n   In a note.\n",
        "utf-8",
    )
    assert [item.text for item in passages(tmp_path)] == ["Text::", "In a note."]


@pytest.mark.parametrize("name", LIMITS)
def test_a_page_stays_short(root, name):
    assert number_of_words(root / name) <= LIMITS[name]


def test_the_documentation_stays_short(root):
    pages = [*(root / "docs").glob("*.rst"), *(root / "docs").glob("*.md")]
    assert sum(map(number_of_words, pages)) <= ALL_PAGES


def number_of_words(path: Path) -> int:
    return len(path.read_text("utf-8").split())
