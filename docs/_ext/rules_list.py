"""``.. docs-rules::``: the rules of ``verl-resources check``, each with an example that breaks it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference_lists import Generated

from sphinx_verl_resources.codes import Origin
from sphinx_verl_resources.lint.check import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

    from sphinx_verl_resources.lint.rule import Rule

EXAMPLES = Path(__file__).parent.parent / "rules"
MESSAGE = "# verl-resources check:"
SCOPES = {
    "file": "the text of a file",
    "run": "one run",
    "registry": "the entries of a registry",
    "data": "all data of a directory",
}


class Rules(Generated):
    """A table of all rules, and a section for each."""

    def lines(self) -> Iterator[str]:
        yield ".. list-table::"
        yield "   :header-rows: 1"
        yield "   :class: docs-codes"
        yield ""
        yield "   * - Rule\n     - Checks\n     - Level"
        for rule in RULES:
            name = rule.code.name
            yield f"   * - :ref:`{name} <rule-{name}>`\n     - {SCOPES[rule.scope]}"
            yield f"     - {rule.severity.value}"
        for rule in RULES:
            yield from self.section(rule)

    def section(self, rule: Rule) -> Iterator[str]:
        name = rule.code.name
        yield from ("", f".. _rule-{name}:", "", f"``{name}``", "^" * (len(name) + 4), "")
        yield from (rule.code.meaning, rule.code.remedy, "")
        yield f":Checks: {SCOPES[rule.scope]}"
        yield f":Level: {rule.severity.value}"
        yield f":Reported by: the command{'' if rule.code.origin is Origin.CHECK else ' and builds'}"
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


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("docs-rules", Rules)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
