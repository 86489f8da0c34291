"""The table of the page "Messages": every code, with a message that a test has made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference_lists import Generated
from rules_list import expected

from sphinx_verl_resources.codes import Code, Origin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

#: One message a line, written by tests/builds/test_codes.py; rules have theirs in docs/rules.
EXAMPLES = Path(__file__).parent.parent / "examples" / "messages.txt"


#: Sections that explain a remedy.
MORE = {Code.unknown_model: "add-a-model"}


class Codes(Generated):
    """``.. docs-codes::``: every code with its meaning, remedy, an example and an anchor."""

    def lines(self) -> Iterator[str]:
        self.env.note_dependency(str(EXAMPLES))
        messages = EXAMPLES.read_text("utf-8").splitlines()
        examples = {message.rpartition(" [")[2].removesuffix("]"): message for message in messages}
        yield ".. list-table::"
        yield "   :header-rows: 1"
        yield "   :widths: 30 70"
        yield "   :class: docs-codes"
        yield ""
        yield "   * - Code\n     - Meaning, what to do, and an example"
        for code in sorted(Code, key=lambda code: code.id):
            yield f"   * - .. _{code.id}:\n\n       ``{code.id}``"
            where = "" if code.origin is Origin.BUILD else " From the command line only."
            more = f" See :ref:`{MORE[code]}`." if code in MORE else ""
            yield f"     - {code.meaning}{where} {code.remedy}{more}"
            example = examples.get(code.id) or expected(EXAMPLES.parent.parent / "rules" / code.name)
            yield f"\n       .. code-block:: text\n\n          {example}\n"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("docs-codes", Codes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
