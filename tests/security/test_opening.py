"""Every place in the source that opens, writes, renames or removes a file is listed with a reason."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: By module and function: the files, and why this is safe.
KNOWN = {
    ("catalog/files.py", "open_regular", "open"): "the one that opens data files and what a user names",
    ("cli/files.py", "write_results", "mkdir"): "a folder that the user names",
    ("cli/files.py", "create_file", "replace"): "a data file, after a look for links that lead out",
    ("cli/files.py", "replace_unchanged", "replace"): "a data file, after a look at links and content",
    ("cli/files.py", "replace_unchanged", "read_bytes"): "what was there a moment ago",
    ("cli/files.py", "replace_unchanged", "_exchange"): "the same in one step",
    ("cli/files.py", "remove_unchanged", "unlink"): "a data file, after a look at its content",
    ("cli/files.py", "_replace", "replace"): "of the callers, which look for links or have the user's word",
    ("cli/files.py", "_replacement", "chmod"): "a file of its own making",
    ("cli/files.py", "_temporary_file", "mkdir"): "the folder runs of a data directory",
    ("cli/files.py", "_temporary_file", "open"): "a new file",
    ("cli/files.py", "_temporary_file", "unlink"): "that file",
    ("cli/check.py", "_write_renamed", "chmod"): "the file that create_file has just made",
    ("cli/main.py", "_discard", "open"): "the null device, in place of a reader that went away",
    ("catalog/key_names.py", "key_names", "read_text"): "a file of the package",
    ("i18n.py", "use_language", "read_bytes"): "message catalogs that conf.py names",
    ("git.py", "committed", "read_bytes"): "the launch script that the user names, read before",
    ("sphinx_ext/config.py", "conf_place", "read_text"): "conf.py",
    ("sphinx_ext/assets.py", "write_files", "unlink"): "the output folder of a build",
    ("sphinx_ext/assets.py", "write_files", "read_bytes"): "the output folder of a build",
    ("sphinx_ext/assets.py", "write_files", "mkdir"): "the output folder of a build",
    ("sphinx_ext/assets.py", "write_files", "write_bytes"): "the output folder of a build",
}
#: Methods of paths, and functions of ``os``, that open or change a file.
NAMES = {
    *("fdopen", "popen", "read_text", "read_bytes", "write_text", "write_bytes", "touch", "truncate"),
    *("rename", "renames", "unlink", "removedirs", "rmdir", "mkdir", "makedirs", "chmod", "chown"),
    *("symlink", "symlink_to", "hardlink_to", "link", "link_to", "mkfifo", "mknod", "utime", "_exchange"),
}
MODULES = {"shutil", "tempfile", "mmap", "fileinput", "linecache", "sqlite3", "zipfile", "tarfile", "pickle"}
HARMLESS = {"get_terminal_size"}


def places(package: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the module, function and call of each place that opens or changes a file."""
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for node in ast.walk(tree):
            if name := opens(node):
                around = [item for item in functions if item.lineno <= node.lineno <= (item.end_lineno or 0)]
                inner = max(around, key=lambda item: item.lineno, default=None)
                yield path.relative_to(package).as_posix(), inner.name if inner else "", name


def opens(node: ast.AST) -> str:
    """Return the name of a call that opens or changes a file; empty for other calls."""
    if isinstance(node, ast.ImportFrom) and node.module in {"os", "io", *MODULES}:
        return ", ".join(alias.name for alias in node.names if alias.name in NAMES)
    if isinstance(node, ast.Name):
        return node.id if node.id in {"open", "_exchange"} and isinstance(node.ctx, ast.Load) else ""
    if isinstance(node, ast.Attribute):
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        if owner == "self":
            return ""
        if owner in MODULES:
            return "" if node.attr in HARMLESS else f"{owner}.{node.attr}"
        return (
            node.attr if node.attr in NAMES or (owner == "os" and node.attr in {"remove", "replace"}) else ""
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        # Path.replace takes one argument, str.replace two, datetime.replace none without a name.
        is_replacing = node.func.attr == "replace" and len(node.args) == 1 and not node.keywords
        return node.func.attr if is_replacing or node.func.attr == "open" else ""
    return ""


def test_only_known_places_open_or_change_files(root):
    found = set(places(root / "sphinx_verl_resources"))
    assert sorted(found - KNOWN.keys()) == []
    assert sorted(KNOWN.keys() - found) == [], "remove what is there no more"
