"""What the tests of pages about the estimator share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sphinx_verl_resources.cli.data import load_paths, load_registries
from sphinx_verl_resources.estimator.case import request_of_run
from sphinx_verl_resources.estimator.estimate import estimate

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = {
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.rollout.gpu_memory_utilization": 0.6,
    "actor_rollout_ref.rollout.load_format": "dummy_dtensor",
}


@pytest.fixture
def settings():
    """What the run with settings records."""
    return dict(SETTINGS)


@pytest.fixture
def runs(own, data):
    """A project with two runs, ``a`` with settings and ``b`` without."""
    data.run("a", settings=SETTINGS, added="2026-08-20", measured={"gib": 60.0, "counter": "device"})
    data.run("b")
    return own


@pytest.fixture
def estimated(data):
    """A function: what the estimator itself says of the run ``a``."""

    def of_run_a():
        facts = load_registries([str(data.path)])
        run = load_paths([str(data.path)]).runs["a"]
        return estimate(request_of_run(run, facts), facts)

    return of_run_a


@pytest.fixture
def written() -> Callable[..., str]:
    """A function: a directive from its name, and lines with its options and text."""

    def in_language(lines: tuple[str, ...], suffix: str = "rst") -> str:
        name, *rest = lines
        if suffix == "md":
            return "\n".join((f"```{{{name}}}", *rest, "```"))
        return "\n".join((f".. {name}::", *(f"   {line}" if line else "" for line in rest)))

    return in_language


@pytest.fixture
def table_rows() -> Callable[..., list[list[str]]]:
    """A function: the cells of the first table of a class, header first."""

    def of_table(soup, name: str) -> list[list[str]]:
        return [
            [" ".join(cell.get_text().split()) for cell in row.select("th, td")]
            for row in soup.select_one(f"table.{name}").select("tr")
        ]

    return of_table


@pytest.fixture
def problems(project) -> Callable[..., dict[int, str]]:
    """A function: what a build said about the index, by line."""

    def of_build(build) -> dict[int, str]:
        found = {}
        for line in build.warnings:
            place, _, text = line.replace(f"{project.path}/", "").partition(": ")
            name, number = place.split(":")
            assert name.startswith("index.")
            found[int(number)] = text
        return found

    return of_build
