"""Update the message catalogs from the sources: ``make messages``.

Writes the template, merges it into each translation and compiles the translations. The files depend only on
the messages; they contain no date, line number or version of a tool.
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
# Texts of sphinx_verl_resources in pages. Made by `make messages`; do not translate names in braces."""


class Messages(Catalog):
    """A catalog with a minimal header.

    Attributes:
        language: Sphinx's name of the language; None for the template.
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
    """Return every message of the package, in the order of files and lines."""
    texts = Messages(header_comment=TEMPLATE_COMMENT, fuzzy=False)
    methods = [("**.py", "python"), ("**.jinja", "jinja2")]
    places = extract_from_dir(PACKAGE, methods, keywords=KEYWORDS, comment_tags=["Translators:"])
    for name, _line, message, comments, context in sorted(places, key=lambda place: place[:2]):
        # Line numbers would change with every edit of a file.
        texts.add(
            message, None, [(f"sphinx_verl_resources/{name}", 0)], auto_comments=comments, context=context
        )
    return texts


def translation(path: Path) -> Messages:
    """Read a translation from its file."""
    language = path.parts[-3]
    with path.open("rb") as stream:
        texts = read_po(stream, locale=language)
    catalog = Messages(language, header_comment=texts.header_comment, fuzzy=False)
    catalog.language = language
    for message in texts:
        if message.id:
            catalog[message.id] = message
    catalog.obsolete = texts.obsolete
    return catalog


def text(catalog: Messages) -> bytes:
    """Return a catalog as the text of its file."""
    stream = io.BytesIO()
    write_po(stream, catalog, width=0, include_lineno=False, ignore_obsolete=True)
    return stream.getvalue()


def compiled(catalog: Messages) -> bytes:
    """Return a catalog compiled for programs."""
    stream = io.BytesIO()
    write_mo(stream, catalog)
    return stream.getvalue()


def translations() -> list[Path]:
    """Return the files of all translations."""
    return sorted(LOCALE.glob(f"*/LC_MESSAGES/{DOMAIN}.po"))


def main() -> None:
    """Write the template and all translations."""
    messages = template()
    TEMPLATE.parent.mkdir(exist_ok=True)
    TEMPLATE.write_bytes(text(messages))
    for path in translations():
        texts = translation(path)
        texts.update(messages, no_fuzzy_matching=True)
        path.write_bytes(text(texts))
        path.with_suffix(".mo").write_bytes(compiled(texts))


if __name__ == "__main__":
    main()
