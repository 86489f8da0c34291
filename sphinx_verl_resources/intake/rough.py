"""A run whose file is not finished, for the row that it will be and for its estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..catalog.models.run import Contributor, Evidence, Gpus, Infer, Measured, Run, Script, Versions

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARTS: Mapping[str, Any] = {
    "gpus": Gpus,
    "infer": Infer,
    "script": Script,
    "contributor": Contributor,
    "versions": Versions,
    "measured": Measured,
}


def rough_run(fields: Mapping[str, Any]) -> Run:
    """A run of any fields, not checked: what stands as TODO is text wherever it stands.

    >>> rough_run({"id": "a", "gpus": {"count": 2, "type": "TODO"}}).gpus.type
    'TODO'
    """
    made = {
        name: _PARTS[name].model_construct(**value) if name in _PARTS and value is not None else value
        for name, value in fields.items()
    }
    evidence = tuple(Evidence.model_construct(**item) for item in fields.get("evidence", ()))
    return Run.model_construct(**{"settings": {}, "infer": None, **made, "evidence": evidence})
