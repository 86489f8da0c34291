"""Words that readers see, in the language of the documentation.

What the extension writes into a page passes through ``_`` or ``plural`` where it is written, never when
a module is imported; a text that a lower layer keeps as a constant is marked with ``N_`` for the message
catalog and passes through ``_`` when it is shown. Problems that a build prints stay English, so that they
can be searched for: log messages, the boxes that stand for them on a page, and what an estimate leaves out.
So do what is recorded and the symbols of formulas.
"""

from __future__ import annotations

import gettext
import hashlib
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The name of the message catalog.
CATALOG = "sphinx_verl_resources"
#: The translations that come with the package.
LOCALE = Path(__file__).parent / "locale"

_spoken = gettext.NullTranslations()


def use_language(language: str, directories: Iterable[Path] = ()) -> str:
    """Speak ``language`` from now on, until somebody asks for another one.

    Catalogs of this name in ``directories`` come before those of the package, message by message. Sphinx's
    own registry of catalogs is not used: it keeps the language of the first build of a process.

    Returns:
        A digest of the language and of the catalogs in ``directories``.
    """
    global _spoken
    directories = list(directories)
    found = [
        gettext.translation(CATALOG, place, [language], fallback=True) for place in (*directories, LOCALE)
    ]
    for translations, after in itertools.pairwise(found):
        if isinstance(translations, gettext.GNUTranslations):
            translations.add_fallback(after)
    _spoken = next((item for item in found if isinstance(item, gettext.GNUTranslations)), found[-1])
    files = [path for place in directories if (path := gettext.find(CATALOG, place, [language]))]
    parts = [language.encode(), *(Path(path).read_bytes() for path in files)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _(message: str) -> str:
    """A text in the language of the documentation."""
    # The message without a text is the header of a catalog.
    return _spoken.gettext(message) if message else ""


def plural(one: str, many: str, count: int) -> str:
    """One of two texts, by how many there are, in the language of the documentation."""
    return _spoken.ngettext(one, many, count)


def N_(message: str) -> str:  # noqa: N802 - gettext's own name for it
    """Mark a text that is translated when it is shown."""
    return message
