"""``.. docs-codes::`` and ``.. docs-rules::``: every code with an example, and every rule of ``check``."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference_lists import Generated

from sphinx_verl_resources.check import RULES
from sphinx_verl_resources.commands import load_check
from sphinx_verl_resources.diagnostics import CODES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

#: One message a line; tests/builds/test_codes.py writes those of builds and commands.
MESSAGES = Path(__file__).parent.parent / "examples/messages.txt"
#: Sections that explain a message.
MORE = {"unknown_model": "add-a-model"}

load_check([])  # all rules


class Rules(Generated):
    """A section for each rule, which is its docstring."""

    def lines(self) -> Iterator[str]:
        yield from (".. highlight:: yaml", "")
        for name, rule in RULES.items():
            yield from (f".. _rule-{name}:", "", f"``{name}``", "^" * (len(name) + 4), "")
            yield from (f":Level: {rule.severity.value}", "", inspect.getdoc(rule.find) or "", "")


class Codes(Generated):
    """A table of all codes, each with an example and an anchor."""

    def lines(self) -> Iterator[str]:
        self.env.note_dependency(str(MESSAGES))
        messages = MESSAGES.read_text("utf-8").splitlines()
        examples = {message.rpartition(" [verl.")[2].removesuffix("]"): message for message in messages}
        yield ".. list-table::"
        yield "   :header-rows: 1"
        yield "   :widths: 30 70"
        yield "   :class: docs-codes"
        yield ""
        yield "   * - Code\n     - Example"
        for code in sorted(CODES):
            yield f"   * - .. _verl.{code}:\n\n       ``verl.{code}``"
            yield f"     - .. code-block:: text\n\n          {examples[code]}\n"
            if code in MORE:
                yield f"       See :ref:`{MORE[code]}`.\n"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("docs-codes", Codes)
    app.add_directive("docs-rules", Rules)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
