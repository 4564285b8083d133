"""Validates an object as the API server would, and reports each problem as one line.

An unknown field in a user's file is a typo. In an object that the API server has stored, it is a field of a newer
version, whose CRD is there already.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dracpu_api.objects.models import CpuDriverConfig, CpuDriverConfigSpec, CpuNode
from dracpu_api.resources import CONFIGS

_MODELS: Final = {model.__name__: model for model in (CpuDriverConfig, CpuNode)}


class InvalidObjectError(ValueError):
    """An object that is not valid; `problems` has one line for each thing to correct."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def parse(document: object) -> CpuDriverConfig | CpuNode:
    """Returns a CpuDriverConfig or a CpuNode from its decoded YAML or JSON; raises InvalidObjectError, also for unknown
    fields."""
    kind = document.get("kind") if isinstance(document, Mapping) else None
    if kind not in _MODELS:
        raise InvalidObjectError([f"kind must be {' or '.join(_MODELS)}, got {kind!r}"])
    try:
        # not by name: snake_case is for constructors in Python, and a typo in a file
        return _MODELS[kind].model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise InvalidObjectError(list(dict.fromkeys(_line(document, detail) for detail in details))) from error


def parse_stored_config(spec: Mapping[str, Any]) -> CpuDriverConfigSpec:
    """Returns the spec of a CpuDriverConfig that the API server has stored, without the fields that are unknown to this
    version; raises InvalidObjectError.

    Unknown fields of nodeSelector are an error: without them it would select other nodes.
    """
    document = {"apiVersion": CONFIGS.api_version, "kind": CONFIGS.kind, "spec": copy.deepcopy(spec)}
    try:
        CpuDriverConfig.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            if detail["type"] == "extra_forbidden" and "nodeSelector" not in detail["loc"]:
                _remove(document, detail["loc"])
        _remove_emptied(document["spec"])
    config = parse(document)
    assert isinstance(config, CpuDriverConfig)
    return config.spec


def _remove(document: Any, location: Sequence[int | str]) -> None:
    *parents, name = location
    for step in parents:
        document = document[step]
    document.pop(name, None)


def _remove_emptied(spec: Any) -> None:
    """Removes entries about reserved memory of which every amount was unknown: the NUMA node alone is not valid."""
    memory = spec.get("memory")
    reserved = memory.get("reserved") if isinstance(memory, Mapping) else None
    if isinstance(reserved, list):
        reserved[:] = [entry for entry in reserved if not isinstance(entry, Mapping) or entry.keys() != {"numaNode"}]


def _line(document: object, detail: ErrorDetails) -> str:
    unknown = detail["type"] == "extra_forbidden"
    message = "unknown field: misspelt, or made for a newer version" if unknown else detail["msg"]
    return f"{_path(document, detail['loc'])}: {message}"


def _path(document: Any, location: Sequence[int | str]) -> str:
    """The path of a field, such as `spec.nodeSelector.matchExpressions[0].key`. It ends at the value, where pydantic's
    location continues with the types that were tried."""
    path, value = "", document
    for step in location:
        if isinstance(value, Mapping):
            path, value = f"{path}.{step}", value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            path, value = f"{path}[{step}]", value[step] if step < len(value) else None
        else:
            break
    return path.removeprefix(".")
