"""A project with every directive and role, and the output of a build as bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from page_cases import group_builder  # noqa: F401

FOLDER = Path(__file__).with_name("everything")


@pytest.fixture
def everything(project, data):
    """A project with every directive and role, and own data of each kind, before its first build."""
    for folder in (project.path, data.path):
        shutil.copytree(FOLDER / folder.name, folder, dirs_exist_ok=True)
    project.conf.update(verl_resources_data=["../data"], version="1", copyright="x", html_theme="basic")
    return project


@pytest.fixture(scope="session")
def written():
    """A function that returns the files of an output by path, without what differs by nature."""

    def of_output(folder: Path) -> dict[str, bytes]:
        paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        if "searchindex.js" in files:
            files["searchindex.js"] = _without_sphinxs_leftovers(files["searchindex.js"])
        return {name: content for name, content in files.items() if ".buildinfo" not in name}

    return of_output


def _without_sphinxs_leftovers(index: bytes) -> bytes:
    """Return the search index without what Sphinx forgets to delete from it, or to add, in a second build."""
    result = json.loads(index[index.index(b"{") : index.rindex(b"}") + 1])
    del result["indexentries"]
    for kind in ("terms", "titleterms"):
        result[kind] = {word: pages for word, pages in result[kind].items() if pages != []}
    return json.dumps(result).encode()
