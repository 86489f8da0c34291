"""Examples: each gives the same doctree from reStructuredText and from MyST, before and after post-transforms.

The examples of the documentation and of the README are files in docs/snippets; tests/builds/snippets contains
more, so that every option occurs. ``in_myst`` writes them in MyST for the pages and these tests. After an
intended change, regenerate the doctrees with
``UPDATE_GOLDEN=1 .venv/bin/python -m pytest tests/builds/test_snippets.py``, and read the difference.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "docs/_ext"))
from reference_lists import forms, in_myst  # noqa: E402

SHOWN = ROOT / "docs" / "snippets"
FOLDERS = (SHOWN, ROOT / "tests" / "builds" / "snippets")
NAMES = sorted(path.stem for folder in FOLDERS for path in folder.glob("*.rst"))
#: The runs on the pages, so that a new run in the data changes no doctree.
RUNS = (
    "qwen2-5-7b-grpo-lora-1xh100",
    "qwen2-5-3b-grpo-lora-1xh100",
    "qwen2-5-14b-grpo-lora-2xh100",
    "qwen2-5-32b-grpo-lora-4xh100",
    "qwen2-5-72b-grpo-32xh800",
)
#: Figures computed from constants and registries are tested elsewhere.
OTHER_FIGURES = (
    "estimate",
    "fewest",
    "accuracy",
    "runs-estimate",
    "runs-details",
    "role-data",
    "what-if",
)


@pytest.fixture(scope="module", params=["rst", pytest.param("md", marks=pytest.mark.slow)])
def pages(request, new_project):
    """A build of all examples in one language, one page each."""
    project = new_project(f"snippets-{request.param}")
    project.conf.update(extensions=["myst_parser"], verl_resources_data=["data"])
    (project.path / "data" / "runs").mkdir(parents=True)
    for run in RUNS:
        shutil.copy(ROOT / "data" / "runs" / f"{run}.yaml", project.path / "data" / "runs")
    project.page("Text.\n")
    for folder in FOLDERS:
        for path in folder.glob("*.rst"):
            text = path.read_text("utf-8")
            project.page(text if request.param == "rst" else in_myst(text), f"{path.stem}.{request.param}")
    return project.build("pseudoxml")


def doctree(tree, name: str) -> str:
    """Return everything below the title, without differences between languages and versions."""
    text = tree.pformat()
    text = "\n".join(text[text.index("<title") :].splitlines()[2:]) + "\n"
    # docutils writes true and false as 1 and 0; before 0.22, as words.
    text = re.sub(rf"\b{name}\.(rst|md)", name, text).replace('="True"', '="1"')
    text = text.replace('="False"', '="0"')
    text = re.sub(r'(?<= data=").*(?=" fields=)', "", text)  # file names depend on every figure
    if name.startswith(OTHER_FIGURES):
        text = re.sub(r'(?<=drawing=").*(?=" format=)', "", text)
        text = re.sub(r'colwidth="\d+"', 'colwidth="0"', text)
        text = re.sub(r"(?<![\w-])\d[\d,.]*(?=\s|\))", "0", text)
    return text


def changes(read: str, written: str) -> Iterator[str]:
    """Return the lines that post-transforms remove and add; lines with only a new indent are unchanged."""
    before, after = ([f"{line.lstrip()}\n" for line in text.splitlines()] for text in (read, written))
    lines = difflib.unified_diff(before, after, n=0)
    return (line for line in lines if not line.startswith(("---", "+++")))


def test_no_message(pages):
    assert pages.warnings == []


@pytest.mark.parametrize("name", NAMES)
def test_doctree(pages, name):
    env = pages.app.env
    tree = env.get_doctree(name)
    read = doctree(tree, name)
    env.apply_post_transforms(tree, name)
    written = doctree(tree, name)
    found = read + "".join(changes(read, written))
    golden = ROOT / "tests" / "builds" / "golden" / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN") and pages.app.srcdir.name.startswith("snippets-rst"):
        golden.write_text(found, "utf-8")
    assert found == golden.read_text("utf-8")


def test_every_doctree_has_its_example():
    assert sorted(path.stem for path in (ROOT / "tests/builds/golden").iterdir()) == NAMES


def used(text: str) -> set[tuple[str, str]]:
    """Return each directive with each of its options in a text in reStructuredText."""
    found = set()
    for block in re.split(r"^\.\. ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("::")
        found |= {(name, option) for option in ("", *re.findall(r"^   :([a-z-]+):", rest, re.MULTILINE))}
    return found


def test_every_directive_option_and_role_has_an_example(pages):
    texts = [path.read_text("utf-8") for folder in FOLDERS for path in folder.glob("*.rst")]
    seen = set().union(*map(used, texts))
    every = set()
    for (name, _form), directive in forms().items():
        every |= {(name, option) for option in ("", *(option.name for option in directive.takes))}
    assert every - seen == set()
    roles = set(re.findall(r":verl:([a-z]+):`", "".join(texts)))
    assert roles == set(pages.app.env.get_domain("verl").roles)


def test_the_documentation_shows_every_example():
    page = (ROOT / "docs" / "directives.rst").read_text("utf-8")
    shown = re.findall(r"\.\. docs-snippet:: (\S+)", page)
    assert sorted(shown) == sorted(
        path.stem for path in SHOWN.glob("*.rst") if not path.name.startswith("readme")
    )


@pytest.mark.parametrize(("language", "write"), [("rst", str), ("markdown", in_myst)])
def test_the_readme_shows_examples_that_are_tested(language, write):
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = re.findall(rf"^(`{{3,4}}){language}\n(.*?)^\1$", readme, re.MULTILINE | re.DOTALL)
    assert shown
    for _, text in shown:
        assert text in {write(path.read_text("utf-8")) for path in SHOWN.glob("*.rst")}
