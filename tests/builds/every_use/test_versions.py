"""What lies in pickles between builds, beside the numbers that must be raised when it changes."""

from __future__ import annotations

import pickle
from dataclasses import fields
from typing import get_args

from docutils import nodes

from sphinx_verl_resources.analysis.questions import Question
from sphinx_verl_resources.catalog.selection import RunQuery
from sphinx_verl_resources.diagnostics import Diagnostic
from sphinx_verl_resources.estimator.grid import Axes
from sphinx_verl_resources.estimator.questions import EstimatorQuestion
from sphinx_verl_resources.sphinx_ext import domain, extension, uses
from sphinx_verl_resources.sphinx_ext.objects import Target

#: Whoever changes anything here raises the number too, or people's old pickles meet new code.
DATA_VERSION = 10
DATA = {
    "": "analysis_problems files objects problems state uses written",
    "catalog.selection.RunQuery": "sizes filters sort",
    "diagnostics.Diagnostic": "location code message hint severity",
    "estimator.questions.Accuracies": "groups",
    "estimator.questions.Capacity": "gpu",
    "estimator.questions.CaseFilesWithErrors": "",
    "estimator.questions.Defaults": "keys",
    "estimator.grid.Axes": "models counts gpus tasks tokens offloads loras",
    "estimator.questions.Exported": "extension_version",
    "estimator.questions.Fit": "gpu task sizes counts config",
    "estimator.questions.Grid": "axes config",
    "estimator.questions.Lengths": "asked responses",
    "estimator.questions.ModelEstimate": "model gpus gpu config version",
    "estimator.questions.RecordedRun": "run",
    "estimator.questions.RunEstimate": "run",
    "estimator.questions.RunSavings": "run",
    "estimator.questions.Savings": "asked",
    "estimator.questions.SizeModels": "sizes",
    "memory.questions.AsPrinted": "name",
    "memory.questions.Assumed": "",
    "memory.questions.Configured": "name",
    "memory.questions.Entries": "section",
    "memory.questions.FilesWithErrors": "",
    "memory.questions.IsName": "text",
    "memory.questions.KeyProblem": "key",
    "memory.questions.Memory": "name gpus batch_size sequence_length steps",
    "memory.questions.Names": "section",
    "memory.questions.OwnModels": "",
    "memory.questions.RemarksOn": "subjects",
    "memory.questions.Required": "name",
    "memory.questions.SharingSteps": "",
    "memory.questions.Value": "text",
    "uses.ConfigUse": "name",
    "uses.EntriesUse": "kind names",
    "uses.ExtensionUse": "",
    "uses.FigureUse": "name",
    "uses.KnownUse": "name value",
    "uses.ObjectUse": "kind name target",
    "uses.RunsUse": "query",
    "objects.Shown": "anchor title group",
}

ENV_VERSION = 5
#: By class: the attributes of ours, and those that say what a reference is to.
NODES = {
    "pending_xref": "std:ref verl:gpu verl:model verl:run verl:size verl_contribute verl_name verl_optional verl_row",
    "verl_marks": "remarks",
    "verl_remarks": "remarks",
    "verl_runs": "columns computed details runs",
}


def test_what_the_domain_keeps():
    own = [use for use in get_args(uses.Use) if use.__module__ == uses.__name__]
    kept = [*own, *Question.__subclasses__(), *EstimatorQuestion.__subclasses__(), RunQuery, Diagnostic, Axes]
    found = {
        f"{kind.__module__}.{kind.__name__}".removeprefix("sphinx_verl_resources."): " ".join(
            item.name for item in fields(kind)
        )
        for kind in kept
    }
    found["objects.Shown"] = " ".join(Target._fields)
    found[""] = " ".join(sorted(domain.VerlDomain.initial_data))
    assert (domain.VerlDomain.data_version, found) == (DATA_VERSION, DATA)


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
