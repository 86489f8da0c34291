"""What all projects of a comparison show: the same rows, of nine columns with one link each."""

from __future__ import annotations

from dataclasses import dataclass

HEADINGS = ("Tag", "Model", "Task", "Resource", "MaxBatch", "Train", "Infer", "Link", "Contributor")
REF = "2239fd0ff7210c80ad63e20581924d1f66167429"
#: Where one text of a row is changed, to see what is built again.
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
        number: among all rows of the project.
        page: the page that shows it; pages tell their rows by the task.
    """

    number: int
    page: str

    @property
    def name(self) -> str:
        """What tells it from all other rows."""
        return f"run-{self.number:05}"

    @property
    def task(self) -> str:
        """The same for all rows of a page."""
        return f"GRPO-{self.page}"

    @property
    def gpus(self) -> int:
        """Differs from row to row, as in real data."""
        return self.number % 64 + 1

    @property
    def address(self) -> str:
        """Where the link leads."""
        return f"https://github.com/verl-project/verl/blob/{REF}/examples/tuning/7b/{self.name}.sh"

    @property
    def texts(self) -> tuple[str, ...]:
        """The cells."""
        link = f"{self.name}.sh"
        resource = f"{self.gpus}*H100"
        return "MIN", "Qwen2.5-7B-Instruct", self.task, resource, "16", "fsdp", "vllm0.8.3", link, BEFORE

    @property
    def file(self) -> str:
        """The same as a run file."""
        return RUN_FILE.format(name=self.name, task=self.task, gpus=self.gpus, ref=REF, contributor=BEFORE)


def rows_of_pages(count: int, per_page: int) -> dict[str, list[Row]]:
    """``count`` rows by page."""
    starts = range(0, count, per_page)
    return {
        f"page-{index}": [
            Row(number, f"page-{index}") for number in range(start, min(start + per_page, count))
        ]
        for index, start in enumerate(starts)
    }
