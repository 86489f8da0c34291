"""Random inputs: no traceback, a place for each problem, idempotent repairs, no active text on a page.

Real inputs are changed at random. ``VERL_FUZZ_SEED`` and ``VERL_FUZZ_TIMES`` select different and more inputs:
``VERL_FUZZ_SEED=7 VERL_FUZZ_TIMES=10 .venv/bin/python -m pytest tests/security/fuzz``. A failure shows the input, which
``VERL_FUZZ_SEED`` and its number reproduce.
"""

from __future__ import annotations

import resource
import shutil
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from security.fuzz import inputs, pages, targets
from security.fuzz.settings import SEED, chunks

from sphinx_verl_resources.catalog.files import REGISTRIES, Directory, bundled_directory
from sphinx_verl_resources.cli import diagnose, estimate, new
from sphinx_verl_resources.cli.data import read_data, registry_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: The limit of processor time for a step, in seconds; a hundred times the usual time.
LIMIT = 60
#: The number of data files that are loaded together, because loading the registries is slow.
TOGETHER = 60


@contextmanager
def limited() -> Iterator[None]:
    """Stop a step that does not end."""

    def stop(*_: object) -> None:
        raise AssertionError(f"no end after {LIMIT} seconds of the processor")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


@pytest.fixture
def each(request, record_property) -> Iterator[Callable[[str, int, Callable[[], None]], None]]:
    """A function that runs a step of a kind, reports the input on failure, and records the longest step."""
    longest = (0.0, 0)
    count = 0

    def step(kind: str, number: int, do: Callable[[], None], size: int = 1) -> None:
        nonlocal longest, count
        begin = time.process_time()
        try:
            with limited():
                do()
        except Exception as error:
            raise AssertionError(f"{kind} {number} of the seed {SEED}: {error}") from error
        count += size
        longest = max(longest, (time.process_time() - begin, number))

    yield step
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    record_property("fuzz", (request.function.__name__.removeprefix("test_"), count, *longest, peak))


@pytest.fixture(scope="session")
def base(tmp_path_factory) -> Directory:
    """The registries of the package, without slow ones."""
    folder = tmp_path_factory.mktemp("package")
    for name in REGISTRIES:
        if name != "analysis.yaml":
            shutil.copy(bundled_directory().path / name, folder / name)
    return Directory(folder, "package")


@pytest.fixture
def _data_read_once(monkeypatch, tmp_path) -> None:
    """Load the records of the package only once for all scripts and logs."""
    data = read_data([])
    known = (data.registries, registry_problems(data))
    monkeypatch.setattr(new, "_registries", lambda directory: (known[0], [*known[1]]))
    for command in (estimate, diagnose):
        monkeypatch.setattr(command, "given_data", lambda names: data)
    monkeypatch.chdir(tmp_path)


def data_files(numbers: Sequence[int]) -> dict[str, bytes]:
    """Data files in several directories, because a directory has each registry only once."""
    return {
        f"d{index // 22}/{name}": content
        for index, (name, content) in enumerate(inputs.data_file(SEED, number) for number in numbers)
    }


@chunks(quick=TOGETHER, slow=16_000, by=1_600)
def test_data(each, numbers, tmp_path, base):
    repository = targets.AnyRepository(tuple(inputs.script(SEED, number) for number in numbers[:40]))
    for first in range(0, len(numbers), TOGETHER):
        some = numbers[first : first + TOGETHER]

        def check(some=some):
            targets.check_directories(data_files(some), tmp_path / "files", base, repository)

        each("data files from", some[0], check, len(some))


@pytest.mark.usefixtures("_data_read_once")
@chunks(quick=40, slow=4_000, by=400)
def test_scripts(each, numbers, tmp_path):
    for number in numbers:
        each(
            "script",
            number,
            lambda number=number: targets.check_script(
                tmp_path / "run.sh", inputs.script(SEED, number), number
            ),
        )


@pytest.mark.usefixtures("_data_read_once")
@chunks(quick=20, slow=1_000, by=250)
def test_logs(each, numbers, tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(inputs.scripts()[0], "utf-8")
    for number in numbers:
        each(
            "log",
            number,
            lambda number=number: targets.check_log(
                tmp_path / "run.log", inputs.log(SEED, number), script, number
            ),
        )


RUNS = ("qwen2-5-7b-grpo-lora-1xh100", "qwen2-5-14b-grpo-lora-2xh100", "qwen3-8b-grpo-4xh20")


@pytest.fixture
def build_pages(new_project, monkeypatch) -> Callable[[dict[str, str]], None]:
    """A function that builds pages and checks the messages and the output."""
    pages.small_form(monkeypatch)

    def build(pages: dict[str, str]) -> None:
        project = new_project("fuzz").page("Text.\n")
        (project.path / "data" / "runs").mkdir(parents=True)
        for run in RUNS:
            shutil.copy(inputs.ROOT / f"data/runs/{run}.yaml", project.path / "data" / "runs")
        for name, text in pages.items():
            (project.path / name).write_text(text, "utf-8", newline="")
        conf = {"extensions": ["myst_parser"], "html_theme": "basic", "verl_resources_data": ["data"]}
        built = project.build(**conf)
        targets.check_warnings(built.warnings, project.path)
        for name in ("index", *(page.partition(".")[0] for page in pages)):
            targets.check_output(built.text(f"{name}.html"), name)
        shutil.rmtree(project.path)

    return build


def smallest(pages: dict[str, str], build: Callable[[dict[str, str]], None]) -> dict[str, str]:
    """Bisect the pages that fail."""
    while len(pages) > 1:
        items = [*pages.items()]
        halves = (dict(items[: len(items) // 2]), dict(items[len(items) // 2 :]))
        failing = [half for half in halves if fails(half, build)]
        if not failing:
            break
        pages = failing[0]
    return pages


def fails(pages: dict[str, str], build: Callable[[dict[str, str]], None]) -> bool:
    """Return whether a build of the pages fails."""
    try:
        build(pages)
    except Exception:
        return True
    return False


@chunks(quick=15, slow=2_000, by=250)
def test_pages(each, numbers, build_pages):
    made = pages.bodies(SEED, numbers)
    try:
        each("pages from", numbers.start, lambda: build_pages(made), len(numbers))
    except AssertionError as error:
        raise AssertionError(f"{error}\n{smallest(made, build_pages)}") from error
