"""The results and errors of ``make dist``."""

from __future__ import annotations

import io
import tarfile
from zipfile import ZipFile

import pytest
from modules import module_at

REPOSITORY = "https://github.com/OWNER/NAME"
METADATA = f"""\
Metadata-Version: 2.4
Name: sphinx-verl-resources
Version: 0.1.0
Project-URL: Source, {REPOSITORY}
Description-Content-Type: text/markdown

Text.

"""
#: A file to add, one to remove, and the problem.
CONTENTS = {
    ("sphinx_verl_resources/data/schema/run.json", ""): "run.json does not belong in the wheel",
    ("tests/test_a.py", ""): "tests/test_a.py does not belong in the wheel",
    ("data/gpus.yaml", ""): "data/gpus.yaml does not belong in the wheel",
    ("", "sphinx_verl_resources/data/gpus.yaml"): "data/gpus.yaml is missing",
    ("", "sphinx_verl_resources/py.typed"): "py.typed is missing",
}
#: A text of the metadata, what replaces it, and the problem.
CHANGES = {
    ("Project-URL", "Keywords"): "no Project-URL; run make dist",
    ("Version: 0.1.0", "Version: one"): "metadata: 'one' is invalid for 'version'",
    ("Text.", "![A](docs/a.png)"): "README.md: the link 'docs/a.png' is broken on an index",
    ("text/markdown", "text/html"): "metadata: 'description-content-type' must be one of",
    ("Text.", ""): "README.md is empty, or an index cannot render it",
}


@pytest.fixture(scope="module")
def tool(root):
    return module_at(root / "tools/distribution.py")


@pytest.fixture
def metadata(root, tmp_path):
    """Return a function that returns the hook's metadata for a README."""
    hook = module_at(root / "tools/repository_metadata.py")

    def of(text):
        (tmp_path / "README.md").write_text(text, "utf-8")
        result = {"version": "0.1.0"}
        hook.RepositoryMetadata(str(tmp_path), {}).update(result)
        return result

    return of


@pytest.fixture
def check(root, tool, tmp_path):
    """Return a function that checks two good distributions with changes, and returns what is said."""
    names = {
        f"{target}/{path.relative_to(root / source).as_posix()}"
        for source, target in tool.FOLDERS.items()
        for path in (root / source).rglob("*.*")
        if path.suffix not in {".json", ".po", ".pot", ".pyc"} and path.name != "glossary.md"
    }

    def checked(added="", removed="", text=METADATA, other=None):
        with ZipFile(tmp_path / "a.whl", "w") as wheel:
            for name in {*names, *filter(None, [added])} - {removed}:
                wheel.writestr(name, "")
            wheel.writestr("sphinx_verl_resources-0.1.0.dist-info/METADATA", text)
        with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as sdist:
            entry = tarfile.TarInfo("a/PKG-INFO")
            entry.size = len((other or text).encode())
            sdist.addfile(entry, io.BytesIO((other or text).encode()))
        try:
            return tool.check(tmp_path)
        except tool.WrongDistributionError as error:
            return error.args[0]

    return checked


def test_links_are_absolute_where_the_repository_is_known(metadata, monkeypatch, tmp_path):
    monkeypatch.delenv("VERL_RESOURCES_REPOSITORY", raising=False)
    result = metadata("![A](docs/a.png)")
    assert (result["readme"]["text"], "urls" in result) == ("![A](docs/a.png)", False)
    monkeypatch.setenv("VERL_RESOURCES_REPOSITORY", REPOSITORY)
    result = metadata(
        "![A (b)](docs/a.png), [guide](docs/b.md#c), [verl](https://example.org/v) and [top](#d)"
    )
    assert result["readme"]["content-type"] == "text/markdown"
    assert result["readme"]["text"] == (
        f"![A (b)]({REPOSITORY}/raw/v0.1.0/docs/a.png), [guide]({REPOSITORY}/blob/v0.1.0/docs/b.md#c), "
        "[verl](https://example.org/v) and [top](#d)"
    )
    assert result["urls"]["Changelog"] == f"{REPOSITORY}/blob/v0.1.0/CHANGELOG.md"
    (tmp_path / "PKG-INFO").write_text(METADATA)
    assert metadata("Text") == {"version": "0.1.0"}, "a wheel from an sdist keeps its metadata"


def test_the_repository(tool):
    for address in (REPOSITORY, f"{REPOSITORY}.git", f"{REPOSITORY}/", "git@github.com:OWNER/NAME.git"):
        assert tool.repository(address) == REPOSITORY
    for address in ("/some/folder", "https://example.org/OWNER/NAME", "https://github.com/OWNER"):
        with pytest.raises(tool.WrongDistributionError, match=rf"make dist REPOSITORY={REPOSITORY}$"):
            tool.repository(address)


def test_distributions(check):
    assert [line.split(":")[0] for line in check().splitlines()] == ["a.whl", "a.tar.gz"]
    for changes, problem in CONTENTS.items():
        assert f"{problem}; see tool.hatch.build.targets.wheel" in check(*changes)
    for changes, problem in CHANGES.items():
        assert problem in check(text=METADATA.replace(*changes))
    assert "METADATA differs from PKG-INFO of the sdist" in check(other=METADATA + "Text")
