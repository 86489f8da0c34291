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
DIST_INFO = "sphinx_verl_resources-0.1.0.dist-info/METADATA"


@pytest.fixture(scope="module")
def tool(root):
    return module_at(root / "tools/distribution.py")


@pytest.fixture
def hook(root):
    """Return the module of the hook."""
    return module_at(root / "tools/repository_metadata.py")


@pytest.fixture
def metadata(hook, tmp_path):
    """Return a function that returns the hook's metadata for a README."""

    def of(text):
        (tmp_path / "README.md").write_text(text, "utf-8")
        found = {"version": "0.1.0"}
        hook.RepositoryMetadata(str(tmp_path), {}).update(found)
        return found

    return of


@pytest.fixture
def packed(tool, tmp_path):
    """Return a function that creates a folder with both distributions, with given files and metadata."""

    def of(names, text=METADATA, information=None):
        with ZipFile(tmp_path / "a.whl", "w") as wheel:
            for name in names:
                wheel.writestr(name, "")
            wheel.writestr(DIST_INFO, text)
        with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as sdist:
            content = (information or text).encode()
            entry = tarfile.TarInfo("a/PKG-INFO")
            entry.size = len(content)
            sdist.addfile(entry, io.BytesIO(content))
        return tmp_path

    return of


@pytest.fixture(scope="module")
def names(root, tool):
    """Return the files of a valid wheel."""
    return [
        f"{target}/{path.relative_to(root / source).as_posix()}"
        for source, target in tool.FOLDERS.items()
        for path in (root / source).rglob("*")
        if path.is_file()
        and path.suffix not in {".json", ".po", ".pot", ".pyc"}
        and path.name != "glossary.md"
    ]


def test_links_are_absolute_where_the_repository_is_known(metadata, monkeypatch):
    monkeypatch.setenv("VERL_RESOURCES_REPOSITORY", REPOSITORY)
    found = metadata(
        "![A (b)](docs/a.png), [guide](docs/b.md#c), [verl](https://example.org/v) and [top](#d)"
    )
    assert found["readme"] == {
        "content-type": "text/markdown",
        "text": f"![A (b)]({REPOSITORY}/raw/v0.1.0/docs/a.png), [guide]({REPOSITORY}/blob/v0.1.0/docs/b.md#c), "
        "[verl](https://example.org/v) and [top](#d)",
    }
    assert found["urls"]["Changelog"] == f"{REPOSITORY}/blob/v0.1.0/CHANGELOG.md"


def test_without_a_repository_the_readme_stays_as_it_is(metadata, monkeypatch):
    monkeypatch.delenv("VERL_RESOURCES_REPOSITORY", raising=False)
    found = metadata("![A](docs/a.png)")
    assert found["readme"]["text"] == "![A](docs/a.png)"
    assert "urls" not in found


def test_a_wheel_from_an_sdist_keeps_its_metadata(metadata, monkeypatch, tmp_path):
    monkeypatch.setenv("VERL_RESOURCES_REPOSITORY", REPOSITORY)
    (tmp_path / "PKG-INFO").write_text(METADATA)
    assert metadata("Text") == {"version": "0.1.0"}


@pytest.mark.parametrize(
    "given", [REPOSITORY, f"{REPOSITORY}.git", f"{REPOSITORY}/", "git@github.com:OWNER/NAME.git"]
)
def test_the_repository(tool, given):
    assert tool.repository(given) == REPOSITORY


@pytest.mark.parametrize(
    "given", ["/some/folder", "https://example.org/OWNER/NAME", "https://github.com/OWNER"]
)
def test_another_place_is_no_repository(tool, given):
    with pytest.raises(
        tool.WrongDistributionError, match=r"make dist REPOSITORY=https://github\.com/OWNER/NAME$"
    ):
        tool.repository(given)


def test_good_distributions(tool, packed, names):
    assert [line.split(":")[0] for line in tool.check(packed(names)).splitlines()] == ["a.whl", "a.tar.gz"]


@pytest.mark.parametrize(
    ("added", "removed", "problem"),
    [
        ("sphinx_verl_resources/data/schema/run.json", "", "run.json does not belong in the wheel"),
        ("tests/test_a.py", "", "tests/test_a.py does not belong in the wheel"),
        ("data/gpus.yaml", "", "data/gpus.yaml does not belong in the wheel"),
        ("", "sphinx_verl_resources/data/gpus.yaml", "data/gpus.yaml is missing"),
        ("", "sphinx_verl_resources/py.typed", "py.typed is missing"),
    ],
)
def test_contents(tool, packed, names, added, removed, problem):
    with pytest.raises(tool.WrongDistributionError) as caught:
        tool.check(packed([name for name in [*names, added] if name != removed and name]))
    (message,) = caught.value.args
    assert message.startswith("a.whl: ")
    assert f"{problem}; see tool.hatch.build.targets.wheel" in message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (METADATA.replace("Project-URL", "Keywords"), "no Project-URL; run make dist"),
        (METADATA.replace("Version: 0.1.0", "Version: one"), "metadata: 'one' is invalid for 'version'"),
        (METADATA + "![A](docs/a.png)", "README.md: the link 'docs/a.png' is broken on an index"),
        (
            METADATA.replace("text/markdown", "text/html"),
            "metadata: 'description-content-type' must be one of",
        ),
        (METADATA.replace("Text.", ""), "README.md is empty, or an index cannot render it"),
    ],
)
def test_metadata(tool, packed, names, text, problem):
    with pytest.raises(tool.WrongDistributionError) as caught:
        tool.check(packed(names, text))
    assert problem in caught.value.args[0]


def test_both_distributions_say_the_same(tool, packed, names):
    with pytest.raises(tool.WrongDistributionError, match="METADATA differs from PKG-INFO of the sdist"):
        tool.check(packed(names, METADATA, METADATA + "Text"))
