"""Links point only to http and https addresses, and to pages of the documentation."""

from __future__ import annotations

import re

import pytest

from sphinx_verl_resources.links import is_address, template_problem

ADDRESSES = [
    "javascript:alert(1)",
    "JavaScript:alert(1)",
    "java\nscript:alert(1)",
    "java\tscript:alert(1)",
    "\x01javascript:alert(1)",
    "vbscript:x",
    "data:text/html,x",
    "file:///etc/passwd",
    "ftp://example.org",
    "mailto:someone",
    "//example.org",
    "///example.org",
    "/etc/passwd",
    "page.html",
    "https:example.org",
    "https:/example.org",
    "https://",
    "https:///path",
    "https://user@example.org",
    "https://user:word@example.org",
    " https://example.org",
    "https://example.org/ x",
    "https://example.org\\@evil.org",
    "https://example.org/\nx",
    "https://example.org/<b>",
    'https://example.org/"x',
    "\x01https://example.org",
    "https://[::1",
    "",
]
PATHS = [
    "../x.sh",
    "a/../../x.sh",
    "a/..",
    "./x.sh",
    "/x.sh",
    "//x/y.sh",
    "a//b.sh",
    "a\\..\\b.sh",
    "..",
    "a\nb",
]
REFS = ["..", "a/../b", "../main", "/main", "main/", "a b", "a#b", "a?b", "@{0}", "javascript:x", ""]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(
    "field",
    [
        lambda url: {"contributor": {"name": "A", "url": url}},
        lambda url: {"evidence": [{"kind": "log", "url": url}]},
    ],
)
def test_addresses(data, field, address):
    data.run("a", **field(address))
    catalog = data.load()
    assert not catalog.runs
    assert catalog.diagnostics


@pytest.mark.parametrize("path", PATHS)
def test_paths(data, path):
    data.run("a", script={"ref": "main", "path": path})
    assert not data.load().runs
    data.run("a", evidence=[{"kind": "script", "ref": "main", "path": path}])
    assert not data.load().runs


@pytest.mark.parametrize("ref", REFS)
def test_refs(data, ref):
    data.run("a", script={"ref": ref, "path": "a.sh"})
    assert not data.load().runs


@pytest.mark.parametrize("address", [*ADDRESSES[:14], "https:example.org", "https://", "HTTPS://x y"])
def test_configuration(address):
    assert not is_address(address)
    assert template_problem(f"{address}{{ref}}/{{path}}", frozenset({"ref", "path"})) or address == "https://"


@pytest.mark.parametrize("path", ["a b.sh", "a%2f..%2fb.sh", "a?x=1#y.sh", "ü.sh", "a&b;c.sh", "a:b.sh"])
def test_what_a_path_may_hold_stays_in_the_path(own, data, path):
    data.run("a", script={"ref": "main", "path": path})
    build = own.page(".. verl-runs:: 7B").build()
    assert build.warnings == []
    href = build.soup().select_one("td.verl-path a")["href"]
    assert href.startswith("https://github.com/verl-project/verl/blob/main/")
    assert not re.search(r"[ ?#<>]|/\.\./", href)
