"""JSON Schemas (draft-07) of the data files, generated from the models.

Draft-07 is the newest draft that YAML language servers support.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .models.analysis import AnalysisFile
from .models.architecture import ArchitectureFile
from .models.case import CaseFile
from .models.registries import AccuracyFile, ConfigKeyFile, GpuFile
from .models.run import Run

if TYPE_CHECKING:
    from pydantic import BaseModel

MODELS: dict[str, type[BaseModel]] = {
    "run": Run,
    "cases": CaseFile,
    "gpus": GpuFile,
    "architectures": ArchitectureFile,
    "analysis": AnalysisFile,
    "config_keys": ConfigKeyFile,
    "accuracy": AccuracyFile,
}


def schema_texts() -> dict[str, str]:
    """Return the text of the schema for each kind of file; the same on every call."""
    return {kind: json.dumps(schema(model), indent=2) + "\n" for kind, model in MODELS.items()}


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the draft-07 schema of a model."""
    generated = model.model_json_schema(ref_template="#/definitions/{model}")
    definitions = generated.pop("$defs", {})
    result = {"$schema": "http://json-schema.org/draft-07/schema#", **generated}
    if definitions:
        result["definitions"] = definitions
    return _wrap_references(result)  # type: ignore[no-any-return]


def _wrap_references(value: Any) -> Any:
    """Move references into ``allOf``, because draft-07 ignores descriptions next to a ``$ref``."""
    if isinstance(value, list):
        return [_wrap_references(item) for item in value]
    if not isinstance(value, dict):
        return value
    wrapped = {key: _wrap_references(item) for key, item in value.items()}
    if "$ref" in wrapped and len(wrapped) > 1:
        wrapped["allOf"] = [{"$ref": wrapped.pop("$ref")}]
    return wrapped
