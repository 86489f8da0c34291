"""Work grows with the input: twice as much of anything takes at most 2.6 times as long, up to the limits.

An input is made at two sizes, the larger one four times the smaller. What counts is processor time less that of
an empty input, and the least of several readings, so that other work on the machine does not matter.
"""

from __future__ import annotations

import gc
import math
from contextlib import suppress
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sphinx_verl_resources.catalog.cases import load_cases
from sphinx_verl_resources.catalog.catalog import load_registry
from sphinx_verl_resources.catalog.files import (
    ARCHITECTURES,
    GPUS,
    REGISTRIES,
    DataFile,
    Snapshot,
    bundled_directory,
)
from sphinx_verl_resources.catalog.links import is_fixed_ref
from sphinx_verl_resources.catalog.models.run import Run
from sphinx_verl_resources.catalog.run_text import run_text
from sphinx_verl_resources.catalog.validation import load
from sphinx_verl_resources.catalog.yaml_data import read_yaml
from sphinx_verl_resources.diagnostics import Code, Diagnostic, Location, NoAnswerError, listed, nearest
from sphinx_verl_resources.intake.log import read_log
from sphinx_verl_resources.lint import data_rules, file_rules, renames
from sphinx_verl_resources.lint.context import RunEntry, SourceFile
from sphinx_verl_resources.lint.repairs import repaired
from sphinx_verl_resources.settings.read import read_settings

if TYPE_CHECKING:
    from collections.abc import Callable

#: Factor of a doubling, and how often a reading that exceeds it is taken again.
MOST, READINGS = 2.6, 10
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
TRAINS = "python3 -m verl.trainer.main_ppo "

#: By name: the smaller size, and what makes the work on an input of a size.
KINDS: dict[str, tuple[int, Callable[[int], Callable[[], object]]]] = {}


def kind(size: int) -> Callable[..., Any]:
    """Note a kind of input, with the number of its parts."""

    def note(make: Callable[[int], Callable[[], object]]) -> Any:
        KINDS[make.__name__] = size, make
        return make

    return note


def data_file(text: str, name: str = "a.yaml") -> DataFile:
    return DataFile(Path(name), name, text.encode())


def source(text: str, kind: str = "run") -> SourceFile:
    file = data_file(text)
    return SourceFile(file, kind, read_yaml(file.content, file.shown))


BUNDLED = bundled_directory()


def bundled(name: str) -> Any:
    file = data_file((BUNDLED.path / name).read_text("utf-8"), name)
    registries = {other: ((file,) if other == name else ()) for other in REGISTRIES}
    return load_registry(Snapshot((), registries), name)


def registry(name: str, text: str) -> Snapshot:
    registries = {other: ((data_file(text, name),) if other == name else ()) for other in REGISTRIES}
    return Snapshot((), registries)


RECORD = Run.model_validate(read_yaml(run_text(RUN).encode()).data)
HAS_GPU = bundled(GPUS)


def entries(n: int, **changes: Any) -> SimpleNamespace:
    """A context with many runs of one kind."""
    one = source(run_text(RUN))
    runs = tuple(
        RunEntry(
            RECORD.model_copy(update={"id": f"a{i}", **{k: v(i) for k, v in changes.items()}}), one, None, ()
        )
        for i in range(n)
    )
    catalog = SimpleNamespace(gpu_of=lambda run: HAS_GPU.get(run.gpus.type))
    return SimpleNamespace(runs=runs, catalog=catalog)


# Runs.
@kind(1000)
def runs_recommended(n):
    context = entries(n, tag=lambda i: ("MIN", "RECOMMENDED")[i % 2])
    return lambda: list(data_rules.recommended_below_min.find(context))


@kind(1000)
def runs_recommended_below(n):
    small = RECORD.gpus.model_copy(update={"count": 1})
    context = entries(
        n, tag=lambda i: ("MIN", "RECOMMENDED")[i % 2], gpus=lambda i: (RECORD.gpus, small)[i % 2]
    )
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
def notes(n):
    text = run_text(RUN) + "notes:\n" + "".join(f"- {{code: a{i}, text: T{i}}}\n" for i in range(n))
    return lambda: load(data_file(text), Run)


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


@kind(1000)
def steps_of_indentation(n):
    text = (
        "a:\n"
        + "".join(f"{' ' * i}- {' ' * 3}k: 1\n" for i in range(min(n, 900))) * (n // 900 + 1)
        + " - b\n"
    )
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
    """Each key of a long mapping is looked up for its message."""
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
    """Both the letters of a name and the names that it may mean."""
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
    """Each run that is renamed is looked for in all others: cheap where it is not named."""
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
    """Files of GPUs that inherit names."""
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


# Scripts.
def script(size, text, before="", after=""):
    def make(n):
        body = before + "".join(text.format(i) for i in range(n)) + after
        return lambda: read_settings(body, "run.sh")

    return size, make


SCRIPTS = {
    "words": script(1000, "a.b{}=1 ", TRAINS),
    "words_continued": script(1000, "a.b{}=1 \\\n", TRAINS),
    "words_alike": script(1000, "a.b=1 ", TRAINS),
    "words_nested": script(1000, "a.b{0}.c=1 a.b{0}.d=1 ", TRAINS),
    "words_below": script(1000, "a.b{0}=1 a.b{0}.d=1 ", TRAINS),
    "words_unknown": script(1000, "a.b{0}=$X{0} ", TRAINS),
    "words_with_braces": script(500, "a.b{0}={{1,2}} ", TRAINS),
    "lists": script(1000, "[1,2],", TRAINS + "a.b=[", "]"),
    "brackets": script(1000, "[", TRAINS + "a.b="),
    "assignments": script(1000, "A{}=1\n", "", TRAINS + "a.b=$A1"),
    "assignments_chained": script(1000, "A=$A{}\n", "", TRAINS + "a.b=$A"),
    "assignments_appended": script(1000, "A+=x{}\n", "", TRAINS + "a.b=$A"),
    "assignments_doubled": script(1000, "A=$A$A\n", "A=x\n", TRAINS + "a.b=$A"),
    "arrays": script(1000, "A+=(a.b{}=1)\n", "", TRAINS + '"${A[@]}"'),
    "array_items": script(1000, "a.b{}=1\n", "A=(", ")\n" + TRAINS + '"${A[@]}"'),
    "conditions": script(300, 'if [ "$X" = 1 ]; then A{0}=1; fi\n', "", TRAINS + "a.b=$A1"),
    "conditions_open": script(300, 'if [ "$X{0}" = 1 ]; then A=$A{0}; else A=1; fi\n', "", TRAINS + "a.b=$A"),
    "loops": script(300, "for x in a b; do A=$x; done\n", "", TRAINS + "a.b=$A"),
    "loop_words": script(500, "a{} ", "for x in ", "; do A=$x; done\n" + TRAINS + "a.b=$A"),
    "functions": script(300, "f{}() {{ A=1; }}\n", "", "f1\n" + TRAINS + "a.b=$A"),
    "calls": script(300, "f {0}\n", "f() { A=$1; }\n", TRAINS + "a.b=$A"),
    "calls_of_calls": script(20, "f{0}() {{ f{0}x; f{0}x; }}\n", "", "f1\n" + TRAINS + "a.b=$A"),
    "cases_of_a_word": script(300, "a{}) A=1;;\n", "case $X in\n", "esac\n" + TRAINS + "a.b=$A"),
    "pipes": script(1000, "echo {} | cat\n", "", TRAINS + "a.b=1"),
    "chains": script(2000, "true && ", "", TRAINS + "a.b=1"),
    "comments": script(2000, "# {}\n", "", TRAINS + "a.b=1"),
    "documents": script(600, "cat <<E{0}\na\nE{0}\n", "", TRAINS + "a.b=1"),
    "documents_open": script(1000, "cat <<E{0}\n", "", TRAINS + "a.b=1"),
    "quotes_open": script(2000, "'{0}' \" ", TRAINS),
    "substitutions_of_commands": script(300, "A{0}=$(a b)\n", "", TRAINS + "a.b=$A1"),
    "commands_open": script(1000, "$(", TRAINS),
    "braces_open": script(1000, "${{", TRAINS),
    "backquotes": script(1001, "`", TRAINS),
    "calculations": script(500, "A=$((A+{0}))\n", "", TRAINS + "a.b=$A"),
    "terms": script(500, "+{0}", TRAINS + "a.b=$((1", "))"),
    "negations": script(500, "! ", "", TRAINS + "a.b=1"),
    "tests": script(300, "[[ $X == {0} ]] || ", "", TRAINS + "a.b=1"),
    "expressions": script(300, "! ", "if [ ", "a = a ]; then A=1; fi\n" + TRAINS + "a.b=$A"),
    "arguments_in_text": script(300, "bash -c 'python3 -m verl.trainer.main_ppo a.b={0}'\n"),
    "trainings": script(300, TRAINS + "a.b={0}\n"),
    "sourced": script(500, "source a{0}.sh\n", "", TRAINS + "a.b=1"),
    "yaml_keys": script(1000, "a.b{0}: 1\n"),
    "yaml_keys_wrong": script(1000, "a b{0}: 1\n", "a: 1\n"),
    "yaml_items": script(1000, "- a{0}\n", "a:\n"),
    "overrides": script(1000, "a.b{0}=1\n"),
    "blanks": script(5000, " \\\n", TRAINS),
    "blank_lines": script(5000, "\t\n", "", TRAINS),
    "parentheses": script(500, "(", "", ""),
    "shift": script(300, "shift\n", "set -- " + "a " * 100 + "\n", TRAINS + "a.b=$1"),
    "patterns": script(
        500, "a*", "case aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa in ", "b) A=1;; esac\n" + TRAINS + "a.b=$A"
    ),
    "defaults": script(300, "A{0}=${{B{0}:-1}}\n", "", TRAINS + "a.b=$A1"),
    "exports": script(500, "export A{0}=1\n", "", TRAINS + "a.b=$A1"),
}
KINDS.update({f"script_{name}": item for name, item in SCRIPTS.items()})


# Logs.
def log(size, text, before="", after=""):
    def make(n):
        body = (before + "".join(text.format(i) for i in range(n)) + after + "\n").encode()
        return lambda: read_log([body[at : at + (1 << 20)] for at in range(0, len(body), 1 << 20)], "run.log")

    return size, make


STEPS = "step:{0} - perf/max_memory_allocated_gb:71.3 - perf/time_per_step:60.5\n"
CONFIG = "{{'actor_rollout_ref': {{'actor': {{'strategy': 'fsdp'}}}}}}"
LOGS = {
    "steps": log(500, STEPS),
    "steps_of_workers": log(500, "(W pid={0}) " + STEPS),
    "braces": log(4000, "{{", "{'data': "),
    "braces_with_commas": log(4000, "{{, ", "{'data': "),
    "braces_and_commas": log(10000, ",", "{'data': " + "{'a': " * 30),
    "braces_closed": log(2000, "{{'a': 1}}, ", "{'data': {'b': ["),
    "brackets": log(2000, "[", "{'data': "),
    "dicts": log(1000, "'a{0}': {{'b': 1}}, ", "{'data': {", "}}"),
    "items": log(2000, "{0}, ", "{'data': [", "]}"),
    "items_cut": log(2000, "'a{0}': 1, ", "{'data': {"),
    "words": log(2000, "<a b{0}>, ", "{'data': [", "]}"),
    "words_open": log(2000, "a ", "{'data': [", "]}"),
    "words_in_brackets": log(2000, "a(", "{'data': [", "]}"),
    "quotes": log(2000, "'", "{'data': [", "]}"),
    "quotes_open": log(2000, "'a\\\\", "{'data': ["),
    "config_lines": log(2000, " 'a{0}': 1,\n", "{'data': {'b': 1},\n"),
    "config_deep": log(2000, " 'a{0}': {{\n", "{'data': {'b': 1},\n"),
    "configs": log(300, "(W pid=1) " + CONFIG + "\n"),
    "configs_of_workers": log(300, "(W pid={0}) " + CONFIG + "\n"),
    "configs_open_of_workers": log(1000, "(W pid={0}) {{'data': {{'a': {{'b': 1,\n"),
    "configs_and_steps": log(300, "(W pid={0}) " + CONFIG + "\n(W pid={0}) " + STEPS),
    "configs_begun": log(1000, "(W pid={0}) {{'data': {{'a': {{'b': 1,\n(W pid={0}) 'c': 1,\n"),
    "frames": log(1000, '(W pid={0}) File "/verl/a.py", line {0}, in update_policy\n'),
    "frames_of_one": log(1000, '(W pid=1) File "/verl/a.py", line {0}, in update_policy\n'),
    "failures": log(
        300, "(W pid={0}) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    ),
    "failures_with_frames": log(
        1200,
        '(W pid={0}) File "/verl/a.py", line {0}, in backward\n'
        "(W pid={0}) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
    ),
    "processes": log(300, "Process {0} has 2.00 GiB memory in use. ", "CUDA out of memory. "),
    "numbers": log(5000, "1", "Tried to allocate ", "GiB out of memory. CUDA out of memory. "),
    "memory_words": log(2000, "Memory on the node was ", "emory "),
    "killed_words": log(2000, "Sleep mode freed ", "emory "),
    "gpus": log(1000, "NVIDIA H100 "),
    "gpus_pipes": log(1000, "|  1  NVIDIA ", "|  "),
    "versions": log(800, "torch 2.{0}.0 "),
    "version_words": log(1000, "Initializing a V1 LLM engine (", "", ""),
    "models": log(900, "LLM engine (", "", "model='"),
    "commands": log(300, "+ python3 -m verl.trainer.main_ppo a.b={0}\n"),
    "command_words": log(1200, "a.b{0}=1 ", "+ python3 -m verl.trainer.main_ppo "),
    "commands_of_pluses": log(3000, "+", "", " verl.trainer.main"),
    "commands_of_minuses": log(1200, "+ -m verl.", "", "verl.trainer.main"),
    "hydra": log(1000, "'a.b{0}=1', ", "Error executing job with overrides: [", "]"),
    "colours": log(2000, "\x1b[", "step:1 - "),
    "titles": log(2000, "\x1b]", "step:1 - "),
    "returns": log(2000, "step:{0} - a\r"),
    "figures": log(1000, " - perf/max_memory_allocated_gb:{0}", "step:1"),
    "figures_unread": log(1000, " - perf/max_memory_allocated_gb:x", "step:1"),
    "figure_digits": log(5000, "1", "step:1 - perf/max_memory_allocated_gb:"),
    "workers_open": log(2000, "(", "", " step:1 - a:1"),
    "repeated": log(2000, "[repeated ", "step:1 - a:1"),
    "long_line": log(20000, "step:1 - a ", "", ""),
    "zeros": log(5000, "\0", "step:1 - a:1"),
}
KINDS.update({f"log_{name}": item for name, item in LOGS.items()})


# Pages.
def page(size, text, before="", after=""):
    def make(n):
        from sphinx_verl_resources.intake.page import Known, read_page

        known = Known(HAS_GPU, bundled(ARCHITECTURES), {}, None)
        body = before + "".join(text.format(i) for i in range(n)) + after + "\n"

        def work():
            with suppress(NoAnswerError):
                read_page(data_file(body, "page.rst"), known)

        return work

    return size, make


TABLE = """7B
~~

.. list-table::
   :header-rows: 1

   * - Tag
     - Model
     - Task
     - Resource
     - MaxBatch
     - Train
     - Infer
     - Link
     - Contributor
"""
ROW = """   * - MIN
     - Qwen2.5-7B
     - GRPO-LoRA{0}
     - 1*H100
     - 16
     - fsdp
     - vllm0.8.3
     - `a <https://a.b/{0}>`_
     - A
"""
PAGES = {
    "rows": page(10, ROW, TABLE),
    "rows_alike": page(10, ROW.replace("{0}", "1"), TABLE),
    "rows_short": page(40, "   * - MIN{0}\n", TABLE),
    "tables": page(8, "\n" + TABLE.replace("~~", "~~\n") + ROW),
    "csv_rows": page(
        100,
        "   MIN,Qwen2.5-7B,GRPO{0},1*H100,16,fsdp,vllm0.8.3,,A\n",
        "7B\n~~\n\n.. csv-table::\n   :header: Tag,Model,Task,Resource,MaxBatch,Train,Infer,Link,Contributor\n\n",
    ),
    "targets": page(1500, ".. _a{0}: https://a.b/{0}\n\n"),
    "targets_inner": page(1500, ".. _a{0}:\n\n"),
    "targets_alike": page(1500, ".. _a: https://a.b/{0}\n\n"),
    "references": page(1500, "`a{0}`_ "[:-1] + "\n"),
    "references_anonymous": page(250, "`a{0} <b>`__\n"),
    "references_unknown": page(1500, "a{0}_\n"),
    "substitutions": page(1500, ".. |a{0}| replace:: b\n"),
    "substitutions_used": page(100, "|a|\n", ".. |a| replace:: b\n\n"),
    "substitutions_nested": page(100, ".. |a{0}| replace:: |a| |a|\n", ".. |a| replace:: b\n\n"),
    "substitution_marks": page(1500, "|a|\n"),
    "directives": page(100, ".. note:: a{0}\n\n"),
    "directives_unknown": page(100, ".. aaa{0}:: a\n\n"),
    "roles_unknown": page(100, ":aaa{0}:`a`\n"),
    "footnotes": page(1500, ".. [#] a{0}\n"),
    "footnotes_used": page(1500, "[#]_ \n\n.. [#] a{0}\n\n"),
    "headings": page(100, "A{0}\n====\n\n"),
    "headings_alike": page(100, "A\n====\n\n"),
    "underlines": page(300, "7B {0}\n==\n\n"),
    "underline_titles": page(300, "7B "[:-1] + "7"),
    "emphases": page(500, "*a{0}* "[:-1] + "\n"),
    "stars": page(1500, "*a\n"),
    "backquotes": page(1500, "`a\n"),
    "pipes": page(1500, "|a\n"),
    "paragraphs": page(300, "a{0}\n\n"),
    "items": page(100, "* a{0}\n\n"),
    "quotes": page(100, "{0}\n  a\n\n"),
    "grid": page(100, "| a | b |\n+---+---+\n", "+---+---+\n"),
    "definitions": page(100, "a{0}\n   b\n"),
    "fields": page(100, ":a{0}: b\n"),
    "comments": page(200, ".. a{0}\n\n"),
    "lines": page(200, "| a{0}\n"),
    "updated": page(500, "Last update "),
    "updated_lines": page(500, "* Last updated\n"),
}
KINDS.update({f"page_{name}": item for name, item in PAGES.items()})


def seconds(work: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    begin = process_time()
    try:
        work()
    finally:
        gc.enable()
    return process_time() - begin


def factor(size: int, make: Callable[[int], Callable[[], object]], readings: int = READINGS) -> float:
    """The growth per doubling, as far as it was read until it was low enough."""
    empty, small, large = (make(n) for n in (0, size, 4 * size))
    least = [math.inf] * 3
    for _ in range(readings):
        least = [min(known, seconds(work)) for known, work in zip(least, (empty, small, large), strict=True)]
        found = max((least[2] - least[0]) / max(least[1] - least[0], 1e-3), 1)
        if math.sqrt(found) < MOST:
            break
    return math.sqrt(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_twice_as_much_takes_at_most_a_little_more_than_twice_as_long(name):
    assert factor(*KINDS[name]) < MOST
