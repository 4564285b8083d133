"""How the node's CPUs are divided between its containers, and what else limits them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dracpu_agent.placement.container import AtCreation, Container, Limits, Resources
from dracpu_agent.placement.proof import Use
from dracpu_agent.placement.sharing import Sharer
from dracpu_api.cpuset import EMPTY, CpuSet, union


def no_limits(_container: Container, _uses: frozenset[Use]) -> Limits:
    """The limits of containers where no driver limits any."""
    return ()


def admit_all(_container: Container, _uses: frozenset[Use], _sharers: Sequence[Sharer]) -> None:
    """Accepts every container where no driver restricts who shares a claim."""


def nothing_else(_container: Container, _uses: frozenset[Use]) -> AtCreation:
    """The result where no driver gives a container anything at its creation."""
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

    def resources_of(self, container: Container, uses: frozenset[Use]) -> Resources:
        """The CPUs and limits that a container can be sent now."""
        return Resources(self.cpus_of(uses), self.limits_of(container, uses))

    def claimed_limits(self, container: Container, uses: frozenset[Use]) -> Limits:
        """The limits that a container with claims must have; none for a container without claims."""
        return self.limits_of(replace(container, is_new=True), uses) if uses else ()

    def cpus_of(self, uses: frozenset[Use]) -> CpuSet:
        """The CPUs of its claims that are online; a container without any runs on the shared CPUs."""
        if not uses:
            return self.shared
        return (self.held_by(uses) & self.online) or self.shared

    def held_by(self, uses: frozenset[Use]) -> CpuSet:
        """The CPUs that these uses of claims have, online or not."""
        return union(self.granted.get(use.cdi_device, EMPTY) for use in uses)
