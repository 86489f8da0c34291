"""Translation of the texts that readers see.

Code that writes a text into a page translates it with ``_`` or ``plural`` at that time, never on import.
Constants of lower layers are marked with ``N_`` for the message catalog and translated with ``_`` when
shown. Problems stay English in logs and on pages, so that users can search for them. The omissions of an
estimate, recorded data and the symbols of formulas are not translated either.
"""

from __future__ import annotations

import gettext
import hashlib
import itertools
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The name of the message catalog.
CATALOG = "sphinx_verl_resources"
#: The translations that come with the package.
LOCALE = Path(__file__).parent / "locale"

_spoken: gettext.NullTranslations = gettext.NullTranslations()


def use_language(language: str, directories: Iterable[Path] = ()) -> str:
    """Translate into ``language`` until the next call.

    For each message, catalogs in ``directories`` take precedence over those of the package. Sphinx's own
    registry of catalogs is not used, because it keeps the language of a process's first build.

    Returns:
        A digest of the language and of the catalogs in ``directories``.
    """
    global _spoken
    places = [*directories, LOCALE]
    files = {place: gettext.find(CATALOG, place, [language]) for place in places}
    # Not with ``gettext.translation``, which reads each file only once per process.
    texts = {place: Path(name).read_bytes() for place, name in files.items() if name}
    found: list[gettext.NullTranslations] = [
        gettext.GNUTranslations(BytesIO(text)) for text in texts.values()
    ]
    found = found or [gettext.NullTranslations()]
    for translations, after in itertools.pairwise(found):
        translations.add_fallback(after)
    _spoken = found[0]
    own = [text for place, text in texts.items() if place != LOCALE]
    return hashlib.sha256(b"\0".join([language.encode(), *own])).hexdigest()


def _(message: str) -> str:
    """Translate a text into the language of the documentation."""
    # The empty message is the header of a catalog.
    return _spoken.gettext(message) if message else ""


def plural(one: str, many: str, count: int) -> str:
    """Translate the singular or plural text, depending on ``count``."""
    return _spoken.ngettext(one, many, count)


def N_(message: str) -> str:  # noqa: N802 - gettext's own name for it
    """Mark a text for translation when it is shown."""
    return message
