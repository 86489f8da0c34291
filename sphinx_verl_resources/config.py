"""The ``verl_resources_*`` values of conf.py, and their problems."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from .diagnostics import Diagnostic, Location
from .records import COMMIT_URL, SCRIPT_URL, Links, is_address

if TYPE_CHECKING:
    from pathlib import Path

    from sphinx.application import Sphinx
    from sphinx.config import Config

PREFIX = "verl_resources_"


class Value(NamedTuple):
    """A value of conf.py.

    Attributes:
        default: its default.
        kind: its type, in words.
        help: its meaning; both in reStructuredText.
        fields: of an address template, the names in braces that it must contain.
    """

    default: Any
    kind: str
    help: str
    fields: tuple[str, ...] = ()


#: The values by their names without the prefix.
VALUES = {
    "data": Value(
        [],
        "list of directories",
        "Data directories, relative to conf.py. Their runs replace the bundled runs; their registries extend "
        "the bundled ones and override entries of the same name.",
    ),
    "script_url": Value(
        SCRIPT_URL,
        "address with ``{ref}`` and ``{path}``",
        "Address of a file in verl's repository.",
        ("ref", "path"),
    ),
    "commit_url": Value(
        COMMIT_URL, "address with ``{ref}``", "Address of a commit in verl's repository.", ("ref",)
    ),
    "edit_url": Value(
        "",
        "address with ``{path}``",
        "Address for editing a file of the data; ``{path}`` is its path in the data directory, "
        "``runs/<id>.yaml``. If empty, no link is shown.",
        ("path",),
    ),
    "add_run": Value(
        "verl-add-a-run",
        "label or address",
        "Link for contributors in sections without runs. If the label does not exist, "
        "``verl-resources new --help`` is shown instead.",
    ),
    "estimator_page": Value(
        "verl-estimator",
        "label or address",
        "Page about the estimator, linked below remarks. If the label does not exist, no link is shown.",
    ),
}


@dataclass(frozen=True)
class VerlConfig:
    """The values of a build.

    Attributes:
        data: the names of data directories, relative to conf.py.
        links: the templates of links to verl's repository.
        edit_url: the template of addresses for editing, or empty.
        add_run: a label or an address.
        estimator_page: a label or an address.
        problems: the problems of the values.
    """

    data: tuple[str, ...]
    links: Links
    edit_url: str
    add_run: str
    estimator_page: str
    problems: tuple[Diagnostic, ...]

    def edit_address(self, path: str) -> str:
        """Return the address for editing a file of the data; empty if ``edit_url`` is unset or invalid."""
        return self.edit_url.format(path=quote(path))


def register_config(app: Sphinx) -> None:
    """Register every value with Sphinx, which then reports values of a wrong type.

    A changed value makes Sphinx read again only our pages, see ``domain.VerlDomain.outdated``.
    """
    for name, value in VALUES.items():
        types = (list, tuple) if name == "data" else (str,)
        app.add_config_value(PREFIX + name, value.default, "", types, value.help)


def read_config(config: Config, confdir: Path) -> VerlConfig:
    """Return the values of this build; the default in place of an invalid template."""
    problems = []
    values = {name: getattr(config, PREFIX + name) for name in VALUES}
    for name, value in VALUES.items():
        is_own_template = value.fields and values[name] != value.default
        if is_own_template and (problem := _template_problem(str(values[name]), value.fields)):
            message, remedy = f"{PREFIX}{name} {problem}", "the default is used instead"
            problems.append(Diagnostic(conf_place(confdir, name), "config", message, remedy))
            values[name] = value.default
    data = values["data"]
    return VerlConfig(
        tuple(map(str, data if isinstance(data, (list, tuple)) else [data])),
        Links(values["script_url"], values["commit_url"]),
        values["edit_url"],
        str(values["add_run"]),
        str(values["estimator_page"]),
        tuple(problems),
    )


def _template_problem(template: str, fields: tuple[str, ...]) -> str:
    """Return the problem of a template that must use exactly ``fields``; empty if there is none."""
    wanted = [f"{{{name}}}" for name in fields]
    if sorted(re.findall(r"\{[^}]*\}?|\}", template)) != sorted(wanted):
        return f"must contain {' and '.join(wanted)} and no other placeholder"
    is_right = is_address(template.format(**dict.fromkeys(fields, "x")))
    return "" if is_right else "must begin with https:// and contain no spaces or quotes"


def conf_place(confdir: Path, name: str) -> Location:
    """Return the line of conf.py that sets a value; the first line if there is none."""
    file = confdir / "conf.py"
    text = file.read_text("utf-8", errors="replace") if file.is_file() else ""
    match = re.search(rf"^{PREFIX}{name}\b", text, re.MULTILINE)
    return Location("conf.py", text.count("\n", 0, match.start()) + 1 if match else 1, 1)
