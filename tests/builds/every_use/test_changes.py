"""Every kind of change: exactly the pages that use it are read again.

The domain is asked for all of them; for one of each kind, what is then written is compared with a fresh build.
"""

from __future__ import annotations

import os
import shutil

import pytest

#: Pages by what they use.
RUN_A7 = {
    "downloads",
    "runs",
    "runs-7b",
    "runs-details",
    "runs-setting",
    "runs-peak",
    "memory-run",
    "memory-drawn",
}
RUN_C3 = {"downloads", "runs", "runs-3b", "runs-details"}
RUN_D05 = {"downloads", "runs", "runs-card", "runs-model"}
ESTIMATES = {
    "runs-peak", "runs-details", "memory-run", "memory-drawn", "memory-settings", "fit", "lengths", "what-if", "downloads",
    "accuracy",
    "accuracy-drawn", "accuracy-training",
}  # fmt: skip
ON_OWN_CARD = {
    "runs-peak", "runs-details", "memory-run", "memory-drawn", "memory-settings", "fit", "lengths", "what-if",
    "downloads",
}  # fmt: skip
CHAIN_OF_8B = {"memory-8b", "memory-role", "summary", "requirements", "priorities"}
REMARKS = {
    "memory-8b", "memory-chart", "memory-model", "summary", "requirements", "config", "assumptions", "priorities",
    "trade-offs", "monitoring",
}  # fmt: skip

CARD = "  - {{name: {}, vendor: nvidia, memory_gb: 1, memory_mib: {}, kind: nominal}}\n"
KEY = "  - {{name: {}, group: actor, type: str, default: {}, phases: [], effect: {}, status: active}}\n"
ACCURACY = (
    "accuracy:\n  - {{name: {}, cases: 2, mean_error: 0.1, median_error: 0.1, worst_error: 0.2, out_of_fold: 0.1, "
    "inside: 1.0, half_width: 0.3, widening: 1.9}}\n"
)
CASE = (
    "- {{id: {}, source: https://example.org/log, model: own/Used-1B, gpus: {{count: {}, type: H100}}, "
    "config: {{trainer.nnodes: 1}}}}\n"
)
MODEL = "own/Used-1B"
DTYPE = "actor_rollout_ref.actor.fsdp_config.model_dtype"
SHOWN_KEY = "actor_rollout_ref.rollout.gpu_memory_utilization"

#: By a name for it, what happens in each file, and which pages use that. A pair of texts is replaced in the file,
#: one text takes the place of the file or is added to it after "+", None deletes it.
CHANGES = {
    # runs
    "run edited": ({"data/runs/a7.yaml": ("max_batch: 16", "max_batch: 17")}, RUN_A7),
    "setting of a run": ({"data/runs/a7.yaml": ("_gpu: 4", "_gpu: 2")}, RUN_A7),
    "remark of a run": ({"data/runs/a7.yaml": ("A remark", "Another remark")}, RUN_A7),
    "date of a run": ({"data/runs/a7.yaml": ("2026-08-01", "2026-08-02")}, {*RUN_A7, "data-updated"}),
    "comment in a run": ({"data/runs/a7.yaml": "+# For people.\n"}, set()),
    "size class of a run": ({"data/runs/c3.yaml": ("3B\ntag: MIN\nmodel: Qwen/Qwen2.5-3B-Instruct", "405B\ntag: MIN\nmodel: meta-llama/Llama-3.1-405B")}, {*RUN_C3, "runs-empty"}),
    "card of a run": ({"data/runs/d05.yaml": ("OWN-40", "H20")}, {*RUN_D05, "what-if"}),
    "run broken": ({"data/runs/d05.yaml": ("tag: MIN", "tag: X")}, {*RUN_D05, "data-runs", "what-if"}),
    "run added": (
        {"data/runs/e3.yaml": ("data/runs/c3.yaml", "id: c3", "id: e3")}, {*RUN_C3, "data-runs"},
    ),
    "run deleted": ({"data/runs/c3.yaml": None}, {*RUN_C3, "data-runs", "role-run"}),
    "run renamed": (
        {"data/runs/c4.yaml": ("data/runs/c3.yaml", "id: c3", "id: c4"), "data/runs/c3.yaml": None},
        {*RUN_C3, "role-run"},
    ),
    "run that others link renamed": (
        {"data/runs/a8.yaml": ("data/runs/a7.yaml", "id: a7", "id: a8"), "data/runs/a7.yaml": None},
        {*RUN_A7, "fit", "role-run"},
    ),
    # GPUs
    "card edited": ({"data/gpus.yaml": ("mib: 40960", "mib: 30960")}, {*ON_OWN_CARD, "gpus", "gpus-own"}),
    "alias of a card": ({"data/gpus.yaml": ("OWN-ALIAS", "OWN-OTHER")}, {"runs-card", "downloads", "gpus", "gpus-own"}),
    "card that one page shows": ({"more/gpus.yaml": ("mib: 40960", "mib: 30960")}, {"gpus"}),
    "card added": ({"data/gpus.yaml": "+" + CARD.format("X", 9)}, {"gpus", "data-gpus"}),
    "card renamed": ({"more/gpus.yaml": ("MORE", "LESS")}, {"gpus"}),
    "card of runs renamed": (
        {"data/gpus.yaml": ("name: OWN-40", "name: OWN-41")},
        {*RUN_A7, *RUN_D05, *ON_OWN_CARD, "data-runs", "data-updated", "gpus", "gpus-own", "role-gpu",
         "role-run"},
    ),
    "card overridden in a later directory": ({"more/gpus.yaml": "+" + CARD.format("OWN-40", 30960)}, {*ON_OWN_CARD, "gpus", "gpus-own"}),
    "cards deleted": ({"more/gpus.yaml": None}, {"gpus", "data-gpus"}),
    # architectures
    "architecture edited": (
        {"data/architectures.yaml": ("num_hidden_layers: 24", "num_hidden_layers: 25")},
        {"memory-model", "memory-settings", "lengths", "what-if", "accuracy", "models", "models-own"},
    ),
    "note of an architecture": ({"data/architectures.yaml": "+    notes: [A word.]\n"}, {"models", "models-own"}),
    "architecture added": ({"more/architectures.yaml": ("data/architectures.yaml", "Used", "Other")}, {"models", "data-models"}),
    "architecture renamed": ({"data/architectures.yaml": ("name: Used-1B", "name: Used-2B")}, {"models", "models-own"}),
    "architecture deleted": (
        {"data/architectures.yaml": None},
        {*RUN_D05, "data-runs", "data-models", "memory-model", "memory-settings", "lengths", "what-if", "accuracy", "models",
         "models-own", "role-model"},
    ),
    # the analysis
    "figures of 8B": ({"data/analysis.yaml": ("hidden_size: 4096", "hidden_size: 5120")}, CHAIN_OF_8B),
    "figures of 3B": (
        {"data/analysis.yaml": ("hidden_size: 2560", "hidden_size: 2048")},
        {"memory-chart", "summary", "priorities"},
    ),
    "an assumption": (
        {"data/analysis.yaml": "+assumptions: {batch_size: 16}\n"},
        {*CHAIN_OF_8B, "memory-model", "memory-chart", "memory-batch", "assumptions", "monitoring"},
    ),
    "a step of the chain": (
        {"data/analysis.yaml": "+steps:\n  - {name: fsdp, label: Sharding, components: [optimizer], divide_by: gpus, text: x}\n"},
        {*CHAIN_OF_8B, "memory-model", "memory-chart"},
    ),
    "a printed figure": (
        {"data/analysis.yaml": "+printed:\n  - name: 3B\n    figures:\n      - {figure: total, value: 53.5, carried: [K]}\n"},
        {"published"},
    ),
    "recommended settings": (
        {"data/analysis.yaml": "+configurations:\n  - {name: 8B, settings: {data.train_batch_size: 8}}\n"}, {"config"},
    ),
    "a remark": (
        {"data/analysis.yaml": "+remarks:\n  - {name: debug-level, about: [verl-log], text: New., sources: [{path: a.py}]}\n"},
        {"monitoring"},
    ),
    "a trade-off": (
        {"data/analysis.yaml": "+trade_offs:\n  - {name: gpus, change: More, gain: a, cost: b}\n"}, {"trade-offs"},
    ),
    "a comment in the analysis": ({"data/analysis.yaml": "+# For people.\n"}, set()),
    "analysis deleted": ({"data/analysis.yaml": None}, set()),  # it said what the package says
    # keys of verl
    "key edited that no page shows": ({"data/config_keys.yaml": ("Nothing", "Something")}, set()),
    "key added that a page shows": (
        {"data/config_keys.yaml": "+" + KEY.format(SHOWN_KEY, "0.5", "New.").replace("str", "float")}, {"config"},
    ),
    "default that estimates use": (
        {"data/config_keys.yaml": "+" + KEY.format(DTYPE, "bf16", "New.")}, ESTIMATES - {"accuracy-drawn", "accuracy-training"},
    ),
    "keys deleted": ({"data/config_keys.yaml": None}, set()),
    # the record of accuracy
    "accuracy of what one page shows": ({"data/accuracy.yaml": ACCURACY.format("own")}, {"downloads"}),
    "accuracy of logs": ({"data/accuracy.yaml": ACCURACY.format("fsdp-today")}, ESTIMATES - {"accuracy", "accuracy-drawn", "accuracy-training", "lengths"}),
    "accuracy of fine-tuning": ({"data/accuracy.yaml": ACCURACY.format("training")}, {"accuracy-drawn", "accuracy-training", "downloads"}),
    # cases
    "case edited": ({"data/cases/own.yaml": ("count: 2", "count: 4")}, {"accuracy"}),
    "case added": ({"data/cases/other.yaml": CASE.format("own-two", 2)}, {"accuracy"}),
    "cases renamed": ({"data/cases/b.yaml": ("data/cases/own.yaml", "", ""), "data/cases/own.yaml": None}, set()),
    "case deleted": ({"data/cases/own.yaml": None}, {"accuracy"}),
    "case overridden in a later directory": ({"more/cases/own.yaml": CASE.format("own-one", 4)}, {"accuracy"}),
}  # fmt: skip


def apply(changes, folder):
    """Make changes as they are written above."""
    for name, change in changes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if change is None:
            path.unlink()
        elif isinstance(change, str):
            path.write_text(path.read_text() + change[1:] if change.startswith("+") else change)
        else:
            *source, old, new = change
            text = folder.joinpath(*source or [name]).read_text()
            assert old in text
            path.write_text(text.replace(old, new))


@pytest.fixture
def folder(data):
    """What holds the data directories."""
    return data.path.parent


#: One of each kind, whose output is compared too.
COMPARED = {
    "figures of 8B", "a step of the chain", "setting of a run", "run added", "run broken", "run that others link renamed", "size class of a run", "card edited",
    "card of runs renamed", "architecture deleted", "an assumption", "key added that a page shows",
    "accuracy of fine-tuning", "cases renamed", "case overridden in a later directory",
}  # fmt: skip


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


def test_time_stamps(asked):
    for path in asked.folder.rglob("*.yaml"):
        os.utime(path)
    assert asked.outdated() == set()


def test_older_files_in_the_place_of_newer_ones(asked):
    apply(CHANGES["run edited"][0], asked.folder)
    for path in asked.folder.rglob("*.yaml"):
        os.utime(path, (1, 1))
    assert asked.outdated() == RUN_A7


#: By value of conf.py, what it is set to and which pages use it.
VALUES = {
    "script_url": (
        "https://example.org/{ref}/{path}",
        {*REMARKS, "runs", "runs-7b", "runs-details", "what-if"},
    ),
    "commit_url": ("https://example.org/{ref}", RUN_C3 - {"downloads"}),
    "edit_url": ("https://example.org/edit/{path}", {"runs-details"}),
    "add_run": ("own-label", {"runs", "runs-empty"}),
    "estimator_page": ("own-label", {*REMARKS, "what-if"}),
    "data": (["../more", "../data"], {"gpus"}),
}


@pytest.mark.parametrize("name", VALUES)
def test_configuration(asked, name, monkeypatch):
    value, users = VALUES[name]
    monkeypatch.setattr(asked.app.config, f"verl_resources_{name}", value)
    assert asked.outdated() == users


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_configuration_in_a_build(every_use, name, same_as_fresh):
    value, users = VALUES[name]
    build = every_use.build(**{f"verl_resources_{name}": value})
    assert build.read == users
    assert build.warnings == []
    same_as_fresh(build, every_use)


@pytest.mark.slow
def test_the_order_of_directories(every_use, folder):
    apply(CHANGES["card overridden in a later directory"][0], folder)
    every_use.build()
    assert every_use.build(verl_resources_data=["../more", "../data"]).read == {
        *ON_OWN_CARD,
        "gpus",
        "gpus-own",
    }
    apply({"more/gpus.yaml": ("30960", "20960")}, folder)
    assert every_use.build().read == set(), "what is overridden shows nowhere"


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
def test_a_directory_appears(every_use, folder):
    path = {"verl_resources_data": ["../data", "../more", "../new"]}
    build = every_use.build(**path)
    assert build.read == set()
    assert len(build.warnings) == 1
    apply({"new/runs/e3.yaml": ("data/runs/c3.yaml", "id: c3", "id: e3")}, folder)
    assert every_use.build().read == {*RUN_C3, "data-runs"}


@pytest.mark.slow
def test_a_new_version_of_the_extension(every_use, monkeypatch):
    pages = {path.stem for path in every_use.path.glob("*.rst")}
    (every_use.path / "wrong.rst").write_text(":orphan:\n\nx\n=\n\n.. verl-runs::\n   :foo: bar\n")
    every_use.build()
    monkeypatch.setattr("sphinx_verl_resources.sphinx_ext.queries.__version__", "99")
    assert every_use.build().read == {*pages, "wrong"} - {"index", "plain"}


@pytest.mark.slow
def test_pages_that_say_what_is_wrong(every_use, folder):
    """They are read again when the hint changes, or when it is wrong no more."""
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
    """The data are not loaded in each build until a page is read for another reason."""
    apply(CHANGES["key edited that no page shows"][0], folder)
    assert every_use.build().read == set()
    from sphinx_verl_resources.catalog import catalog

    monkeypatch.setattr(catalog, "load_catalog", lambda *args: pytest.fail("loaded"))
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
