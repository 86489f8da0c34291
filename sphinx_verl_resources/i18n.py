"""Translation of the texts that readers see, by ``sphinx.locale``.

Code that writes a text into a page translates it with ``_`` or ``plural`` at that time, never on import.
Constants of lower layers are marked with ``N_`` and translated with ``_`` when shown. Problems stay English,
so that users can search for them, and so do the omissions of an estimate, recorded data and the symbols of
formulas.
"""

from __future__ import annotations

from pathlib import Path

#: The name of the message catalog, and the folder of the translations that come with the package.
CATALOG = "sphinx_verl_resources"
LOCALE = Path(__file__).parent / "locale"


def _(message: str) -> str:
    """Translate a text into the language of the documentation."""
    from sphinx.locale import get_translator  # which most commands do not need

    # The empty message is the header of a catalog.
    return get_translator(CATALOG).gettext(message) if message else ""


def plural(one: str, many: str, count: int) -> str:
    """Translate the singular or plural text, depending on ``count``."""
    from sphinx.locale import get_translator

    return get_translator(CATALOG).ngettext(one, many, count)


def N_(message: str) -> str:  # noqa: N802 - gettext's own name for it
    """Mark a text for translation when it is shown."""
    return message
