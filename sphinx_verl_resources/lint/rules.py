"""All rules, in the order in which they are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..diagnostics import Code, Severity
from . import file_rules, registry_rules, repository_rules, run_rules, tree_rules
from .rule import Finding, Rule, each_file, each_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .tree import CheckContext

_ERROR, _WARNING = Severity.ERROR, Severity.WARNING


def _found_elsewhere(tree: CheckContext) -> Iterator[Finding]:
    """Nothing more: the catalog reports it, in builds too, or whoever reads the exceptions."""
    return iter(())


RULES: tuple[Rule, ...] = (
    Rule(Code.schema_line, "file", _WARNING, each_file(file_rules.schema_line), "yes"),
    Rule(Code.field_order, "file", _WARNING, each_file(file_rules.field_order), "yes"),
    Rule(Code.unquoted_version, "file", _WARNING, each_file(file_rules.unquoted_version), "yes"),
    Rule(Code.repeated_text, "file", _WARNING, each_file(file_rules.repeated_text), "yes"),
    Rule(Code.id_mismatch, "file", _ERROR, _found_elsewhere, "yes"),
    Rule(Code.gpu_count, "run", _ERROR, each_run(run_rules.gpu_count)),
    Rule(Code.impossible_settings, "run", _ERROR, each_run(run_rules.impossible_settings)),
    Rule(Code.peak_above_capacity, "run", _ERROR, each_run(run_rules.peak_above_capacity)),
    Rule(Code.future_date, "run", _ERROR, each_run(run_rules.future_date)),
    Rule(Code.no_evidence, "run", _WARNING, each_run(run_rules.no_evidence)),
    Rule(Code.no_date, "run", _WARNING, each_run(run_rules.no_date)),
    Rule(Code.no_version, "run", _WARNING, each_run(run_rules.no_version)),
    Rule(Code.moving_ref, "run", _WARNING, each_run(run_rules.moving_ref), "with-repository"),
    Rule(Code.unknown_ref, "run", _ERROR, each_run(repository_rules.unknown_ref), needs_repository=True),
    Rule(Code.unknown_path, "run", _ERROR, each_run(repository_rules.unknown_path), needs_repository=True),
    Rule(
        Code.script_differs, "run", _WARNING, each_run(repository_rules.script_differs), needs_repository=True
    ),
    Rule(Code.unused_entry, "registry", _WARNING, registry_rules.unused_entry),
    Rule(Code.gpu_memory, "registry", _WARNING, registry_rules.gpu_memory),
    Rule(Code.incomplete_entry, "registry", _WARNING, registry_rules.incomplete_entry),
    Rule(Code.parameter_count, "registry", _WARNING, registry_rules.parameter_count),
    Rule(Code.duplicate_run, "tree", _WARNING, tree_rules.duplicate_run),
    Rule(Code.recommended_below_min, "tree", _WARNING, tree_rules.recommended_below_min),
    Rule(Code.far_from_computed, "tree", _WARNING, tree_rules.far_from_computed),
    Rule(Code.stale_exception, "tree", _ERROR, _found_elsewhere),
    Rule(Code.excused_error, "tree", _ERROR, _found_elsewhere),
)
