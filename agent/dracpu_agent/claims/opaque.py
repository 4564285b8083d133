"""Reads opaque parameters as those of all drivers are read: a claim and its DeviceClass may both set some, for all of
the claim's requests or for some of them. Parameters that are not understood are refused, and never ignored.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, Self, TypeVar

from dracpu_agent.errors import ClaimError
from dracpu_api import names

OURS: Final = f"{names.API_GROUP}/{names.API_VERSION}"  # the apiVersion of parameters in our own form
FROM_CLASS: Final = "FromClass"
FROM_CLAIM: Final = "FromClaim"


class ParametersError(ClaimError):
    """Invalid parameters of a claim or its DeviceClass."""


class Parameters(Protocol):
    """The parameters of one request; None where nothing is set."""

    def with_defaults(self, defaults: Self) -> Self:
        """These parameters, completed with defaults where they are None."""


P = TypeVar("P", bound=Parameters)


def merged(request: str, configs: Iterable[Mapping[str, Any]], nothing: P, read: Callable[[object, str], P]) -> P:
    """The parameters of one request from the allocation's config entries for one driver: those of the claim override
    those of its class, field by field. `read` reads one entry's parameters, which come from the claim or its class."""
    found = {FROM_CLASS: nothing, FROM_CLAIM: nothing}
    for config in configs:
        if not concerns(config.get("requests") or (), request):
            continue
        source = str(config.get("source"))
        if source not in found:
            raise ParametersError(f"request {request}: this driver does not support the config source {source}")
        found[source] = read(config["opaque"].get("parameters"), source).with_defaults(found[source])
    return found[FROM_CLAIM].with_defaults(found[FROM_CLASS])


def concerns(named: Iterable[str], request: str) -> bool:
    """True if a config or constraint with these request names applies to the request. No names mean every request; the
    name of a request includes its sub-requests."""
    named = tuple(named)
    return not named or request in named or request.partition("/")[0] in named


def as_object(parameters: object, driver: str) -> Mapping[str, Any]:
    """The parameters, which must be an object."""
    if not isinstance(parameters, Mapping):
        raise ParametersError(f"the parameters for driver {driver} must be an object, got {parameters!r}")
    return parameters


def check_kind(parameters: Mapping[str, Any], kind: str) -> None:
    """Refuses parameters of another kind."""
    if parameters.get("kind") != kind:
        raise ParametersError(f"parameters.kind must be {kind}, got {parameters.get('kind')!r}")


def refuse_unknown(value: Mapping[str, Any], known: Iterable[str], path: str) -> None:
    """Refuses the first field that is not known."""
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise ParametersError(f"{path}.{unknown[0]} is an unknown field; known fields are {', '.join(known)}")
