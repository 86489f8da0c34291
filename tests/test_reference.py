"""The reference in the documentation is generated from the code and complete."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from sphinx_verl_resources.config import PREFIX, VerlConfig
from sphinx_verl_resources.diagnostics import CODES
from sphinx_verl_resources.directive import Option

sys.path.append(str(Path(__file__).resolve().parents[1] / "docs/_ext"))
from reference_lists import forms

FORMS = [(name, form, directive.takes) for (name, form), directive in forms().items()]
OPTIONS = [(name, option) for name, _, options in FORMS for option in options]


@pytest.fixture
def page(root):
    """Return the reference of directives and roles."""
    return (root / "docs" / "directives.rst").read_text("utf-8")


@pytest.fixture
def reference(project, root, monkeypatch):
    """Return a function that builds a page with generated lists."""
    monkeypatch.syspath_prepend(str(root / "docs" / "_ext"))
    project.conf.update(extensions=["reference_lists", "rules_list"], smartquotes=False)

    def build(text: str):
        # The options refer to other pages of the documentation.
        labels = "".join(
            f".. _{name}:\n\n{name}\n----------------\n\nText.\n\n"
            for name in ("fields", "verl-estimator", "add-a-model")
        )
        built = project.page(f"{text}\n\n{labels}").build()
        assert built.warnings == []
        return built.soup()

    return build


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=lambda item: getattr(item, "name", item))
def test_every_option_says_what_it_does(name, option):
    assert isinstance(option, Option)
    assert option.help[0].isupper() or option.help.startswith("``")
    assert option.help.endswith(".")
    assert not option.default.endswith(".")
    assert option.values or not option.default, "a flag has no default"


def test_every_directive_and_role_has_its_reference(page, project):
    project.page("Text.")
    roles = project.build().app.env.get_domain("verl").roles
    assert set(re.findall(r"rst:directive:: \.\. ([\w-]+)::", page)) == {name for name, _form in forms()}
    assert set(re.findall(r"(?:rst:role::|^ {13,}) ?verl:(\w+)$", page, re.MULTILINE)) == set(roles)
    asked = re.findall(r"docs-options:: (\S+) ?(\S*)", page)
    assert sorted(asked) == sorted((name, form) for name, form, options in FORMS if options)
    assert "directive:option::" not in page, "options are described in the code"


@pytest.mark.parametrize(("name", "form", "options"), [item for item in FORMS if item[2]])
def test_the_reference_has_every_option(reference, name, form, options):
    soup = reference(f".. rst:directive:: .. {name}::\n\n   .. docs-options:: {name} {form}\n")
    terms = [term.get_text().strip("¶:\n ") for term in soup.select("dl.rst.directive dl dt, dl dl dt")]
    assert terms == [option.name for option in options]


def test_the_list_of_messages_has_an_anchor_for_each_code(reference):
    soup = reference(".. docs-codes::\n")
    text = " ".join(soup.select_one("table.docs-codes").get_text().split())
    for code in CODES:
        assert soup.find(id=f"verl-{code.replace('_', '-')}"), code
        assert f"[verl.{code}]" in text, "no example"


def plain(text: str) -> str:
    """Return a text without the marks of literals."""
    return text.replace("``", "")


def test_the_list_of_values_of_conf_py(reference):
    soup = reference(".. docs-config::\n")
    found = {
        entry.dt.get_text().strip("¶\n "): " ".join(entry.dd.get_text().split())
        for entry in soup.select("dl.confval, dl.std.confval")
    }
    assert list(found) == [PREFIX + item.name for item in fields(VerlConfig)]
    for item in fields(VerlConfig):
        text = found[PREFIX + item.name]
        for part in ("type", "help"):
            assert plain(item.metadata[part]) in text, (
                item.name,
                part,
            )
