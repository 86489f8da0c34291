"""Bring the message catalogs up to date with the sources: ``make messages``.

Writes the template, merges it into each translation and compiles what is translated. What is written depends
on nothing but the messages: no date, no line number, no version of a tool.
"""

from __future__ import annotations

import io
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

PACKAGE = Path(__file__).resolve().parent.parent / "sphinx_verl_resources"
LOCALE = PACKAGE / "locale"
DOMAIN = "sphinx_verl_resources"
TEMPLATE = LOCALE / f"{DOMAIN}.pot"
KEYWORDS = {"_": None, "N_": None, "plural": (1, 2)}
TEMPLATE_COMMENT = """\
# What sphinx_verl_resources writes into pages. Made by `make messages`; names in braces stay as they are."""


class Messages(Catalog):
    """A catalog whose header says only what a reader of it needs.

    Attributes:
        language: as Sphinx calls it; None for the template.
    """

    language: str | None = None

    @property
    def mime_headers(self) -> list[tuple[str, str]]:
        """The lines of the header."""
        about = [("Language", self.language), ("Plural-Forms", self.plural_forms)] if self.language else []
        return [
            ("Project-Id-Version", DOMAIN),
            *about,
            ("MIME-Version", "1.0"),
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Transfer-Encoding", "8bit\n"),
        ]


def template() -> Messages:
    """Every message of the package, in the order of files and lines."""
    found = Messages(header_comment=TEMPLATE_COMMENT, fuzzy=False)
    places = extract_from_dir(
        PACKAGE, [("**.py", "python")], keywords=KEYWORDS, comment_tags=["Translators:"]
    )
    for name, _line, message, comments, context in sorted(places, key=lambda place: place[:2]):
        # The number of the line would change with every edit of the file.
        found.add(
            message, None, [(f"sphinx_verl_resources/{name}", 0)], auto_comments=comments, context=context
        )
    return found


def translation(path: Path) -> Messages:
    """A translation as it lies there."""
    language = path.parts[-3]
    with path.open("rb") as stream:
        found = read_po(stream, locale=language)
    made = Messages(language, header_comment=found.header_comment, fuzzy=False)
    made.language = language
    for message in found:
        if message.id:
            made[message.id] = message
    made.obsolete = found.obsolete
    return made


def text(catalog: Messages) -> bytes:
    """A catalog as a file holds it."""
    stream = io.BytesIO()
    write_po(stream, catalog, width=0, include_lineno=False, ignore_obsolete=True)
    return stream.getvalue()


def compiled(catalog: Messages) -> bytes:
    """A catalog as programs read it."""
    stream = io.BytesIO()
    write_mo(stream, catalog)
    return stream.getvalue()


def translations() -> list[Path]:
    """The files of all translations."""
    return sorted(LOCALE.glob(f"*/LC_MESSAGES/{DOMAIN}.po"))


def main() -> None:
    """Write everything anew."""
    messages = template()
    TEMPLATE.parent.mkdir(exist_ok=True)
    TEMPLATE.write_bytes(text(messages))
    for path in translations():
        found = translation(path)
        found.update(messages)
        path.write_bytes(text(found))
        path.with_suffix(".mo").write_bytes(compiled(found))


if __name__ == "__main__":
    main()
