"""The content of pickles between builds, next to the version numbers to raise when it changes."""

from __future__ import annotations

import pickle
from dataclasses import fields, is_dataclass
from inspect import signature

import pytest
from docutils import nodes

from sphinx_verl_resources.analysis import queries as analysis_queries
from sphinx_verl_resources.answer import queries as answer_queries
from sphinx_verl_resources.answer.grid import Axes
from sphinx_verl_resources.diagnostics import Diagnostic, Location
from sphinx_verl_resources.estimator import queries as estimator_queries
from sphinx_verl_resources.query import Query, digest
from sphinx_verl_resources.selection import RunSelection
from sphinx_verl_resources.sphinx_ext import domain, extension, queries
from sphinx_verl_resources.sphinx_ext.objects import Target

MODULES = {analysis_queries.__name__, answer_queries.__name__, estimator_queries.__name__, queries.__name__}

#: If you change anything here, raise the number too; otherwise new code reads old pickles.
DATA_VERSION = 18
DATA = {
    "": "files objects problems state uses written",
    "analysis.queries.AnalysisQuery": "function arguments",
    "answer.grid.Axes": "counts gpus responses loras",
    "answer.queries.Exported": "extension_version",
    "answer.queries.FewestGpus": "memories task sizes config",
    "answer.queries.Grid": "model axes config",
    "answer.queries.RunArguments": "run",
    "answer.queries.SettingsAnswer": "asked",
    "answer.queries.SizeModels": "sizes",
    "answer.queries.UsedModels": "",
    "selection.RunSelection": "sizes filters sort",
    "diagnostics.Diagnostic": "place code message remedy severity",
    "diagnostics.Location": "path line column key",
    "estimator.queries.Scores": "groups",
    "estimator.queries.Capacity": "gpu",
    "estimator.queries.Defaults": "keys",
    "estimator.queries.ModelEstimate": "model gpus gpu config version",
    "estimator.queries.RecordedRun": "run",
    "estimator.queries.RunEstimate": "run",
    "sphinx_ext.objects.Target": "anchor title group",
    "sphinx_ext.queries.ConfigValue": "name",
    "sphinx_ext.queries.Extension": "",
    "sphinx_ext.queries.Figure": "name",
    "sphinx_ext.queries.FilesWithErrors": "parts",
    "sphinx_ext.queries.KnownValue": "name value",
    "sphinx_ext.queries.ObjectName": "kind name target",
    "sphinx_ext.queries.RegistryEntries": "kind names",
    "sphinx_ext.queries.RegistryNames": "kind names",
    "sphinx_ext.queries.Runs": "selection columns",
}
#: The functions of the analysis that pages query, with the arguments.
FUNCTIONS = {
    "analysis.analysis.analyse": "name gpus batch_size sequence_length steps",
    "analysis.analysis.assumptions_of": "",
    "analysis.queries.configured": "name",
    "analysis.queries.entries": "section",
    "analysis.queries.names": "section",
    "analysis.queries.own_models": "",
    "analysis.queries.remarks_about": "subject",
    "analysis.queries.remarks_named": "chosen",
    "analysis.queries.required": "name",
    "analysis.queries.sharing_steps": "",
    "analysis.values.value_text": "text",
}

ENV_VERSION = 9
#: By class: our attributes, and those with the target of a reference.
NODES = {
    "pending_xref": "std:ref verl:gpu verl:model verl:run verl:size verl_contribute verl_name verl_optional verl_row",
    "verl_chart": "drawing format xml:space",
    "verl_marks": "remarks",
    "verl_remarks": "remarks",
    "verl_details": "verl_run",
    "verl_tabs": "format label xml:space",
    "verl_runs": "anchors columns computed runs",
    "verl_what_if": "data fields runs",
    "verl_if_line": "is_used translatable",
    "verl_if_actions": "command script",
}


def kinds(kind: type) -> set[type]:
    """Return a class and all its subclasses."""
    return {kind}.union(*map(kinds, kind.__subclasses__()))


def test_what_the_domain_keeps():
    asked = [kind for kind in kinds(Query) if is_dataclass(kind) and kind.__module__ in MODULES]
    found = {
        f"{kind.__module__}.{kind.__name__}".removeprefix("sphinx_verl_resources."): " ".join(
            item.name for item in fields(kind)
        )
        for kind in [*asked, RunSelection, Diagnostic, Location, Axes]
    }
    found["sphinx_ext.objects.Target"] = " ".join(Target._fields)
    found[""] = " ".join(sorted(domain.VerlDomain.initial_data))
    assert (domain.VerlDomain.data_version, found) == (DATA_VERSION, DATA)


def test_what_the_domain_keeps_of_the_analysis(asked):
    uses = asked.app.env.get_domain("verl").uses.values()
    functions = {
        query.function
        for queries in uses
        for query in queries
        if isinstance(query, analysis_queries.AnalysisQuery)
    }
    found = {
        f"{function.__module__}.{function.__name__}".removeprefix("sphinx_verl_resources."): " ".join(
            list(signature(function).parameters)[1:]
        )
        for function in functions
    }
    assert found == FUNCTIONS


def test_every_query_has_a_key_of_its_own(asked):
    uses = asked.app.env.get_domain("verl").uses.values()
    queries = {query for queries in uses for query in queries}
    assert len({digest(query.key()) for query in queries}) == len(queries)


def test_what_doctrees_keep(every_use):
    found: dict[str, set[str]] = {}
    for path in every_use.path.glob("_build/**/*.doctree"):
        for node in pickle.loads(path.read_bytes()).findall(nodes.Element):
            ours = {name for name in node.attributes if name.startswith("verl_")}
            if type(node).__module__.startswith("sphinx_verl_resources"):
                ours = node.attributes.keys() - set(nodes.Element.list_attributes)
            elif ours or node.get("refdomain") == "verl":
                ours.add(f"{node['refdomain']}:{node['reftype']}")
            if ours:
                found.setdefault(type(node).__name__, set()).update(ours)
    assert {name: " ".join(sorted(ours)) for name, ours in found.items()} == NODES
    assert extension.ENV_VERSION == ENV_VERSION


@pytest.mark.slow
def test_an_environment_with_names_that_are_gone_is_made_anew(every_use):
    """Earlier versions pickled classes of modules that no longer exist."""
    build = every_use.build()
    environment = build.out.parent / "doctrees/environment.pickle"
    assert environment.is_file()
    environment.write_bytes(b"csphinx_verl_resources.render.marks\nverl_marks\n.")
    for path in environment.parent.glob("*.doctree"):
        path.write_bytes(environment.read_bytes())
    again = every_use.build()
    assert {"runs", "memory-8b"} <= again.read
    assert again.warnings == []
