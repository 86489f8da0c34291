"""Every kind of change: exactly the pages that use it are read again.

The domain answers for all of them; for one change of each kind, the output is compared with a fresh build.
"""

from __future__ import annotations

import os
import shutil

import pytest
from data_changes import CARD, CHANGES, ON_OWN_CARD, REMARKS, RUN_A7, RUN_C3, RUN_D05, apply


@pytest.fixture
def folder(data):
    """The folder of the data directories."""
    return data.path.parent


#: One change of each kind, with compared output.
COMPARED = {
    "figures of 8B", "run added", "run broken", "card of runs renamed", "architecture deleted", "key added that a page shows",
    "case overridden in a later directory",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_data(asked, change):
    changes, users = CHANGES[change]
    apply(changes, asked.folder)
    assert asked.outdated() == users


@pytest.mark.slow
@pytest.mark.parametrize("change", sorted(COMPARED))
def test_what_is_written_is_what_a_fresh_build_writes(every_use, folder, change, same_as_fresh):
    changes, users = CHANGES[change]
    apply(changes, folder)
    build = every_use.build()
    assert build.read == users
    same_as_fresh(build, every_use)


@pytest.mark.slow
def test_time_stamps(asked):
    for path in asked.folder.rglob("*.yaml"):
        os.utime(path)
    assert asked.outdated() == set()


@pytest.mark.slow
def test_older_files_in_the_place_of_newer_ones(asked):
    apply(CHANGES["run edited"][0], asked.folder)
    for path in asked.folder.rglob("*.yaml"):
        os.utime(path, (1, 1))
    assert asked.outdated() == CHANGES["run edited"][1]


#: By value of conf.py, its setting and the pages that use it.
VALUES = {
    "script_url": (
        "https://example.org/{ref}/{path}",
        {*REMARKS, "runs", "runs-7b", "runs-details", "what-if"},
    ),
    "commit_url": ("https://example.org/{ref}", RUN_C3 - {"downloads"}),
    "edit_url": ("https://example.org/edit/{path}", {"runs-details"}),
    "add_run": ("own-label", {"runs", "runs-empty"}),
    "estimator_page": ("own-label", {*REMARKS, "what-if"}),
    "data": (["../more", "../data"], {"gpus", "fewest"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_configuration(asked, name, monkeypatch):
    value, users = VALUES[name]
    monkeypatch.setattr(asked.app.config, f"verl_resources_{name}", value)
    assert asked.outdated() == users


@pytest.mark.slow
def test_a_directory_vanishes_and_comes_back(every_use, folder, same_as_fresh):
    shutil.move(folder / "data", folder / "away")
    build = every_use.build()
    everywhere = {*RUN_A7, *RUN_C3, *RUN_D05, *ON_OWN_CARD, "data-runs", "data-updated", "data-gpus", "data-models",
                  "memory-model", "accuracy", "gpus", "gpus-own", "models", "models-own", "role-run", "role-gpu",
                  "role-model"}  # fmt: skip
    assert build.read == everywhere
    same_as_fresh(build, every_use)
    shutil.move(folder / "away", folder / "data")
    build = every_use.build()
    assert build.read == everywhere
    same_as_fresh(build, every_use)


@pytest.mark.slow
def test_a_new_version_of_the_extension(every_use, monkeypatch):
    pages = {path.stem for path in every_use.path.glob("*.rst")}
    (every_use.path / "wrong.rst").write_text(":orphan:\n\nx\n=\n\n.. verl-runs::\n   :foo: bar\n")
    every_use.build()
    monkeypatch.setattr("sphinx_verl_resources.sphinx_ext.queries.__version__", "99")
    assert every_use.build().read == {*pages, "wrong"} - {"index", "plain"}


@pytest.mark.slow
def test_pages_that_say_what_is_wrong(every_use, folder):
    """They are read again when the hint changes or the mistake is fixed."""
    pages = {
        "wrong-card": ".. verl-runs:: 405B\n   :gpu: OWN-41\n",
        "wrong-setting": ".. verl-runs:: 405B\n   :columns: id settings.data.prompts_a_step\n",
        "wrong-run": ".. verl-memory::\n   :run: a8\n",
        "wrong-model": ".. verl-memory:: 13B\n",
        "wrong-option": ".. verl-runs::\n   :foo: bar\n",
    }
    for name, text in pages.items():
        every_use.page(text, f"{name}.rst")
    assert len(every_use.build().warnings) == len(pages)
    apply({"more/gpus.yaml": "+" + CARD.format("UNLIKE", 9)}, folder)
    assert every_use.build().read == {"gpus", "data-gpus"}, "the hint stays the same"
    apply({"more/gpus.yaml": ("UNLIKE", "OWN-41B")}, folder)
    build = every_use.build()
    assert build.read == {"gpus", "wrong-card"}
    assert "did you mean 'OWN-41B'?" in build.text("wrong-card.html").replace("&#39;", "'")
    apply({"more/gpus.yaml": ("OWN-41B", "OWN-41")}, folder)
    assert every_use.build().read == {"gpus", "wrong-card"}
    apply({"data/runs/a7.yaml": ("train_batch_size", "prompts_a_step")}, folder)
    assert "wrong-setting" in every_use.build().read
    apply({"more/analysis.yaml": "specifications:\n  - {name: 13B, model: own/Used-1B}\n"}, folder)
    assert every_use.build().read == {"wrong-model"}
    apply(CHANGES["run that others link renamed"][0], folder)
    build = every_use.build()
    assert "wrong-run" in build.read
    assert [line.rpartition(": ")[2].split(";")[0] for line in build.warnings if "wrong-run" in line] == []
    assert "wrong-option" not in build.read


@pytest.mark.slow
def test_what_no_page_shows_is_remembered(every_use, folder, monkeypatch):
    """Later builds do not load the data again until a page is read for another reason."""
    apply(CHANGES["key edited that no page shows"][0], folder)
    assert every_use.build().read == set()
    from sphinx_verl_resources.dataset import Dataset

    monkeypatch.setattr(Dataset, "runs", property(lambda self: pytest.fail("loaded")))
    assert every_use.build().read == set()


@pytest.mark.slow
def test_a_label_that_appears_is_linked_from_pages_that_are_not_read(every_use, same_as_fresh):
    label = {"verl_resources_estimator_page": "later", "verl_resources_add_run": "later"}
    build = every_use.build(**label)
    assert len(build.warnings) == 2
    assert "The estimator computes" not in build.text("trade-offs.html")
    plain = every_use.path / "plain.rst"
    text = plain.read_text()
    plain.write_text(text.replace("own-label", "later"))
    build = every_use.build()
    assert (build.read, build.warnings) == ({"plain"}, [])
    assert "plain.html#later" in build.text("trade-offs.html")
    assert "plain.html#later" in build.text("runs-empty.html")
    same_as_fresh(build, every_use)
    plain.write_text(text)
    build = every_use.build()
    assert build.read == {"plain"}
    same_as_fresh(build, every_use)
