"""Opaque parameters: what a claim or its DeviceClass says of the CPUs it wants, beyond their number.

Two forms are read, that of the Go driver (`cpuConfig`) and ours (`CpuClaimParameters`). A claim's word wins over its
class's, field by field; a field that is not known is an error, for a misspelt wish is not a wish granted.
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
    """Parameters that cannot be followed."""


@dataclass(frozen=True, slots=True)
class ClaimParameters:
    """What was said; None where the node's settings decide."""

    cpuset: CpuSet | None = None
    strategy: Strategy | None = None
    full_cores: bool | None = None
    prefer_uncore_cache: bool | None = None

    def over(self, other: "ClaimParameters") -> "ClaimParameters":
        """These, and the other's where these say nothing."""
        return ClaimParameters(
            cpuset=other.cpuset if self.cpuset is None else self.cpuset,
            strategy=self.strategy or other.strategy,
            full_cores=other.full_cores if self.full_cores is None else self.full_cores,
            prefer_uncore_cache=(
                other.prefer_uncore_cache if self.prefer_uncore_cache is None else self.prefer_uncore_cache
            ),
        )

    def document(self) -> list[str | bool | None]:
        """These, for comparison with what was said at another time."""
        cpuset = None if self.cpuset is None else str(self.cpuset)
        return [cpuset, self.strategy, self.full_cores, self.prefer_uncore_cache]

    def applied_to(self, node: Allocation) -> Allocation:
        """The node's settings with these on top."""
        return Allocation(
            strategy=self.strategy or node.strategy,
            full_cores=node.full_cores if self.full_cores is None else self.full_cores,
            prefer_uncore_cache=(
                node.prefer_uncore_cache if self.prefer_uncore_cache is None else self.prefer_uncore_cache
            ),
        )


def parameters_for(request: str, configs: Iterable[Mapping[str, Any]]) -> ClaimParameters:
    """What the allocation's config entries for our driver say of one request, class entries under claim entries."""
    merged = {"FromClass": ClaimParameters(), "FromClaim": ClaimParameters()}
    for config in configs:
        if not concerns(config.get("requests") or (), request):
            continue
        source = str(config.get("source"))
        if source not in merged:
            raise ParametersError(f"request {request}: the config's source {source} is not known to this driver")
        said = read_parameters(config["opaque"].get("parameters"))
        if source == "FromClass" and said.cpuset is not None:
            raise ParametersError(
                f'request {request}: its DeviceClass names the cpuset "{said.cpuset}", which all its claims would '
                "share: name it in the claim"
            )
        merged[source] = said.over(merged[source])
    return merged["FromClaim"].over(merged["FromClass"])


def read_parameters(parameters: object) -> ClaimParameters:
    """Reads either form."""
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
    """Whether a config or a constraint that names these requests is about this one. No name means every request; a
    request's name stands for all its sub-requests."""
    named = tuple(named)
    return not named or request in named or request.partition("/")[0] in named


def _refuse_unknown(value: Mapping[str, Any], known: Iterable[str], path: str) -> None:
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise ParametersError(f"{path}.{unknown[0]} is not known; known are {', '.join(known)}")


def _cpuset(value: Mapping[str, Any], path: str) -> CpuSet | None:
    text = value.get("cpuset")
    if text is None or text == "":
        return None
    if not isinstance(text, str):
        raise ParametersError(f'{path}.cpuset must be a text like "0-3,8", got {text!r}')
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
