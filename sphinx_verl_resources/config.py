"""The ``verl_resources_*`` values of conf.py: type, default, description, and their problems."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING
from urllib.parse import quote

from .diagnostics import Diagnostic, Location
from .links import COMMIT_URL, SCRIPT_URL, Links, is_address, template_problem

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from sphinx.application import Sphinx
    from sphinx.config import Config

PREFIX = "verl_resources_"
#: The address templates, with the fields that each must contain.
TEMPLATES = {
    "script_url": frozenset({"ref", "path"}),
    "commit_url": frozenset({"ref"}),
    "edit_url": frozenset({"path"}),
}
#: The values that are a label or an address.
LABELS = ("add_run", "estimator_page")


def about(kind: str, text: str) -> dict[str, str]:
    """Describe a value: its type in words, and its meaning in reStructuredText."""
    return {"type": kind, "help": text}


@dataclass(frozen=True)
class VerlConfig:
    """The values of conf.py, named without their prefix."""

    data: list[str] = field(
        default_factory=list,
        metadata=about(
            "list of directories",
            "Data directories, relative to conf.py. Their runs replace the bundled runs; their registries "
            "extend the bundled ones and override entries of the same name.",
        ),
    )
    script_url: str = field(
        default=SCRIPT_URL,
        metadata=about("address with ``{ref}`` and ``{path}``", "Address of a file in verl's repository."),
    )
    commit_url: str = field(
        default=COMMIT_URL,
        metadata=about("address with ``{ref}``", "Address of a commit in verl's repository."),
    )
    edit_url: str = field(
        default="",
        metadata=about(
            "address with ``{path}``",
            "Address for editing a file of the data; ``{path}`` is its path in the data directory, "
            "``runs/<id>.yaml``. If empty, no link is shown.",
        ),
    )
    add_run: str = field(
        default="verl-add-a-run",
        metadata=about(
            "label or address",
            "Link for contributors in sections without runs. If the label does not exist, "
            "``verl-resources new --help`` is shown instead.",
        ),
    )
    estimator_page: str = field(
        default="verl-estimator",
        metadata=about(
            "label or address",
            "Page about the estimator, linked below remarks. If the label does not exist, no link is shown.",
        ),
    )

    @classmethod
    def read(cls, config: Config) -> VerlConfig:
        """Return the values of this build; what is no name of a directory becomes an empty name."""
        values = {item.name: str(getattr(config, PREFIX + item.name)) for item in fields(cls)}
        data = getattr(config, PREFIX + "data")
        names = data if isinstance(data, (list, tuple)) else [data]
        listed = [str(name) if isinstance(name, (str, os.PathLike)) else "" for name in names]
        return cls(**{**values, "data": listed})  # type: ignore[arg-type]

    def template(self, name: str) -> str:
        """Return an address template; the default in place of an invalid one."""
        own: str = getattr(self, name)
        default: str = getattr(VerlConfig(), name)
        return default if template_problem(own, TEMPLATES[name]) else own

    @property
    def links(self) -> Links:
        """The link templates."""
        return Links(self.template("script_url"), self.template("commit_url"))

    def edit_address(self, path: str) -> str:
        """Return the address for editing a file of the data; empty if ``edit_url`` is unset or invalid."""
        return self.template("edit_url").format(path=quote(path))

    @property
    def directories(self) -> list[str]:
        """The data directories with usable names."""
        return [name for name in self.data if name and "\0" not in name]

    def problems(self, confdir: Path, labels: Container[str]) -> Iterator[Diagnostic]:
        """Yield the problems of values, each at its line of conf.py; ``labels`` are those of all pages."""

        def problem(name: str, message: str, remedy: str) -> Diagnostic:
            return Diagnostic(conf_place(confdir, name), "config", f"{PREFIX}{name}{message}", remedy)

        for name, names in TEMPLATES.items():
            own = getattr(self, name)
            wrong = own != getattr(VerlConfig(), name) and template_problem(own, names)
            if wrong:
                yield problem(name, f" {wrong}", "the default is used instead")
        if len(self.directories) != len(self.data):
            yield problem("data", " must be a list of directory names", 'write ["data"], for example')
        for name in LABELS:
            target = getattr(self, name)
            if target == getattr(VerlConfig(), name) or is_address(target) or target.lower() in labels:
                continue
            hint = "write an address that begins with https://, or the label of a heading"
            yield problem(name, f": {target!r} is neither an address nor a label", hint)


def register_config(app: Sphinx) -> None:
    """Register every value with Sphinx.

    A changed value makes Sphinx read again only our pages, see ``domain.VerlDomain.outdated``.
    """
    for item in fields(VerlConfig):
        default = getattr(VerlConfig(), item.name)
        types = (list, tuple) if isinstance(default, list) else (str,)
        app.add_config_value(PREFIX + item.name, default, "", types, item.metadata["help"])


def conf_place(confdir: Path, name: str) -> Location:
    """Return the line of conf.py that sets a value; the first line if there is none."""
    try:
        text = (confdir / "conf.py").read_text("utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(rf"^{PREFIX}{name}\b", text, re.MULTILINE)
    return Location("conf.py", text.count("\n", 0, match.start()) + 1 if match else 1, 1)
