"""Reads the opaque parameters with which a claim or its DeviceClass influences the choice of CPUs.

There are two forms, that of the Go driver (`cpuConfig`) and ours (`CpuClaimParameters`). A claim's parameters override
those of its class, field by field. Unknown fields are refused, so that a typo is reported and not ignored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dracpu_agent.errors import ClaimError
from dracpu_api import names
from dracpu_api.cpuset import CpuSet, CpuSetError
from dracpu_api.settings import Allocation, Strategy

_OURS = f"{names.API_GROUP}/{names.API_VERSION}"
_THEIRS = "v1alpha1"


class ParametersError(ClaimError):
    """Invalid parameters of a claim or its DeviceClass."""


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
    merged = {"FromClass": ClaimParameters(), "FromClaim": ClaimParameters()}
    for config in configs:
        if not concerns(config.get("requests") or (), request):
            continue
        source = str(config.get("source"))
        if source not in merged:
            raise ParametersError(f"request {request}: this driver does not support the config source {source}")
        parameters = read_parameters(config["opaque"].get("parameters"))
        if source == "FromClass" and parameters.cpuset is not None:
            raise ParametersError(
                f'request {request}: its DeviceClass sets the cpuset "{parameters.cpuset}" for all claims: set it in '
                "the claim instead"
            )
        merged[source] = parameters.with_defaults(merged[source])
    return merged["FromClaim"].with_defaults(merged["FromClass"])


def read_parameters(parameters: object) -> ClaimParameters:
    """Reads parameters of either form."""
    if not isinstance(parameters, Mapping):
        raise ParametersError(f"the parameters for driver {names.DRIVER} must be an object, got {parameters!r}")
    version = parameters.get("apiVersion")
    if version == _THEIRS:
        _refuse_unknown(parameters, ("apiVersion", "kind", "cpuConfig"), "parameters")
        inner = parameters.get("cpuConfig")
        if not isinstance(inner, Mapping):
            raise ParametersError('parameters.cpuConfig must be an object like {"cpuset": "0-3"}')
        _refuse_unknown(inner, ("cpuset",), "parameters.cpuConfig")
        return ClaimParameters(cpuset=_cpuset(inner, "parameters.cpuConfig"))
    if version == _OURS:
        allowed = ("apiVersion", "kind", "cpuset", "strategy", "fullCores", "preferUncoreCache")
        _refuse_unknown(parameters, allowed, "parameters")
        if parameters.get("kind") != "CpuClaimParameters":
            raise ParametersError(f"parameters.kind must be CpuClaimParameters, got {parameters.get('kind')!r}")
        return ClaimParameters(
            cpuset=_cpuset(parameters, "parameters"),
            strategy=_strategy(parameters.get("strategy")),
            full_cores=_flag(parameters, "fullCores"),
            prefer_uncore_cache=_flag(parameters, "preferUncoreCache"),
        )
    raise ParametersError(f'parameters.apiVersion must be "{_OURS}" or "{_THEIRS}", got {version!r}')


def concerns(named: Iterable[str], request: str) -> bool:
    """True if a config or constraint with these request names applies to the request. No names mean every request; the
    name of a request includes its sub-requests."""
    named = tuple(named)
    return not named or request in named or request.partition("/")[0] in named


def _refuse_unknown(value: Mapping[str, Any], known: Iterable[str], path: str) -> None:
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise ParametersError(f"{path}.{unknown[0]} is an unknown field; known fields are {', '.join(known)}")


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
