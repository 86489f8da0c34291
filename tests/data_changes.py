"""Changes of the data of the project in ``builds/every_use``, and the pages that each one affects."""

from __future__ import annotations

#: Pages by the data that they use.
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
#: Pages that show only the data in their columns.
ONLY_COLUMNS = {"runs", "runs-7b", "runs-setting", "runs-peak"}
RUN_C3 = {"downloads", "runs", "runs-3b", "runs-details"}
RUN_D05 = {"downloads", "runs", "runs-card", "runs-model"}
ESTIMATES = {
    "runs-peak", "runs-details", "memory-run", "memory-drawn", "memory-settings", "what-if", "downloads",
    "accuracy",
}  # fmt: skip
ON_OWN_CARD = {
    "runs-peak", "runs-details", "memory-run", "memory-drawn", "memory-settings", "fewest", "what-if",
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

#: Changes by name: the edit of each file, and the pages that use it. In a pair, the second text replaces the first.
#: A single text replaces the file, or is appended to it if it begins with "+". None deletes the file.
CHANGES = {
    # runs
    "run edited": ({"data/runs/a7.yaml": ("max_batch: 16", "max_batch: 17")}, RUN_A7 - {"runs-setting", "runs-peak"}),
    "setting of a run": (
        {"data/runs/a7.yaml": ("_gpu: 4", "_gpu: 2")}, RUN_A7 - ONLY_COLUMNS | {"runs-peak"},
    ),
    "setting of a run in a column": (
        {"data/runs/a7.yaml": ("batch_size: 64", "batch_size: 32")},
        RUN_A7 - ONLY_COLUMNS | {"runs-setting", "runs-peak"},
    ),
    "remark of a run": ({"data/runs/a7.yaml": ("A remark", "Another remark")}, RUN_A7 - {"memory-drawn"}),
    "evidence in the column of scripts": (
        {"data/runs/c3.yaml": ("kind: commit, ref: abc", "kind: commit, ref: abd")}, RUN_C3,
    ),
    "date of a run": ({"data/runs/a7.yaml": ("2026-08-01", "2026-08-02")}, {*RUN_A7 - ONLY_COLUMNS - {"memory-drawn"}, "data-updated"}),
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
        {*RUN_A7, "fewest", "role-run"},
    ),
    # GPUs
    "card edited": ({"data/gpus.yaml": ("mib: 40960", "mib: 30960")}, {*ON_OWN_CARD, "gpus", "gpus-own"}),
    "alias of a card": ({"data/gpus.yaml": ("OWN-ALIAS", "OWN-OTHER")}, {"runs-card", "downloads", "gpus", "gpus-own"}),
    "card that few pages show": ({"more/gpus.yaml": ("mib: 40960", "mib: 30960")}, {"gpus", "fewest"}),
    "card added": ({"data/gpus.yaml": "+" + CARD.format("X", 9)}, {"gpus", "data-gpus"}),
    "card renamed": ({"more/gpus.yaml": ("MORE", "LESS")}, {"gpus", "fewest"}),
    "card of runs renamed": (
        {"data/gpus.yaml": ("name: OWN-40", "name: OWN-41")},
        {*RUN_A7, *RUN_D05, *ON_OWN_CARD, "data-runs", "data-updated", "gpus", "gpus-own", "role-gpu",
         "role-run"},
    ),
    "card overridden in a later directory": ({"more/gpus.yaml": "+" + CARD.format("OWN-40", 30960)}, {*ON_OWN_CARD, "gpus", "gpus-own"}),
    "cards deleted": ({"more/gpus.yaml": None}, {"gpus", "data-gpus", "fewest"}),
    # architectures
    "architecture edited": (
        {"data/architectures.yaml": ("num_hidden_layers: 24", "num_hidden_layers: 25")},
        {"memory-model", "memory-settings", "what-if", "accuracy", "models", "models-own"},
    ),
    "note of an architecture": ({"data/architectures.yaml": "+    notes: [A word.]\n"}, set()),
    "architecture added": ({"more/architectures.yaml": ("data/architectures.yaml", "Used", "Other")}, {"models", "data-models"}),
    "architecture renamed": ({"data/architectures.yaml": ("name: Used-1B", "name: Used-2B")}, set()),
    "architecture deleted": (
        {"data/architectures.yaml": None},
        {*RUN_D05, "data-runs", "data-models", "memory-model", "memory-settings", "what-if", "accuracy", "models",
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
    "analysis deleted": ({"data/analysis.yaml": None}, set()),  # it equals the package's
    # keys of verl
    "key edited that no page shows": ({"data/config_keys.yaml": ("Nothing", "Something")}, set()),
    "key added that a page shows": (
        {"data/config_keys.yaml": "+" + KEY.format(SHOWN_KEY, "0.5", "New.").replace("str", "float")}, {"config"},
    ),
    "default that estimates use": (
        {"data/config_keys.yaml": "+" + KEY.format(DTYPE, "bf16", "New.")}, ESTIMATES,
    ),
    "keys deleted": ({"data/config_keys.yaml": None}, set()),
    # the record of accuracy
    "accuracy of what one page shows": ({"data/accuracy.yaml": ACCURACY.format("own")}, {"downloads"}),
    "accuracy of logs": ({"data/accuracy.yaml": ACCURACY.format("fsdp-today")}, ESTIMATES - {"accuracy"}),
    # cases
    "case edited": ({"data/cases/own.yaml": ("count: 2", "count: 4")}, {"accuracy"}),
    "case added": ({"data/cases/other.yaml": CASE.format("own-two", 2)}, {"accuracy"}),
    "cases renamed": ({"data/cases/b.yaml": ("data/cases/own.yaml", "", ""), "data/cases/own.yaml": None}, set()),
    "case deleted": ({"data/cases/own.yaml": None}, {"accuracy"}),
    "case overridden in a later directory": ({"more/cases/own.yaml": CASE.format("own-one", 4)}, {"accuracy"}),
}  # fmt: skip


def apply(changes, folder):
    """Apply changes of the form above."""
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
