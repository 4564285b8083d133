"""How the node's CPUs are divided between its containers, and what else limits them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dracpu_agent.placement.container import AtCreation, Container, Limits
from dracpu_agent.placement.proof import Use
from dracpu_agent.placement.sharing import Sharer
from dracpu_api.cpuset import CpuSet


def no_limits(_container: Container, _uses: frozenset[Use]) -> Limits:
    """The limits of containers where no driver limits any."""
    return ()


def admit_all(_container: Container, _uses: frozenset[Use], _sharers: Sequence[Sharer]) -> None:
    """Accepts every container where no driver restricts who shares a claim."""


def nothing_else(_container: Container, _uses: frozenset[Use]) -> AtCreation:
    """What containers get at their creation where no driver gives them anything then."""
    return AtCreation()


@dataclass(frozen=True, slots=True)
class Division:
    """How the node's CPUs are divided at this moment, and what limits its containers besides."""

    online: CpuSet
    shared: CpuSet  # for containers without claims; empty only when claims hold every CPU that is online
    granted: Mapping[str, CpuSet]  # CDI device -> CPUs, of every held claim
    exclusive: CpuSet  # every CPU that a claim holds
    limits_of: Callable[[Container, frozenset[Use]], Limits] = no_limits
    limits_revision: int = 0  # grows when `limits_of` may return something else
    admit: Callable[[Container, frozenset[Use], Sequence[Sharer]], None] = admit_all  # raises PlacementError
    at_creation: Callable[[Container, frozenset[Use]], AtCreation] = nothing_else  # raises PlacementError

    def pins(self, uses: frozenset[Use]) -> bool:
        """True where one of these uses has CPUs; those of claims of other drivers have none."""
        return any(use.cdi_device in self.granted for use in uses)
