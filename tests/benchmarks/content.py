"""The content of all projects in a comparison: the same rows, with nine columns and one link each."""

from __future__ import annotations

from dataclasses import dataclass

HEADINGS = ("Tag", "Model", "Task", "Resource", "MaxBatch", "Train", "Infer", "Link", "Contributor")
REF = "2239fd0ff7210c80ad63e20581924d1f66167429"
#: The text of a row that is changed before a rebuild.
BEFORE, AFTER = "Somebody", "Another one"

RUN_FILE = """\
# yaml-language-server: $schema=../schema/run.json
id: {name}
size: 7B
tag: MIN
model: Qwen/Qwen2.5-7B-Instruct
task: {task}
gpus: {{count: {gpus}, type: H100}}
train: fsdp
infer: {{engine: vllm, version: "0.8.3"}}
max_batch: 16
script: {{ref: {ref}, path: examples/tuning/7b/{name}.sh}}
contributor: {{name: {contributor}, url: null}}
added: 2025-06-12
settings:
  data.train_batch_size: 16
  actor_rollout_ref.model.lora_rank: 32
"""


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        number: its number among all rows of the project.
        page: number of the page that shows it; pages select their rows by task.
    """

    number: int
    page: str

    @property
    def name(self) -> str:
        """Its unique name."""
        return f"run-{self.number:05}"

    @property
    def task(self) -> str:
        """Its task, which is the same for all rows of a page."""
        return f"GRPO-{self.page}"

    @property
    def gpus(self) -> int:
        """Its GPUs, which vary from row to row as in real data."""
        return self.number % 64 + 1

    @property
    def address(self) -> str:
        """The address of its link."""
        return f"https://github.com/verl-project/verl/blob/{REF}/examples/tuning/7b/{self.name}.sh"

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of its cells."""
        link = f"{self.name}.sh"
        resource = f"{self.gpus}*H100"
        return "MIN", "Qwen2.5-7B-Instruct", self.task, resource, "16", "fsdp", "vllm0.8.3", link, BEFORE

    @property
    def file(self) -> str:
        """The text of its run file."""
        return RUN_FILE.format(name=self.name, task=self.task, gpus=self.gpus, ref=REF, contributor=BEFORE)


def rows_of_pages(count: int, per_page: int) -> dict[str, list[Row]]:
    """Return ``count`` rows by page."""
    starts = range(0, count, per_page)
    return {
        f"page-{index}": [
            Row(number, f"page-{index}") for number in range(start, min(start + per_page, count))
        ]
        for index, start in enumerate(starts)
    }
