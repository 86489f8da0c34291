"""A project with a page for each use of the extension, on separate data directories."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


#: By name, pages that each use the extension in one way.
PAGES = {
    "runs": ".. verl-runs::",
    "runs-7b": ".. verl-runs:: 7B",
    "runs-3b": ".. verl-runs:: 3B",
    "runs-details": ".. verl-runs:: 7B 3B\n   :details:\n",
    "runs-empty": ".. verl-runs:: 405B",
    "runs-card": ".. verl-runs:: 0.5B\n   :gpu: OWN-ALIAS\n",
    "runs-model": ".. verl-runs:: 3B 0.5B\n   :model: own/Used-1B\n",
    "runs-setting": ".. verl-runs:: 7B\n   :columns: id settings.data.train_batch_size\n",
    "runs-peak": ".. verl-runs:: 7B\n   :columns: id estimate.peak\n   :caption: AnyEstimate\n",
    "data-runs": "There are :verl:data:`runs` runs, :verl:data:`runs-that-ran` of them ran.",
    "data-updated": "As of :verl:data:`last-updated`.",
    "data-gpus": "On :verl:data:`gpus` cards.",
    "data-models": "With :verl:data:`models` models.",
    "gpus": ".. verl-gpus::",
    "gpus-own": ".. verl-gpus:: OWN-ALIAS",
    "models": ".. verl-models::",
    "models-own": ".. verl-models:: own/Used-1B",
    "role-run": "See :verl:run:`a7` and :verl:run:`the other <c3>`.",
    "role-gpu": "On :verl:gpu:`OWN-40`.",
    "role-model": "Of :verl:model:`own/Used-1B`.",
    "role-size": "Of :verl:size:`7B`.",
    "memory-8b": ".. verl-memory:: 8B\n   :gpus: 16\n",
    "memory-model": ".. verl-memory:: own/Used-1B",
    "memory-chart": ".. verl-memory:: 3B\n   :show: chart\n",
    "memory-run": ".. verl-memory::\n   :run: a7\n   :show: answer table components host\n",
    "memory-drawn": ".. verl-memory::\n   :run: a7\n   :show: chart\n",
    "memory-settings": (
        ".. verl-memory::\n   :model: own/Used-1B\n   :gpus: 2*OWN-40\n\n   trainer.nnodes: 1\n"
    ),
    "memory-role": "For 8B :verl:memory:`8B, after FSDP`.",
    "memory-batch": "Of :verl:memory:`batch size`.",
    "summary": ".. verl-memory-summary::",
    "requirements": ".. verl-requirements:: 8B",
    "config": ".. verl-config:: 8B",
    "assumptions": ".. verl-analysis:: assumptions",
    "priorities": ".. verl-analysis:: priorities",
    "trade-offs": ".. verl-analysis:: trade-offs",
    "monitoring": ".. verl-analysis:: monitoring",
    "fewest": ".. verl-fewest::\n   :memory: 40\n   :sizes: 7B\n",
    "what-if": ".. verl-what-if::\n   :models: own/Used-1B\n   :gpus: OWN-40\n   :counts: 2 8\n",
    "downloads": ".. verl-downloads::\n",
    "accuracy": ".. verl-accuracy::\n   :group: other\n",
}
PLAIN = "Text that uses nothing.\n\n.. _own-label:\n\nBelow\n-----\n\nMore.\n"
RUN = """\
id: {id}
size: {size}
tag: MIN
model: {model}
task: GRPO
gpus: {{count: 8, type: {gpu}}}
train: fsdp
infer: {{engine: vllm, version: "0.8.3"}}
"""
A7 = (
    RUN.format(id="a7", size="7B", model="Qwen/Qwen2.5-7B-Instruct", gpu="OWN-40")
    + """\
max_batch: 16
script: {ref: abc, path: examples/a.sh}
added: 2026-08-01
settings: {data.train_batch_size: 64, actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu: 4}
notes: [{code: one, text: A remark of the source.}]
"""
)
B7 = RUN.format(id="b7", size="7B", model="Qwen/Qwen2.5-7B-Instruct", gpu="H20")
C3 = (
    RUN.format(id="c3", size="3B", model="Qwen/Qwen2.5-3B-Instruct", gpu="H100")
    + "evidence: [{kind: commit, ref: abc}]\n"
)
D05 = RUN.format(id="d05", size="0.5B", model="own/Used-1B", gpu="OWN-40")
CARD = "  - {{name: {name}, vendor: nvidia, memory_gb: 40, memory_mib: {mib}, kind: reading{more}}}\n"
CARDS = "gpus:\n" + CARD.format(name="OWN-40", mib=40960, more=", aliases: [OWN-ALIAS]")
MODEL = """\
  - name: {name}
    hf_id: own/{name}
    model_type: qwen2
    hidden_size: 896
    num_hidden_layers: 24
    intermediate_size: 4864
    num_attention_heads: 14
    num_key_value_heads: 2
    head_dim: 64
    vocab_size: {vocabulary}
    tie_word_embeddings: true
    qkv_bias: true
    qk_norm: false
    norms_per_layer: 2
    max_position_embeddings: 131072
    parameters: {parameters}
    verified: false
"""
ANALYSIS = """\
specifications:
  - {name: 3B, parameters: 3000000000, hidden_size: 2560, layers: 32, attention_heads: 32, gpus: 8}
  - {name: 8B, parameters: 8000000000, hidden_size: 4096, layers: 32, attention_heads: 32, gpus: 8}
"""
KEY = "  - {{name: {name}, group: scale, type: int, default: {default}, phases: [], effect: {effect}, status: active}}\n"
CASE = (
    "- {{id: {id}, source: https://example.org/log, model: own/Used-1B, config: {{trainer.nnodes: 1}}, "
    "gpus: {{count: 2, type: H100}}}}\n"
)
#: The initial content of the data directory ``data``; ``more`` contains a ``gpus.yaml`` with another GPU.
DATA = {
    "data/runs/a7.yaml": A7,
    "data/runs/b7.yaml": B7,
    "data/runs/c3.yaml": C3,
    "data/runs/d05.yaml": D05,
    "data/gpus.yaml": CARDS,
    "data/architectures.yaml": "architectures:\n"
    + MODEL.format(name="Used-1B", vocabulary=151936, parameters=494032768),
    "data/analysis.yaml": ANALYSIS,
    "data/config_keys.yaml": "config_keys:\n" + KEY.format(name="own.key", default=1, effect="Nothing."),
    "data/cases/own.yaml": CASE.format(id="own-one"),
    "more/gpus.yaml": "gpus:\n" + CARD.format(name="MORE", mib=40960, more=""),
}


@pytest.fixture(scope="session")
def kept(tmp_path_factory) -> Path:
    """The folder of the project, built once, and of its copy after the build."""
    return tmp_path_factory.mktemp("every-use")


@pytest.fixture
def every_use(kept, project, data):
    """The project after its first build; Sphinx would not continue a build at another path."""
    project.path, data.path = kept / "now/docs", kept / "now/data"
    if (kept / "first").exists():
        shutil.rmtree(kept / "now")
        shutil.copytree(kept / "first", kept / "now")
        project.conf = CONF.copy()
        return project
    project.path.mkdir(parents=True)
    _write(project, kept / "now")
    project.build(**CONF)
    shutil.copytree(kept / "now", kept / "first")
    return project


def _write(project, folder: Path) -> None:
    """Write the pages of the project, and write its data directories into ``folder``."""
    for name, text in DATA.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    for name, text in {**PAGES, "plain": PLAIN}.items():
        (project.path / f"{name}.rst").write_text(f"{name}\n{'=' * len(name)}\n\n{text}\n", "utf-8")
    toctree = "\n".join(f"   {name}" for name in (*PAGES, "plain"))
    project.page(f".. toctree::\n\n{toctree}\n")


CONF = {
    "verl_resources_data": ["../data", "../more"],
    "version": "1",
    "copyright": "x",
    "html_theme": "basic",
}


def _written(folder: Path) -> dict[str, bytes]:
    """Return the output of a build, by path, without information on the build itself."""
    return {
        path.relative_to(folder).as_posix(): _search_index(path)
        if path.name == "searchindex.js"
        else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in {".buildinfo", ".buildinfo.bak"}
    }


def _search_index(path: Path) -> bytes:
    """Return the search index without Sphinx's own mistakes in a second build.

    Sphinx keeps an empty entry for each word that no page contains any longer, and loses the terms of the general
    index on pages that it does not write again.
    """
    text = path.read_text("utf-8")
    start, end = text.index("{"), text.rindex("}") + 1
    index = json.loads(text[start:end])
    for kind in ("terms", "titleterms"):
        index[kind] = {word: pages for word, pages in index[kind].items() if pages != []}
    del index["indexentries"]
    return json.dumps(index).encode()


@pytest.fixture
def written() -> Callable[[Path], dict[str, bytes]]:
    """A function that returns the output of a build in a folder."""
    return _written
