"""Reads the opaque parameters with which a claim or its DeviceClass influences the choice of CPUs.

There are two forms, that of the Go driver (`cpuConfig`) and ours (`CpuClaimParameters`). A claim's parameters override
those of its class, field by field. Unknown fields are refused, so that a typo is reported and not ignored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dracpu_agent.claims import opaque
from dracpu_agent.claims.opaque import OURS, ParametersError
from dracpu_api import names
from dracpu_api.cpuset import CpuSet, CpuSetError
from dracpu_api.settings import Allocation, Strategy

_THEIRS = "v1alpha1"


@dataclass(frozen=True, slots=True)
class ClaimParameters:
    """The parameters of one request; None where the node's settings apply."""

    cpuset: CpuSet | None = None
    strategy: Strategy | None = None
    full_cores: bool | None = None
    prefer_uncore_cache: bool | None = None

    def with_defaults(self, defaults: "ClaimParameters") -> "ClaimParameters":
        """These parameters, completed with defaults where they are None."""
        return ClaimParameters(
            cpuset=defaults.cpuset if self.cpuset is None else self.cpuset,
            strategy=self.strategy or defaults.strategy,
            full_cores=defaults.full_cores if self.full_cores is None else self.full_cores,
            prefer_uncore_cache=(
                defaults.prefer_uncore_cache if self.prefer_uncore_cache is None else self.prefer_uncore_cache
            ),
        )

    def as_json(self) -> list[str | bool | None]:
        """The values for the digest of an allocation."""
        cpuset = None if self.cpuset is None else str(self.cpuset)
        return [cpuset, self.strategy, self.full_cores, self.prefer_uncore_cache]

    def applied_to(self, node: Allocation) -> Allocation:
        """The node's settings, overridden by these parameters."""
        return Allocation(
            strategy=self.strategy or node.strategy,
            full_cores=node.full_cores if self.full_cores is None else self.full_cores,
            prefer_uncore_cache=(
                node.prefer_uncore_cache if self.prefer_uncore_cache is None else self.prefer_uncore_cache
            ),
        )


def parameters_for(request: str, configs: Iterable[Mapping[str, Any]]) -> ClaimParameters:
    """The parameters of one request from the allocation's config entries for our driver."""

    def read(parameters: object, source: str) -> ClaimParameters:
        found = read_parameters(parameters)
        if source == opaque.FROM_CLASS and found.cpuset is not None:
            raise ParametersError(
                f'request {request}: its DeviceClass sets the cpuset "{found.cpuset}" for all claims: set it in '
                "the claim instead"
            )
        return found

    return opaque.merged(request, configs, ClaimParameters(), read)


def read_parameters(value: object) -> ClaimParameters:
    """Reads parameters of either form."""
    parameters = opaque.as_object(value, names.DRIVER)
    version = parameters.get("apiVersion")
    if version == _THEIRS:
        opaque.refuse_unknown(parameters, ("apiVersion", "kind", "cpuConfig"), "parameters")
        inner = parameters.get("cpuConfig")
        if not isinstance(inner, Mapping):
            raise ParametersError('parameters.cpuConfig must be an object like {"cpuset": "0-3"}')
        opaque.refuse_unknown(inner, ("cpuset",), "parameters.cpuConfig")
        return ClaimParameters(cpuset=_cpuset(inner, "parameters.cpuConfig"))
    if version == OURS:
        allowed = ("apiVersion", "kind", "cpuset", "strategy", "fullCores", "preferUncoreCache")
        opaque.refuse_unknown(parameters, allowed, "parameters")
        opaque.check_kind(parameters, "CpuClaimParameters")
        return ClaimParameters(
            cpuset=_cpuset(parameters, "parameters"),
            strategy=_strategy(parameters.get("strategy")),
            full_cores=_flag(parameters, "fullCores"),
            prefer_uncore_cache=_flag(parameters, "preferUncoreCache"),
        )
    raise ParametersError(f'parameters.apiVersion must be "{OURS}" or "{_THEIRS}", got {version!r}')


def _cpuset(value: Mapping[str, Any], path: str) -> CpuSet | None:
    text = value.get("cpuset")
    if text is None or text == "":
        return None
    if not isinstance(text, str):
        raise ParametersError(f'{path}.cpuset must be a string like "0-3,8", got {text!r}')
    try:
        return CpuSet.parse(text)
    except CpuSetError as error:
        raise ParametersError(f"{path}.cpuset: {error}") from error


def _strategy(value: object) -> Strategy | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or value not in set(Strategy):
        raise ParametersError(f"parameters.strategy must be one of {', '.join(Strategy)}, got {value!r}")
    return Strategy(value)


def _flag(value: Mapping[str, Any], name: str) -> bool | None:
    flag = value.get(name)
    if flag is not None and not isinstance(flag, bool):
        raise ParametersError(f"parameters.{name} must be true or false, got {flag!r}")
    return flag
