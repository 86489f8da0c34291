"""Fixtures for tests of pages about the estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from sphinx_verl_resources.commands import given_data
from sphinx_verl_resources.estimator.recorded import estimate_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conftest import Build

SETTINGS = {
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.rollout.gpu_memory_utilization": 0.6,
    "actor_rollout_ref.rollout.load_format": "dummy_dtensor",
}


@pytest.fixture
def settings():
    """The settings of the run ``a``."""
    return dict(SETTINGS)


@pytest.fixture
def runs(own, data):
    """A project with two runs, ``a`` with settings and ``b`` without."""
    gpus = {"count": 8, "type": "H100"}  # on these it fits with sequences at their limits
    data.run(
        "a", settings=SETTINGS, gpus=gpus, added="2026-08-20", measured={"gib": 60.0, "counter": "device"}
    )
    data.run("b")
    return own


@pytest.fixture
def estimated(data):
    """A function that returns the estimate of the run ``a``."""

    def of_run_a():
        facts = given_data([str(data.path)]).registries
        run = given_data([str(data.path)]).runs["a"]
        return estimate_run(run, facts)

    return of_run_a


@pytest.fixture(scope="session")
def written() -> Callable[..., str]:
    """A function that writes a directive from its name with its argument, and lines with its options and text."""

    def in_language(lines: tuple[str, ...], suffix: str = "rst") -> str:
        first, *rest = lines
        name, _, argument = first.partition(" ")
        if suffix == "md":
            return "\n".join((f"```{{{name}}} {argument}".rstrip(), *rest, "```"))
        return "\n".join(
            (f".. {name}:: {argument}".rstrip(), *(f"   {line}" if line else "" for line in rest))
        )

    return in_language


@dataclass
class Together:
    """Many pages in one build.

    Attributes:
        build: the build.
        problems: its messages without the place, by page and then by line below the title.
    """

    build: Build
    problems: dict[str, dict[int, str]]


@pytest.fixture(scope="module")
def build_together(new_project) -> Callable[..., Together]:
    """A function that builds many pages at once, given their texts by name, such as ``case-1.rst``."""

    def build(pages: Mapping[str, str], data: Mapping[str, str] | None = None) -> Together:
        project = new_project("docs").page("Text.")
        if any(name.endswith(".md") for name in pages):
            project.conf["extensions"] = ["myst_parser"]
        if data:
            project.conf["verl_resources_data"] = ["../data"]
        for name, text in (data or {}).items():
            path = project.path.parent / "data" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        for name, text in pages.items():
            project.page(text, name)
        found = project.build()
        problems: dict[str, dict[int, str]] = {name: {} for name in pages}
        for line in found.warnings:
            place, _, text = line.replace(f"{project.path}/", "").partition(": ")
            name, number = place.split(":")
            head = (project.path / name).read_text("utf-8").index(pages[name])
            below = (project.path / name).read_text("utf-8")[:head].count("\n")
            number_below = int(number) - below
            problems[name][number_below] = "\n".join(filter(None, [problems[name].get(number_below), text]))
        return Together(found, problems)

    return build


@pytest.fixture
def table_rows() -> Callable[..., list[list[str]]]:
    """A function that returns the cells of the first table of a class, header first."""

    def of_table(soup, name: str) -> list[list[str]]:
        return [
            [" ".join(cell.get_text().split()) for cell in row.select("th, td")]
            for row in soup.select_one(f"table.{name}").select("tr")
        ]

    return of_table


@pytest.fixture
def problems(project) -> Callable[..., dict[int, str]]:
    """A function that returns the messages of a build about the index, by line."""

    def of_build(build) -> dict[int, str]:
        found = {}
        for line in build.warnings:
            place, _, text = line.replace(f"{project.path}/", "").partition(": ")
            name, number = place.split(":")
            assert name.startswith("index.")
            found[int(number)] = text
        return found

    return of_build
