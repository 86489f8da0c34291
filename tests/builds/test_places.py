"""Every problem of a role or directive is reported with its file and line, anywhere on a page."""

from __future__ import annotations

import re

import pytest

#: The line of each word; no word is a figure, a run or a size class.
RST = """\
:verl:data:`one`

* :verl:data:`two` and :verl:run:`three`

  .. verl-runs:: four

.. note::

   :verl:memory:`five`

.. list-table::

   * - a
     - :verl:data:`six` and :verl:run:`seven`

:verl:data:`eight` and :verl:size:`nine`

.. automodule:: described

.. verl-runs:: ten

|NAME|

.. |NAME| replace:: :verl:data:`eleven`

.. include:: part.txt
"""
MYST = """\
{verl:data}`m-one`

- {verl:data}`m-two` and {verl:run}`m-three`

```{note}
{verl:memory}`m-four`
```

| a | b |
|---|---|
| 1 | {verl:data}`m-five` |

```{include} part.inc
```

```{verl-runs} m-six
```
"""


def of(name: str, text: str) -> str:
    """Return the text with other words, so that each occurs once."""
    return re.sub(r"(`|runs:: |runs} )([a-z-]+)(?=`|\n)", rf"\1{name}-\2", text).replace("NAME", name)


PAGES = {
    "plain.rst": of("p", RST),
    "first.md": MYST,
}


@pytest.fixture
def pages(own, monkeypatch):
    """A project with the pages, and the files that they include and document."""
    own.conf["extensions"] = ["myst_parser", "sphinx.ext.autodoc"]
    own.conf["suppress_warnings"] = ["autodoc", "ref"]
    (own.path / "part.txt").write_text("Text.\n\n:verl:data:`included`\n")
    (own.path / "part.inc").write_text("Text.\n\n{verl:data}`included`\n")
    (own.path / "described.py").write_text('"""Text.\n\n:verl:data:`described`\n"""\n')
    monkeypatch.syspath_prepend(str(own.path))
    own.page("Text.")
    for name, text in PAGES.items():
        own.page(text, name)
    return own


def test_every_problem_has_its_file_and_line(pages):
    found = [line for line in pages.build().warnings if "[verl." in line]
    expected = {
        word: f"{name}:{number}"
        for name in PAGES
        for number, line in enumerate((pages.path / name).read_text().splitlines(), 1)
        for word in re.findall(r"(?:verl:\w+[:}]`|runs:: |runs} )([a-z-]+)", line)
    }
    assert len(expected) == 11 + 6
    places = {}
    for line in found:
        place = re.match(r"(?P<path>\S+?)(:docstring of \w+)?:(?P<line>\d+): ", line)
        assert place, line
        name = re.search(r"'([a-z-]+)'", line)
        assert name, line
        name = name[1]
        at = f"{place['path'].rpartition('/')[2]}:{place['line']}"
        if name in expected:
            places[name] = at
        else:
            assert (name, at.partition(":")[0]) in {
                ("included", "part.txt"), ("included", "part.inc"), ("described", "described.py"),
            }  # fmt: skip
    assert places == expected
