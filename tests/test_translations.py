"""The message catalogs: complete, up to date, and used for every text that a reader sees."""

from __future__ import annotations

import ast
import re
from string import Formatter
from typing import TYPE_CHECKING

import pytest
from modules import module_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Functions that mark a text for the catalog.
MARKS = {"_", "N_", "plural"}
#: Functions that show their text arguments to readers.
SHOWN = {"Text", "paragraph", "strong", "emphasis", "title", "term", "inline", "Cell", "table_group",
         "table", "link_to", "link_if_any", "fill", "titled", "set_caption", "waterfall_chart",
         "phase_chart", "drawing"}  # fmt: skip
#: Modules of ``views`` with text for terminals or programs.
FOR_TERMINALS = {"plain_text", "answer_text", "fewest_text", "diagnosis", "problems"}
#: By message, terms of the glossary that its translation words otherwise.
OTHERWISE = {
    "Attention heads": {"head"},  # not the output head
    "Heads (query/key)": {"head"},  # the same
    "never fits": {"fits"},  # Chinese negates the verb: 放不下
}


@pytest.fixture(scope="module")
def tool(root):
    """Return the program that ``make messages`` runs."""
    return module_at(root / "tools" / "messages.py")


@pytest.fixture(params=["zh_CN"])
def po(request, tool):
    return tool.LOCALE / request.param / "LC_MESSAGES" / f"{tool.DOMAIN}.po"


def test_every_translation_is_tested(tool):
    assert [path.parts[-3] for path in tool.translations()] == ["zh_CN"]


def test_the_template_is_that_of_the_sources(tool):
    assert tool.TEMPLATE.read_bytes() == tool.text(tool.template()), "run make messages"


def test_a_translation_has_what_the_template_has(tool, po):
    found = tool.translation(po)
    found.update(tool.template())
    assert po.read_bytes() == tool.text(found), "run make messages"


def names(text: str) -> set[str]:
    return {name for _, name, *_ in Formatter().parse(text) if name is not None}


def test_everything_is_translated(tool, po):
    messages = [message for message in tool.translation(po) if message.id]
    assert len(messages) > 300
    for message in messages:
        assert not message.fuzzy, message.id
        ids = message.id if isinstance(message.id, tuple) else (message.id,)
        strings = message.string if isinstance(message.id, tuple) else (message.string,)
        for string in strings:
            assert string.strip(), message.id
            assert names(string) == names(ids[-1]), message.id


def glossary(path: Path) -> dict[str, str]:
    """Return the translation of each term of a glossary, longer terms first."""
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|.*\|$", path.read_text("utf-8"), re.MULTILINE)
    return dict(sorted(rows[2:], key=lambda row: -len(row[0])))


def terms_in(text: str, terms: dict[str, str]) -> set[str]:
    """Return the terms of a message, also in the plural; a word of a longer term does not count again."""
    text, found = re.sub(r"\{\w+\}", "|", text), set()
    for term in terms:
        text, count = re.subn(
            rf"\b{re.escape(term.removesuffix('s'))}(e?s)?\b", "|", text, flags=re.IGNORECASE
        )
        found |= {term} if count else set()
    return found


def test_terms_are_translated_as_the_glossary_says(tool, po):
    terms = glossary(po.parent.parent / "glossary.md")
    assert len(terms) > 40
    used, wrong = set(), []
    for message in tool.translation(po):
        ids, strings = message.id, message.string
        text, translation = (ids[-1], strings[0]) if isinstance(ids, tuple) else (ids, strings)
        in_message = terms_in(text, terms)
        used |= in_message
        wrong += [
            (text, term, terms[term])
            for term in sorted(in_message - OTHERWISE.get(text, set()))
            if terms[term].casefold() not in translation.casefold()
        ]
    assert wrong == []
    assert set(terms) - used == set(), "these terms are in no message"


def test_what_is_compiled_is_what_is_written(tool, po):
    assert po.with_suffix(".mo").read_bytes() == tool.compiled(tool.translation(po)), "run make messages"


def test_catalogs_name_nobody(tool, po):
    for path in (tool.TEMPLATE, po):
        assert "@" not in path.read_text("utf-8")


def called(node: ast.Call) -> str:
    """Return the name of the called function; ``Cell.of`` counts as its class."""
    if isinstance(node.func, ast.Attribute):
        return "Cell" if getattr(node.func.value, "id", "") == "Cell" else node.func.attr
    return getattr(node.func, "id", "")


def literals(node: ast.AST) -> Iterator[ast.Constant]:
    """Yield the texts below ``node`` that are not marked for the catalog, except keys and compared texts."""
    if isinstance(node, (ast.Compare, ast.Subscript)) or (
        isinstance(node, ast.Call) and called(node) in MARKS
    ):
        return
    if isinstance(node, ast.Dict):
        for value in node.values:
            yield from literals(value)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from literals(child)


def documented(tree: ast.Module) -> set[int]:
    """Return the places of docstrings: texts that are statements."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def modules(root: Path, folder: str) -> list[Path]:
    found = sorted((root / "sphinx_verl_resources" / folder).glob("*.py"))
    return [path for path in found if path.stem not in FOR_TERMINALS]


def test_no_sentence_passes_the_catalog(root):
    """All texts in ``views`` are shown, so every text of two words or more must be translated."""
    found = []
    for path in modules(root, "views"):
        tree = ast.parse(path.read_text("utf-8"))
        known = documented(tree)
        found += [
            f"{path.name}:{node.lineno}: {node.value}"
            for node in literals(tree)
            if id(node) not in known
            and "<" not in node.value
            and not node.value.startswith("verl-resources ")  # a command
            and re.search(r"[A-Za-z]{2,},? [A-Za-z(]{2,}", node.value)
        ]
    assert found == []


def test_no_message_is_marked_inside_an_f_string(root):
    """Before Python 3.12 the message would not be found there and would be missing from the catalog."""
    found = [
        f"{path.name}:{node.lineno}"
        for path in (root / "sphinx_verl_resources").rglob("*.py")
        for string in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(string, ast.JoinedStr)
        for node in ast.walk(string)
        if isinstance(node, ast.Call) and called(node) in MARKS
        if any(isinstance(argument, ast.Constant) for argument in node.args)
    ]
    assert found == []


@pytest.mark.parametrize("folder", ["views", "sphinx_ext/directives"])
def test_no_word_that_is_shown_passes_the_catalog(root, folder):
    found = []
    for path in modules(root, folder):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call) and called(call) in SHOWN:
                found += [
                    f"{path.name}:{node.lineno}: {called(call)}({node.value!r})"
                    for argument in call.args
                    for node in literals(argument)
                    if re.search(r"[A-Za-z]{2,}", node.value)
                ]
    assert found == []


def test_nothing_else_is_called_as_the_catalog_is(root):
    """In Python 3.12.1, ``_`` in a comprehension becomes a local name of the whole function."""
    for path in (root / "sphinx_verl_resources").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        imported = any(
            isinstance(node, ast.ImportFrom) and "_" in {alias.name for alias in node.names}
            for node in ast.walk(tree)
        )
        bound = [
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and node.id == "_" and isinstance(node.ctx, ast.Store)
        ]
        assert not (imported and bound), f"{path}:{bound}"
