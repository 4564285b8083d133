"""Reads the opaque parameters with which a claim or its DeviceClass decides how a container gets its memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dracpu_agent.claims import opaque
from dracpu_agent.claims.opaque import OURS, ParametersError
from dracpu_agent.memory.binding import Binding, problem_of_path
from dracpu_api.names import MEMORY

_KIND = "MemoryClaimParameters"


@dataclass(frozen=True, slots=True)
class MemoryParameters:
    """The parameters of one request; None where nothing is set."""

    binding: Binding | None = None
    mount: str | None = None  # "": nowhere, also where the class has a path

    def with_defaults(self, defaults: "MemoryParameters") -> "MemoryParameters":
        """These parameters, completed with defaults where they are None."""
        return MemoryParameters(self.binding or defaults.binding, defaults.mount if self.mount is None else self.mount)


def memory_parameters_for(request: str, configs: Iterable[Mapping[str, Any]]) -> MemoryParameters:
    """The parameters of one request from the allocation's config entries for the driver of memory."""
    return opaque.merged(request, configs, MemoryParameters(), lambda value, _source: read_memory_parameters(value))


def read_memory_parameters(value: object) -> MemoryParameters:
    """Reads parameters."""
    parameters = opaque.as_object(value, MEMORY.driver)
    if parameters.get("apiVersion") != OURS:
        raise ParametersError(f'parameters.apiVersion must be "{OURS}", got {parameters.get("apiVersion")!r}')
    opaque.check_kind(parameters, _KIND)
    opaque.refuse_unknown(parameters, ("apiVersion", "kind", "binding", "mount"), "parameters")
    return MemoryParameters(_binding(parameters.get("binding")), _mount(parameters.get("mount")))


def _binding(value: object) -> Binding | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or value not in set(Binding):
        raise ParametersError(f"parameters.binding must be one of {', '.join(Binding)}, got {value!r}")
    return Binding(value)


def _mount(value: object) -> str | None:
    if value is None or value == "":
        return value if isinstance(value, str) else None
    if not isinstance(value, str):
        raise ParametersError(f'parameters.mount must be a path like "/dev/hugepages", got {value!r}')
    if problem := problem_of_path(value):
        raise ParametersError(f'parameters.mount: no hugepages can be mounted at "{value[:200]}": {problem}')
    return value
