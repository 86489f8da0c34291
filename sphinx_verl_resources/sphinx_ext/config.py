"""The ``verl_resources_*`` values of conf.py: type, default, who reads them again, and help in one place."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..catalog.links import COMMIT_URL, SCRIPT_URL, Links, is_address, template_problem
from ..diagnostics import Code, Diagnostic, Location

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

    from sphinx.application import Sphinx
    from sphinx.config import Config

PREFIX = "verl_resources_"


def _about(kind: str, pages: str, text: str, *types: type) -> dict[str, Any]:
    """Describe a value for the documentation and for Sphinx.

    Args:
        kind: its type, in words.
        pages: the pages that are read again when it changes; all others stay as they are.
        text: what it is for, in reStructuredText.
        types: its types; text where none is named.
    """
    return {"type": kind, "rebuild": pages, "help": text, "types": types or (str,)}


@dataclass(frozen=True)
class VerlConfig:
    """All values, without the prefix that they carry in conf.py."""

    data: list[str] = field(
        default_factory=list,
        metadata=_about(
            "list of directories",
            "pages with a run, a fact or a figure that is another one now",
            "Data directories, relative to conf.py, read after the bundled dataset: their runs replace the "
            "bundled runs, their registries extend and override the bundled ones by name.",
            list,
            tuple,
        ),
    )
    script_url: str = field(
        default=SCRIPT_URL,
        metadata=_about(
            "address with ``{ref}`` and ``{path}``",
            "pages that link a file of verl's repository",
            "Address of a file in verl's repository.",
        ),
    )
    commit_url: str = field(
        default=COMMIT_URL,
        metadata=_about(
            "address with ``{ref}``",
            "pages that link a commit of verl's repository",
            "Address of a commit in verl's repository.",
        ),
    )
    edit_url: str = field(
        default="",
        metadata=_about(
            "address with ``{path}``",
            "pages with details of runs",
            "Where a file of the data is edited; ``{path}`` is its path in the data directory, "
            "``runs/<id>.yaml``. While it is empty, nothing is linked.",
        ),
    )
    add_run: str = field(
        default="verl-add-a-run",
        metadata=_about(
            "label or address",
            "pages with a section that has no run",
            "Where a section without runs sends contributors. While the label does not exist, "
            "``verl-resources new --help`` is named.",
        ),
    )
    estimator_page: str = field(
        default="verl-estimator",
        metadata=_about(
            "label or address",
            "pages with remarks",
            "Where remarks send readers for what verl itself does. While the label does not exist, nothing "
            "is linked.",
        ),
    )

    @property
    def links(self) -> Links:
        """The link templates; a broken one gives way to its default."""
        return Links(
            SCRIPT_URL if template_problem(self.script_url, SCRIPT_FIELDS) else self.script_url,
            COMMIT_URL if template_problem(self.commit_url, COMMIT_FIELDS) else self.commit_url,
        )

    def edit_address(self, path: str) -> str:
        """Return the address where a file of the data is edited; empty if that is not known."""
        if template_problem(self.edit_url, EDIT_FIELDS):
            return ""
        return self.edit_url.format(path=quote(path))

    @property
    def directories(self) -> list[str]:
        """The data directories that are usable as names."""
        return [name for name in self.data if name and "\0" not in name]


SCRIPT_FIELDS = frozenset({"ref", "path"})
COMMIT_FIELDS = frozenset({"ref"})
EDIT_FIELDS = frozenset({"path"})
#: The values that are templates of addresses, and the names that each must hold.
TEMPLATES = {"script_url": SCRIPT_FIELDS, "commit_url": COMMIT_FIELDS, "edit_url": EDIT_FIELDS}
#: The values that name a place to link.
LABELS = ("add_run", "estimator_page")


def register_config(app: Sphinx) -> None:
    """Tell Sphinx about every value.

    None of them makes Sphinx read everything again: pages that use a value remember what it was, see
    ``domain.VerlDomain.outdated``.
    """
    defaults = VerlConfig()
    for item in fields(VerlConfig):
        default = getattr(defaults, item.name)
        app.add_config_value(
            PREFIX + item.name, default, "", types=item.metadata["types"], description=item.metadata["help"]
        )


def read_config(config: Config) -> VerlConfig:
    """Return the values of this build."""
    values = {item.name: getattr(config, PREFIX + item.name) for item in fields(VerlConfig)}
    data = values["data"]
    listed = data if isinstance(data, (list, tuple)) else [data]
    # What is no name counts as an empty one, see ``config_problems``.
    values["data"] = [str(item) if isinstance(item, (str, os.PathLike)) else "" for item in listed]
    for name in ("script_url", "commit_url", "edit_url", *LABELS):
        values[name] = str(values[name])
    return VerlConfig(**values)


def config_problems(config: VerlConfig, confdir: Path) -> list[Diagnostic]:
    """Return the problems of values, at their line of conf.py."""
    found: list[Diagnostic] = []
    for name, names in TEMPLATES.items():
        problem = template_problem(getattr(config, name), names)
        if problem and getattr(config, name) != getattr(VerlConfig(), name):
            place = conf_place(confdir, name)
            found.append(
                Diagnostic(place, Code.config, f"{PREFIX}{name} {problem}", "the default is used instead")
            )
    if len(config.directories) != len(config.data):
        message = f"{PREFIX}data must be a list of directory names"
        found.append(
            Diagnostic(conf_place(confdir, "data"), Code.config, message, 'write ["data"], for example')
        )
    return found


def label_problems(config: VerlConfig, confdir: Path, labels: Container[str]) -> list[Diagnostic]:
    """Return the problems of labels that do not exist; all pages must have been read."""
    found: list[Diagnostic] = []
    for name in LABELS:
        target = getattr(config, name)
        if target != getattr(VerlConfig(), name) and not is_address(target) and target.lower() not in labels:
            message = f"{PREFIX}{name}: {target!r} is neither an address nor a label"
            hint = "write https://…, or put the label before a heading"
            found.append(Diagnostic(conf_place(confdir, name), Code.config, message, hint))
    return found


def conf_place(confdir: Path, name: str) -> Location:
    """Return where conf.py sets a value; its first line if no line sets it directly."""
    try:
        text = (confdir / "conf.py").read_text("utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(rf"^{PREFIX}{name}\b", text, re.MULTILINE)
    return Location("conf.py", text.count("\n", 0, match.start()) + 1 if match else 1, 1)
