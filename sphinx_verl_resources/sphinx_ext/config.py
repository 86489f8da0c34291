"""The ``verl_resources_*`` values of conf.py: type, default, description, and the pages that use them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..diagnostics import Code, Diagnostic, Location
from ..links import COMMIT_URL, SCRIPT_URL, Links, is_address, template_problem

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

    from sphinx.application import Sphinx
    from sphinx.config import Config

PREFIX = "verl_resources_"


def _about(kind: str, text: str, *types: type) -> dict[str, Any]:
    """Describe a value for the documentation and for Sphinx.

    Args:
        kind: its type, in words.
        text: its description, in reStructuredText.
        types: its types; text by default.
    """
    return {"type": kind, "help": text, "types": types or (str,)}


@dataclass(frozen=True)
class VerlConfig:
    """The values of conf.py, named without their prefix."""

    data: list[str] = field(
        default_factory=list,
        metadata=_about(
            "list of directories",
            "Data directories, relative to conf.py. Their runs replace the bundled runs; their registries "
            "extend the bundled ones and override entries of the same name.",
            list,
            tuple,
        ),
    )
    script_url: str = field(
        default=SCRIPT_URL,
        metadata=_about(
            "address with ``{ref}`` and ``{path}``",
            "Address of a file in verl's repository.",
        ),
    )
    commit_url: str = field(
        default=COMMIT_URL,
        metadata=_about(
            "address with ``{ref}``",
            "Address of a commit in verl's repository.",
        ),
    )
    edit_url: str = field(
        default="",
        metadata=_about(
            "address with ``{path}``",
            "Address for editing a file of the data; ``{path}`` is its path in the data directory, "
            "``runs/<id>.yaml``. If empty, no link is shown.",
        ),
    )
    add_run: str = field(
        default="verl-add-a-run",
        metadata=_about(
            "label or address",
            "Link for contributors in sections without runs. If the label does not exist, "
            "``verl-resources new --help`` is shown instead.",
        ),
    )
    estimator_page: str = field(
        default="verl-estimator",
        metadata=_about(
            "label or address",
            "Page about the estimator, linked below remarks. If the label does not exist, no link is shown.",
        ),
    )

    @property
    def links(self) -> Links:
        """The link templates, with defaults in place of invalid ones."""
        return Links(
            SCRIPT_URL if template_problem(self.script_url, SCRIPT_FIELDS) else self.script_url,
            COMMIT_URL if template_problem(self.commit_url, COMMIT_FIELDS) else self.commit_url,
        )

    def edit_address(self, path: str) -> str:
        """Return the address for editing a file of the data; empty if ``edit_url`` is unset or invalid."""
        if template_problem(self.edit_url, EDIT_FIELDS):
            return ""
        return self.edit_url.format(path=quote(path))

    @property
    def labels(self) -> list[str]:
        """The values that may be labels of pages."""
        return [getattr(self, name) for name in LABELS]

    @property
    def directories(self) -> list[str]:
        """The data directories with usable names."""
        return [name for name in self.data if name and "\0" not in name]


SCRIPT_FIELDS = frozenset({"ref", "path"})
COMMIT_FIELDS = frozenset({"ref"})
EDIT_FIELDS = frozenset({"path"})
#: The address templates, with the fields that each must contain.
TEMPLATES = {"script_url": SCRIPT_FIELDS, "commit_url": COMMIT_FIELDS, "edit_url": EDIT_FIELDS}
#: The values that are a label or an address.
LABELS = ("add_run", "estimator_page")


def register_config(app: Sphinx) -> None:
    """Register every value with Sphinx.

    A changed value makes Sphinx read again only our pages, see ``domain.VerlDomain.outdated``.
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
    # Anything but a name becomes an empty name, which ``config_problems`` reports.
    values["data"] = [str(item) if isinstance(item, (str, os.PathLike)) else "" for item in listed]
    for name in ("script_url", "commit_url", "edit_url", *LABELS):
        values[name] = str(values[name])
    return VerlConfig(**values)


def config_problems(config: VerlConfig, confdir: Path) -> list[Diagnostic]:
    """Return the problems of values, each at its line of conf.py."""
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
    """Return a problem for each label that does not exist. Call this after all pages are read."""
    found: list[Diagnostic] = []
    for name in LABELS:
        target = getattr(config, name)
        if target != getattr(VerlConfig(), name) and not is_address(target) and target.lower() not in labels:
            message = f"{PREFIX}{name}: {target!r} is neither an address nor a label"
            hint = "write an address that begins with https://, or the label of a heading"
            found.append(Diagnostic(conf_place(confdir, name), Code.config, message, hint))
    return found


def conf_place(confdir: Path, name: str) -> Location:
    """Return the line of conf.py that sets a value; the first line if there is none."""
    try:
        text = (confdir / "conf.py").read_text("utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(rf"^{PREFIX}{name}\b", text, re.MULTILINE)
    return Location("conf.py", text.count("\n", 0, match.start()) + 1 if match else 1, 1)
