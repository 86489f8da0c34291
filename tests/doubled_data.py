"""Data files, rules and hints of two sizes, for the test of doubling."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sphinx_verl_resources.catalog.cases import load_cases
from sphinx_verl_resources.catalog.catalog import load_registry
from sphinx_verl_resources.catalog.files import GPUS, REGISTRIES, DataFile, Snapshot, bundled_directory
from sphinx_verl_resources.catalog.links import is_fixed_ref
from sphinx_verl_resources.catalog.models.run import Run
from sphinx_verl_resources.catalog.run_text import run_text
from sphinx_verl_resources.catalog.validation import load
from sphinx_verl_resources.catalog.yaml_data import read_yaml
from sphinx_verl_resources.diagnostics import Code, Diagnostic, Location, listed, nearest
from sphinx_verl_resources.lint import data_rules, file_rules, renames
from sphinx_verl_resources.lint.context import RunEntry, SourceFile
from sphinx_verl_resources.lint.repairs import repaired

if TYPE_CHECKING:
    from collections.abc import Callable

RUN = {
    "id": "a",
    "size": "7B",
    "tag": "MIN",
    "model": "Qwen/Qwen2.5-7B-Instruct",
    "task": "GRPO",
    "gpus": {"count": 2, "type": "H100"},
    "train": "fsdp",
    "infer": {"engine": "vllm", "version": "0.8.3"},
}
#: The smaller size by name, and the function that returns the work for an input of a size.
KINDS: dict[str, tuple[int, Callable[[int], Callable[[], object]]]] = {}


def kind(size: int) -> Callable[..., Any]:
    """Register a kind of input with its number of parts."""

    def note(make: Callable[[int], Callable[[], object]]) -> Any:
        KINDS[make.__name__] = size, make
        return make

    return note


def data_file(text: str, name: str = "a.yaml") -> DataFile:
    return DataFile(Path(name), name, text.encode())


def source(text: str, kind: str = "run") -> SourceFile:
    file = data_file(text)
    return SourceFile(file, kind, read_yaml(file.content, file.shown))


@cache
def bundled(name: str) -> Any:
    file = data_file((bundled_directory().path / name).read_text("utf-8"), name)
    registries = {other: ((file,) if other == name else ()) for other in REGISTRIES}
    return load_registry(Snapshot((), registries), name)


def registry(name: str, text: str) -> Snapshot:
    registries = {other: ((data_file(text, name),) if other == name else ()) for other in REGISTRIES}
    return Snapshot((), registries)


@cache
def record() -> Run:
    return Run.model_validate(read_yaml(run_text(RUN).encode()).data)


def entries(n: int, **changes: Any) -> SimpleNamespace:
    """Return a context with many runs of one kind."""
    one = source(run_text(RUN))
    runs = tuple(
        RunEntry(
            record().model_copy(update={"id": f"a{i}", **{k: v(i) for k, v in changes.items()}}),
            one,
            None,
            (),
        )
        for i in range(n)
    )
    catalog = SimpleNamespace(gpu_of=lambda run: bundled(GPUS).get(run.gpus.type))
    return SimpleNamespace(runs=runs, catalog=catalog)


# Runs.
@kind(1000)
def runs_recommended(n):
    context = entries(n, tag=lambda i: ("MIN", "RECOMMENDED")[i % 2])
    return lambda: list(data_rules.recommended_below_min.find(context))


@kind(1000)
def runs_recommended_below(n):
    small = record().gpus.model_copy(update={"count": 1})
    context = entries(
        n, tag=lambda i: ("MIN", "RECOMMENDED")[i % 2], gpus=lambda i: (record().gpus, small)[i % 2]
    )
    return lambda: list(data_rules.recommended_below_min.find(context))


@kind(500)
def runs_on_gpus_of_their_own(n):
    gpus = [record().gpus.model_copy(update={"count": 8 - i % 2 * 4, "type": f"G{i // 2}"}) for i in range(n)]
    context = entries(n, tag=lambda i: ("MIN", "RECOMMENDED")[i % 2], gpus=lambda i: gpus[i])
    context.catalog.gpu_of = lambda run: bundled(GPUS).get("H100")
    return lambda: list(data_rules.recommended_below_min.find(context))


@kind(500)
def runs_with_scripts(n):
    context = entries(n, script=lambda i: SimpleNamespace(path=f"a/{i}.sh"))
    return lambda: list(data_rules.duplicate_run.find(context))


@kind(500)
def runs_with_versions(n):
    context = entries(n, versions=lambda i: SimpleNamespace(verl=f"0.{i}", torch=None))
    return lambda: list(data_rules.duplicate_run.find(context))


@kind(1000)
def runs_alike(n):
    context = entries(n)
    return lambda: list(data_rules.duplicate_run.find(context))


# One run file.
@kind(1200)
def keys_of_settings(n):
    text = run_text(RUN) + "settings:\n" + "".join(f"  a.b{i}: {i}\n" for i in range(n))
    return lambda: load(data_file(text), Run)


@kind(1000)
def unknown_keys(n):
    text = run_text(RUN) + "".join(f"key{i}: 1\n" for i in range(n))
    return lambda: load(data_file(text), Run)


@kind(1200)
def duplicate_keys(n):
    text = run_text(RUN) + "settings:\n" + "".join("  a.b: 1\n" for i in range(n))
    return lambda: load(data_file(text), Run)


@kind(1000)
def nested_lists(n):
    text = run_text(RUN) + "settings:\n" + "  a: [[1], " + ", ".join(["[1, [2]]"] * n) + "]\n"
    return lambda: load(data_file(text), Run)


@kind(500)
def evidence_unquoted(n):
    text = (
        run_text(RUN)
        + "evidence:\n"
        + "".join(f"- {{kind: log, url: 'https://a.b/{i}', lines: {i}-{i + 1}}}\n" for i in range(n))
    )
    one = source(text)
    return lambda: list(file_rules.unquoted_version.find(one))


@kind(250)
def evidence_repaired(n):
    text = (
        run_text(RUN)
        + "evidence:\n"
        + "".join(f"- {{kind: log, url: 'https://a.b/{i}', lines: {i + 1}}}\n" for i in range(n))
    )
    return lambda: repaired(text, "a")


@kind(250)
def addresses_repaired(n):
    text = run_text(RUN) + "evidence:\n" + "".join(f"- {{kind: log, url: a.bc/{i}}}\n" for i in range(n))
    return lambda: repaired(text, "a")


@kind(250)
def links_repaired(n):
    text = (
        run_text(RUN)
        + "evidence:\n"
        + "".join(
            f"- {{kind: log, url: 'https://github.com/volcengine/verl/blob/v0.4.1/a/{i}.sh'}}\n"
            for i in range(n)
        )
    )
    return lambda: repaired(text, "a")


@kind(500)
def notes_wrong(n):
    text = run_text(RUN) + "notes:\n" + "".join(f"- {{code: a{i}, tex: T{i}}}\n" for i in range(n))
    return lambda: load(data_file(text), Run)


@kind(8000)
def ref_of_letters(n):
    text = run_text({**RUN, "script": {"ref": "a" * n, "path": "a/b.sh"}})
    return lambda: load(data_file(text), Run)


@kind(4000)
def ref_of_slashes(n):
    text = run_text({**RUN, "script": {"ref": "a/" * n, "path": "a/b.sh"}})
    return lambda: load(data_file(text), Run)


@kind(100000)
def label_of_letters(n):
    text = run_text({**RUN, "label": "a" * n})
    return lambda: load(data_file(text), Run)


@kind(20000)
def text_of_addresses(n):
    text = run_text({**RUN, "notes": [{"code": "a", "text": "a@a. " * n}]})
    return lambda: load(data_file(text), Run)


@kind(5000)
def url_of_dots(n):
    text = run_text({**RUN, "evidence": [{"kind": "log", "url": "ab." * n}]})
    return lambda: repaired(text, "a")


@kind(2000)
def lines_out_of_line(n):
    text = "".join(f"{' ' * (i % 7)}k{i}: 1\n" for i in range(n)) + "a: b: c\n"
    return lambda: read_yaml(text.encode())


@kind(2000)
def items_out_of_line(n):
    text = "".join(f"k{i}:\n  - a\n" for i in range(n)) + " - b\n"
    return lambda: read_yaml(text.encode())


@kind(5000)
def forbidden_characters(n):
    text = "a: \u200b\n" * n
    return lambda: read_yaml(text.encode())


@kind(2000)
def forbidden_escapes(n):
    text = "a:\n" + '- "\\u200b"\n' * n
    return lambda: read_yaml(text.encode())


@kind(4000)
def ref_of_dots(n):
    return lambda: is_fixed_ref("1." * n + "1@")


@kind(4000)
def ref_of_digits(n):
    return lambda: is_fixed_ref("1" * n + "@")


@kind(1200)
def places_of_settings(n):
    """Look up the place of each key of a long mapping for its message."""
    document = read_yaml(("settings:\n" + "".join(f"  a.b{i}: 1\n" for i in range(n))).encode())
    return lambda: [document.key_place(("settings", f"a.b{i}")) for i in range(n)]


# Registries.
def gpus_text(n, aliases=0):
    return "gpus:\n" + "".join(
        f"- name: G{i}\n  vendor: nvidia\n  memory_gb: 80\n  memory_mib: 81559\n  kind: reading\n"
        + (f"  aliases: [{', '.join(f'alias {i} {j}' for j in range(aliases))}]\n" if aliases else "")
        for i in range(n)
    )


@kind(600)
def gpus(n):
    return lambda: load_registry(registry(GPUS, gpus_text(n)), GPUS)


@kind(500)
def gpus_of_one_name(n):
    text = gpus_text(1) + gpus_text(n).removeprefix("gpus:\n").replace("name: G", "name: G1 # ")
    return lambda: load_registry(registry(GPUS, text), GPUS)


@kind(500)
def gpus_wrong(n):
    text = gpus_text(n).replace("memory_mib", "memory_mb")
    return lambda: load_registry(registry(GPUS, text), GPUS)


@kind(1200)
def aliases(n):
    return lambda: load_registry(registry(GPUS, gpus_text(1, n)), GPUS)


@kind(500)
def aliases_hint(n):
    known = [f"alias {i} {i * 7919 % 1000}" for i in range(n)]
    return lambda: [nearest(f"alia 12{i}4", known) for i in range(10)]


@kind(400)
def aliases_long(n):
    known = [f"{'ab' * 90} {i}" for i in range(n)]
    return lambda: nearest("ba" * 90 + " 4", known)


@kind(200)
def aliases_and_names(n):
    """Double both the letters of a name and the names that it may mean."""
    known = [f"{'ab' * (n // 2)} {i}" for i in range(200)]
    return lambda: nearest("ba" * (n // 2) + " 4", known)


@kind(100)
def problems_of_a_file(n):
    place, code = Location("a.yaml", 1), Code.wrong_value
    found = [Diagnostic(place, code, f"wrong {i}") for i in range(25 * n)]
    return lambda: listed(found)


@kind(60)
def problems_of_many_files(n):
    found = [Diagnostic(Location(f"{i % n}.yaml"), Code.wrong_value, f"wrong {i}") for i in range(60 * n)]
    return lambda: listed(found)


@kind(4)
def renames_of_runs(n):
    """Search all other runs for each renamed one, which is fast if they do not contain its name."""
    sources = [source(run_text({**RUN, "id": f"a{i}"})) for i in range(50 * n)]
    return lambda: [renames._referring(one, "a-run-of-another-name", "b") for one in sources]


@kind(8)
def runs_of_unknown_gpus(n):
    names = load_registry(registry(GPUS, gpus_text(1, 4000)), GPUS)
    texts = [data_file(run_text({**RUN, "gpus": {"count": 1, "type": f"alias 7{i}"}})) for i in range(n)]
    context = {"stem": "a", "gpus": names, "architectures": {RUN["model"]}}
    return lambda: [load(text, Run, context) for text in texts]


@kind(1200)
def aliases_repeated(n):
    """Return files of GPUs that inherit names."""
    text = gpus_text(1, n)
    files = registry(GPUS, text).registries[GPUS] * 2
    snapshot = Snapshot((), {**dict.fromkeys(REGISTRIES, ()), GPUS: files})
    return lambda: load_registry(snapshot, GPUS)


@kind(100)
def registries_of_one_entry(n):
    files = tuple(data_file(gpus_text(1).replace("G0", "G0 " + str(i)), f"{i}.yaml") for i in range(n))
    snapshot = Snapshot((), {**dict.fromkeys(REGISTRIES, ()), GPUS: files})
    return lambda: load_registry(snapshot, GPUS)


# Cases.
CASE = "- {{id: a{0}, model: Qwen/Qwen2.5-7B-Instruct, gpus: {{count: 8, type: H100}}, config: {{a.b: 1}}, outcome: fits}}\n"


@kind(300)
def cases(n):
    text = "".join(CASE.format(i) for i in range(n))
    return lambda: load_cases([data_file(text)])


@kind(300)
def cases_of_one_id(n):
    text = "".join(CASE.format(0) for i in range(n))
    return lambda: load_cases([data_file(text)])


@kind(300)
def cases_wrong(n):
    text = "".join(CASE.format(i).replace("outcome", "outcom") for i in range(n))
    return lambda: load_cases([data_file(text)])


@kind(300)
def cases_with_duplicate_keys(n):
    text = "".join(CASE.format(i).replace("}\n", ", outcome: fits}\n") for i in range(n))
    return lambda: load_cases([data_file(text)])


@kind(300)
def keys_of_a_case_wrong(n):
    text = "- id: a\n" + "".join(f"  key{i}: 1\n" for i in range(n))
    return lambda: load_cases([data_file(text)])
