"""Reads an object as the API server would, and says in one line each what is wrong with it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dracpu_api.objects.models import CpuDriverConfig, CpuNode

_MODELS: Final = {model.__name__: model for model in (CpuDriverConfig, CpuNode)}


class InvalidObjectError(ValueError):
    """An object that must not be written; `problems` has one line for each thing to put right."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def parse(document: object) -> CpuDriverConfig | CpuNode:
    """A CpuDriverConfig or a CpuNode from its decoded YAML or JSON; raises InvalidObjectError."""
    kind = document.get("kind") if isinstance(document, Mapping) else None
    if kind not in _MODELS:
        raise InvalidObjectError([f"kind must be {' or '.join(_MODELS)}, got {kind!r}"])
    try:
        # snake_case is for constructors in Python; in a file it is a misspelling
        return _MODELS[kind].model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise InvalidObjectError(list(dict.fromkeys(_line(document, detail) for detail in details))) from error


def _line(document: object, detail: ErrorDetails) -> str:
    unknown = detail["type"] == "extra_forbidden"
    message = "unknown field: misspelt, or made for a newer version" if unknown else detail["msg"]
    return f"{_path(document, detail['loc'])}: {message}"


def _path(document: Any, location: Sequence[int | str]) -> str:
    """`spec.nodeSelector.matchExpressions[0].key`; stops at the value (pydantic goes on to name the types it tried)."""
    path, value = "", document
    for step in location:
        if isinstance(value, Mapping):
            path, value = f"{path}.{step}", value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            path, value = f"{path}[{step}]", value[step] if step < len(value) else None
        else:
            break
    return path.removeprefix(".")
