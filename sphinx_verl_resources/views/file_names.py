"""Names of the files beside the pages, and of what needs them on a page.

Apart from what makes the files, which only pages that need one import.
"""

from __future__ import annotations

FORM_CLASS = "verl-what-if"
FORM_SCRIPT = "verl-what-if.js"
_STATIC = "_static/"
_ANSWERS = _STATIC + "verl-what-if-{}.js"
#: Which files are answers of a form; as many signs as a name has.
ANSWERS_FILES = _ANSWERS.format("?" * 12)

#: Of the name of a file for programs, which becomes a link where the file is written.
DOWNLOAD_CLASS = "verl-download"
JSON, SCHEMA, CSV = "verl-resources.json", "verl-resources.schema.json", "verl-resources.csv"


def answers_path(name: str) -> str:
    """Return the path in the output of the file with a model's answers."""
    return _ANSWERS.format(name)
