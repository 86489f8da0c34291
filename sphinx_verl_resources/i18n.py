"""Words that readers see, in the language of the documentation.

What the extension writes into a page passes through ``_`` or ``plural`` where it is written, never when
a module is imported; a text that a lower layer keeps as a constant is marked with ``N_`` for the message
catalog and passes through ``_`` when it is shown. Problems that a build prints stay English, so that they
can be searched for: log messages, the boxes that show them on a page, and what an estimate leaves out.
So do what is recorded and the symbols of formulas.
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
    """Translate into ``language`` from now on, until the next call.

    Catalogs of this name in ``directories`` come before those of the package, message by message. Sphinx's
    own registry of catalogs is not used: it keeps the language of the first build of a process.

    Returns:
        A digest of the language and of the catalogs in ``directories``.
    """
    global _spoken
    places = [*directories, LOCALE]
    files = {place: gettext.find(CATALOG, place, [language]) for place in places}
    # Not through ``gettext.translation``, which reads each file once in the life of a process.
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
    """Return a text in the language of the documentation."""
    # The message without a text is the header of a catalog.
    return _spoken.gettext(message) if message else ""


def plural(one: str, many: str, count: int) -> str:
    """Return one of two texts, by how many there are, in the language of the documentation."""
    return _spoken.ngettext(one, many, count)


def N_(message: str) -> str:  # noqa: N802 - gettext's own name for it
    """Mark a text that is translated when it is shown."""
    return message
