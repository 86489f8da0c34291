"""``.. docs-codes::`` and ``.. docs-rules::``: every code and every rule of ``check``, with examples."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference_lists import Generated

from sphinx_verl_resources.check import RULES
from sphinx_verl_resources.diagnostics import CODES
from sphinx_verl_resources.print_commands import load_check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

    from sphinx_verl_resources.check import Rule

EXAMPLES = Path(__file__).parent.parent / "rules"
#: One message a line, written by tests/builds/test_codes.py; rules have theirs in docs/rules.
MESSAGES = EXAMPLES.parent / "examples" / "messages.txt"
#: Sections that explain a message.
MORE = {"unknown_model": "add-a-model"}
MESSAGE = "# verl-resources check:"

load_check([])  # all rules


class Rules(Generated):
    """A table of all rules, and a section for each."""

    def lines(self) -> Iterator[str]:
        yield ".. list-table::"
        yield "   :header-rows: 1"
        yield "   :class: docs-codes"
        yield ""
        yield "   * - Rule\n     - Level"
        for name, rule in RULES.items():
            yield f"   * - :ref:`{name} <rule-{name}>`\n     - {rule.severity.value}"
        for rule in RULES.values():
            yield from self.section(rule)

    def section(self, rule: Rule) -> Iterator[str]:
        name = rule.code
        yield from ("", f".. _rule-{name}:", "", f"``{name}``", "^" * (len(name) + 4), "")
        yield from (inspect.getdoc(rule.find) or "", "")
        yield f":Level: {rule.severity.value}"
        if rule.needs_repository:
            yield ":Needs: a checkout of verl, ``--repo``"
        yield ""
        folder = EXAMPLES / name
        for path in sorted(path for path in folder.rglob("*") if path.suffix in {".yaml", ".sh"}):
            inside = path.relative_to(folder).as_posix()
            language = "yaml" if path.suffix == ".yaml" else "bash"
            yield from (f".. literalinclude:: /rules/{name}/{inside}", f"   :language: {language}")
            if MESSAGE in path.read_text("utf-8"):
                yield f"   :end-before: {MESSAGE}"
            yield from (f"   :caption: {inside}", "")
        yield from (".. code-block:: text", "", f"   {expected(folder)}", "")


def expected(folder: Path) -> str:
    """Return the message about an example, from the comment at the end of one of its files."""
    texts = [path.read_text("utf-8") for path in folder.rglob("*.yaml")]
    (message,) = [line for text in texts for line in text.splitlines() if line.startswith(MESSAGE)]
    return message.removeprefix(MESSAGE).strip()


class Codes(Generated):
    """``.. docs-codes::``: every code with an example and an anchor."""

    def lines(self) -> Iterator[str]:
        self.env.note_dependency(str(MESSAGES))
        messages = MESSAGES.read_text("utf-8").splitlines()
        examples = {message.rpartition(" [")[2].removesuffix("]"): message for message in messages}
        yield ".. list-table::"
        yield "   :header-rows: 1"
        yield "   :widths: 30 70"
        yield "   :class: docs-codes"
        yield ""
        yield "   * - Code\n     - Example"
        for code in sorted(CODES):
            yield f"   * - .. _verl.{code}:\n\n       ``verl.{code}``"
            example = examples.get(f"verl.{code}") or expected(EXAMPLES / code)
            yield f"     - .. code-block:: text\n\n          {example}\n"
            if code in MORE:
                yield f"       See :ref:`{MORE[code]}`.\n"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("docs-codes", Codes)
    app.add_directive("docs-rules", Rules)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
