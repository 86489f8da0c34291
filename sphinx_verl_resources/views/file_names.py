"""Names of the files next to the pages, and the classes of elements that need them.

They are separate from the code that makes the files, which only the pages that need it import.
"""

from __future__ import annotations

FORM_CLASS = "verl-what-if"
FORM_SCRIPT = "verl-what-if.js"
_STATIC = "_static/"
_ANSWERS = _STATIC + "verl-what-if-{}.js"
#: The pattern of the answer files of forms; a name has twelve characters.
ANSWERS_FILES = _ANSWERS.format("?" * 12)

#: Class of the name of a file to download, which becomes a link if the file is written.
DOWNLOAD_CLASS = "verl-download"
JSON, CSV = "verl-resources.json", "verl-resources.csv"


def answers_path(name: str) -> str:
    """Return the path in the output of the file with a model's answers."""
    return _ANSWERS.format(name)
