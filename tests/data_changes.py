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
    "comment in a run": ({"data/runs/a7.yaml": "+# For people.\n"}, set()),
    "size class of a run": ({"data/runs/c3.yaml": ("3B\ntag: MIN\nmodel: Qwen/Qwen2.5-3B-Instruct", "405B\ntag: MIN\nmodel: meta-llama/Llama-3.1-405B")}, {*RUN_C3, "runs-empty"}),
    "run broken": ({"data/runs/d05.yaml": ("tag: MIN", "tag: X")}, {*RUN_D05, "data-runs", "what-if"}),
    "run added": (
        {"data/runs/e3.yaml": ("data/runs/c3.yaml", "id: c3", "id: e3")}, {*RUN_C3, "data-runs"},
    ),
    "run that others link renamed": (
        {"data/runs/a8.yaml": ("data/runs/a7.yaml", "id: a7", "id: a8"), "data/runs/a7.yaml": None},
        {*RUN_A7, "fewest", "role-run"},
    ),
    # GPUs
    "card edited": ({"data/gpus.yaml": ("mib: 40960", "mib: 30960")}, {*ON_OWN_CARD, "gpus", "gpus-own"}),
    "card added": ({"data/gpus.yaml": "+" + CARD.format("X", 9)}, {"gpus", "data-gpus"}),
    "card of runs renamed": (
        {"data/gpus.yaml": ("name: OWN-40", "name: OWN-41")},
        {*RUN_A7, *RUN_D05, *ON_OWN_CARD, "data-runs", "data-updated", "gpus", "gpus-own", "role-gpu",
         "role-run"},
    ),
    "card overridden in a later directory": ({"more/gpus.yaml": "+" + CARD.format("OWN-40", 30960)}, {*ON_OWN_CARD, "gpus", "gpus-own"}),
    # architectures
    "architecture edited": (
        {"data/architectures.yaml": ("num_hidden_layers: 24", "num_hidden_layers: 25")},
        {"memory-model", "memory-settings", "what-if", "accuracy", "models", "models-own"},
    ),
    "note of an architecture": ({"data/architectures.yaml": "+    notes: [A word.]\n"}, set()),
    "architecture deleted": (
        {"data/architectures.yaml": None},
        {*RUN_D05, "data-runs", "data-models", "memory-model", "memory-settings", "what-if", "accuracy", "models",
         "models-own", "role-model"},
    ),
    # the analysis
    "figures of 8B": ({"data/analysis.yaml": ("hidden_size: 4096", "hidden_size: 5120")}, CHAIN_OF_8B),
    "an assumption": (
        {"data/analysis.yaml": "+assumptions: {batch_size: 16}\n"},
        {*CHAIN_OF_8B, "memory-model", "memory-chart", "memory-batch", "assumptions", "monitoring"},
    ),
    "a step of the chain": (
        {"data/analysis.yaml": "+steps:\n  - {name: fsdp, label: Sharding, components: [optimizer], divide_by: gpus, text: x}\n"},
        {*CHAIN_OF_8B, "memory-model", "memory-chart"},
    ),
    "recommended settings": (
        {"data/analysis.yaml": "+configurations:\n  - {name: 8B, settings: {data.train_batch_size: 8}}\n"}, {"config"},
    ),
    "a remark": (
        {"data/analysis.yaml": "+remarks:\n  - {name: debug-level, about: [verl-log], text: New., sources: [{path: a.py}]}\n"},
        {"monitoring"},
    ),
    # keys of verl
    "key edited that no page shows": ({"data/config_keys.yaml": ("Nothing", "Something")}, set()),
    "key added that a page shows": (
        {"data/config_keys.yaml": "+" + KEY.format(SHOWN_KEY, "0.5", "New.").replace("str", "float")}, {"config"},
    ),
    "default that estimates use": (
        {"data/config_keys.yaml": "+" + KEY.format(DTYPE, "bf16", "New.")}, ESTIMATES,
    ),
    # the record of accuracy
    "accuracy of logs": ({"data/accuracy.yaml": ACCURACY.format("fsdp-today")}, ESTIMATES - {"accuracy"}),
    # cases
    "case edited": ({"data/cases/own.yaml": ("count: 2", "count: 4")}, {"accuracy"}),
    "cases renamed": ({"data/cases/b.yaml": ("data/cases/own.yaml", "", ""), "data/cases/own.yaml": None}, set()),
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
