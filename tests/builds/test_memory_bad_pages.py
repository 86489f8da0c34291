"""Problems of directives and roles of the memory analysis are reported at their lines, and the page is built."""

from __future__ import annotations

import shutil

import pytest

from sphinx_verl_resources.analysis import analyse
from sphinx_verl_resources.dataset import Dataset, Directory, configured_directory
from sphinx_verl_resources.diagnostics import NoAnswerError

SIZES = "3B, 8B, 32B, 0.5B, 1.5B, 7B, 14B, 70B, 122B, 235B, 405B, 671B"
STEPS = "fsdp, gradient-checkpointing, activation-offload, dynamic-batching"
PIECES = "specification, formulas, chart, table"


#: A directive with its argument, its options, and the messages about them.
CASES = [
    ("verl-memory", "", ["name a size class or a model, as in '.. verl-memory:: 8B', or set :run: or :model: [verl.unknown_size]"]),
    ("verl-memory:9B", "", [f"unknown model '9B'; the nearest is 8B; use one of {SIZES}, or a checkpoint from architectures.yaml [verl.unknown_size]"]),
    ("verl-memory:Qwen/Qwen3-8", "", ["unknown model 'Qwen/Qwen3-8'; did you mean 'Qwen/Qwen3-8B'? [verl.unknown_model]"]),
    ("verl-memory:3B", ":gpus: 0", [":gpus: must be a whole number from 1 to 100,000, got '0' [verl.directive]"]),
    ("verl-memory:3B", ":gpus:", [":gpus: a value is missing"]),
    ("verl-memory:3B", f":batch-size: {10**12}", [":batch-size: must be a whole number from 1 to 1,000,000, got '1000000000000'"]),
    ("verl-memory:3B", ":steps: fsdp, magic", [f":steps: unknown value 'magic'; allowed: {STEPS}, none"]),
    ("verl-memory:3B", ":steps: none, fsdp", [":steps: 'none' cannot be combined with other values"]),
    ("verl-memory:3B", ":steps: ,", [f":steps: name at least one of {STEPS}"]),
    ("verl-memory:3B", ":show: tables", [f":show: unknown value 'tables'; did you mean 'table'? Allowed: {PIECES}"]),
    ("verl-memory:3B", ":gpus: 4\n:steps: gradient-checkpointing", [":gpus: has no effect without the step 'fsdp'; add it, or remove :gpus: [verl.directive]"]),
    ("verl-memory:3B", ":gib:\n:show: formulas", [":gib: needs the table, which :show: leaves out"]),
    ("verl-memory:3B", ":gib: yes", [":gib: takes no value, got 'yes'"]),
    ("verl-memory:3B", ":gpu: 8", [":gpu: unknown option; did you mean 'gpus'?"]),
    ("verl-memory:3B", ":gpus: 0\n:show: x", [":gpus: must be", ":show: unknown value 'x'"]),
    ("verl-memory-summary:,", "", ["name at least one model, or leave the argument out"]),
    ("verl-memory-summary:9B 10B", ":gpus: 0", [":gpus: must be"]),
    ("verl-memory-summary:9B 10B", "", ["unknown model '9B'", "unknown model '10B'"]),
    ("verl-requirements:7B 9B", "", ["'requirements' has no entry for '7B'", "'requirements' has no entry for '9B'"]),
    ("verl-config", "", ["name a model: 3B, 8B, 32B [verl.unknown_size]"]),
    ("verl-config:3B", ":show: json", [":show: unknown value 'json'; allowed: yaml, command-line, table"]),
    ("verl-analysis", "", ["name a part; allowed: assumptions, priorities, trade-offs, monitoring"]),
    ("verl-memory:3B", "\n\nText.", ["the directive takes no text; remove the text"]),
    ("verl-memory-summary:3B", "\n\nText.", ["the directive takes no text"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def build_of_cases(new_project):
    """A page for each case, in one build."""
    project = new_project("docs").page("Text.")
    for number, (directive, options, _) in enumerate(CASES):
        name, _, argument = directive.partition(":")
        lines = "\n".join(f"   {line}" if line else "" for line in options.split("\n"))
        project.page(f"Before.\n\n.. {name}:: {argument}\n{lines}\n\nAfter.\n", f"case-{number}.rst")
    build = project.build()
    build.warnings = [line.replace(f"{project.path}/", "") for line in build.warnings]
    return build


def test_nothing_else_is_said(build_of_cases):
    assert len(build_of_cases.warnings) == sum(len(messages) for _, _, messages in CASES)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_directive(build_of_cases, number):
    directive, _, messages = CASES[number]
    name = directive.partition(":")[0]
    found = [line for line in build_of_cases.warnings if line.startswith(f"case-{number}.rst:")]
    assert len(found) == len(messages), found
    for line, message in zip(found, messages, strict=True):
        assert line.startswith(f"case-{number}.rst:8: ERROR: {name}: {message}"), line
    soup = build_of_cases.soup(f"case-{number}.html")
    assert len(soup.select(".verl-problem")) == len(messages)
    assert "Before." in soup.get_text()
    assert "After." in soup.get_text()


@pytest.mark.parametrize("suffix", ["rst", pytest.param("md", marks=pytest.mark.slow)])
def test_role(project, suffix):
    project.conf.update(extensions=["myst_parser"])
    role = ":verl:memory:`8B, after FSPD`" if suffix == "rst" else "{verl:memory}`8B, after FSPD`"
    build = project.page(f"Some\ntext {role} here.", f"index.{suffix}").build()
    (line,) = (line.replace(f"{project.path}/", "") for line in build.warnings)
    place = {"rst": "index.rst:4", "md": "index.md:3"}[suffix]
    assert (
        line == f"{place}: ERROR: verl:memory: there is no step 'FSPD'; did you mean 'FSDP'? [verl.directive]"
    )
    assert "[verl:memory: there is no step 'FSPD']" in build.soup().get_text()


def test_malformed_analysis(own, data):
    data.write("analysis.yaml", "assumptions:\n  batch_size: [32\n")
    build = own.page(".. verl-memory:: 8B\n   :show: table\n").build()
    assert build.warnings == [
        "../data/analysis.yaml:2:15: ERROR: the bracket that opens here is not closed; close it, "
        "or add a comma [verl.yaml_syntax]"
    ]
    assert "117.5" in build.soup().get_text()  # the data of the package are still shown
    assert "../data/analysis.yaml has errors" in build.soup().select_one(".verl-problem").get_text()
    assert own.build().warnings == build.warnings  # repeated in each build


EVERYTHING = "\n\n".join(
    [*(f".. verl-memory:: {name}" for name in ("3B", "32B", "7B", "My model", "Qwen/Qwen3-8B")), ".. verl-memory-summary::"]
    + [".. verl-requirements::", *(f".. verl-config:: {name}" for name in ("3B", "8b"))]
    + [f".. verl-analysis:: {part}" for part in ("assumptions", "priorities", "trade-offs", "monitoring")]
    + [":verl:memory:`8B, after FSDP`, :verl:memory:`3B, per GPU`, :verl:memory:`batch size`"]
)  # fmt: skip
ZEROS = "parameter_bytes: 0, gradient_bytes: 0, optimizer_moments: 0, activation_bytes: 0, kv_cache_bytes: 0, overhead_gb: 0"


@pytest.mark.parametrize(
    "text",
    [
        f"assumptions: {{{ZEROS}}}",
        "assumptions: {batch_size: .inf, overhead_gb: 1e-9, ffn_ratio: 1e-6}",
        "specifications:\n  - {name: 3B, model: Qwen/Qwen3.5-122B-A10B}\n  - {name: 日本語, model: Qwen/Qwen3-8B}\n",
        "steps:\n  - {name: zero, label: '<b>&', components: [overhead, parameters], divide_by: gpus, text: '*x* `y`'}\n",
        "requirements:\n  - name: 3B\n    claims: [{level: minimum, text: x, count: 1, gpus: [Nothing]}]\n",
        "assumptions: {",
    ],
)  # fmt: skip
def test_whatever_is_recorded_the_pages_are_built(own, data, text):
    data.write("analysis.yaml", text)
    build = own.page(EVERYTHING).build()
    for line in build.warnings:
        assert "[verl." in line, line
    assert "verl_remarks" not in build.text("index.html")


def test_an_assumption_that_nobody_makes(own, data, root):
    text = (root / "data" / "analysis.yaml").read_text("utf-8")
    data.write("analysis.yaml", text.replace("  ffn_ratio: 2.75\n", ""))
    shutil.copytree(root / "data", own.path / "bundled")
    (own.path / "bundled" / "analysis.yaml").unlink()
    directories = [configured_directory("data", data.path.parent)]
    loaded = Dataset(directories, bundled=Directory(own.path / "bundled", "x"))
    analysis = loaded.analysis
    (problem,) = loaded.diagnostics
    assert str(problem).startswith("data/analysis.yaml:6:3: ERROR: no file sets 'assumptions.ffn_ratio'")
    with pytest.raises(NoAnswerError, match="an assumption is missing"):
        analyse(analysis, "3B")


def test_a_role_has_the_code_of_its_problem(project):
    project.conf["suppress_warnings"] = ["verl.unknown_size"]
    assert project.page("Of :verl:memory:`13B, total`.").build().warnings == []


def test_the_analysis_is_not_read_where_no_page_shows_it(own, data):
    data.run("a")
    data.write("analysis.yaml", "assumptions: [")
    assert own.page(".. verl-runs:: 7B").build().warnings == []
    own.page(".. verl-runs:: 7B\n\n.. verl-memory:: 8B\n   :show: table\n")
    assert len(own.build().warnings) == 1


def test_an_estimate_needs_the_keys_of_verl_and_not_the_analysis(own, data):
    data.write("analysis.yaml", "assumptions: [")
    estimate = ".. verl-memory::\n   :model: Qwen/Qwen2.5-7B\n   :gpus: 8*H100\n"
    build = own.page(estimate).build()
    assert (build.warnings, build.soup().select(".verl-problem")) == ([], [])
    data.write("config_keys.yaml", "config_keys: [")
    build = own.build()
    assert len(build.warnings) == 1
    assert "config_keys.yaml has errors" in build.soup().select_one(".verl-problem").get_text()


def test_a_key_that_verl_ignores_is_said_where_it_is_shown(own, data):
    data.write(
        "analysis.yaml",
        "configurations:\n  - name: 8B\n    settings: {actor_rollout_ref.actor.megatron.grad_offload: true}\n",
    )
    build = own.page(".. verl-config:: 8B").build()
    found = [line.replace(f"{own.path}/", "") for line in build.warnings]
    assert [line.split(": ")[0] for line in found] == ["index.rst:4", "../data/analysis.yaml:3:16"]
    assert all(
        "WARNING" in line
        and "is ignored by verl; Stored but never read" in line
        and "[verl.config_key]" in line
        for line in found
    )
    assert build.rows  # the page is built
    assert build.soup().select("table.verl-config")


def test_warnings_can_be_silenced(own, data):
    data.write("analysis.yaml", "configurations:\n  - {name: 8B, settings: {a.b: 1}}\n")
    own.page(".. verl-config:: 8B")
    assert len(own.build().warnings) == 2
    own.conf["suppress_warnings"] = ["verl.config_key"]
    assert own.build(fresh=True).warnings == []
