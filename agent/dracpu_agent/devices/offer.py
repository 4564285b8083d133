"""The input of both modes: the settings, and the CPUs that cannot be offered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dracpu_agent.devices.device import Capacity, Taint
from dracpu_api.cpuset import EMPTY, CpuSet, union
from dracpu_api.settings import Settings


@dataclass(frozen=True)
class Offer:
    """The node's side of publishing."""

    settings: Settings
    reserved: CpuSet
    held: Mapping[str, CpuSet]  # device name -> CPUs that claims hold through it, whatever the mode was then
    taints: tuple[Taint, ...] = ()
    beside: Mapping[str, tuple[Capacity, ...]] = field(default_factory=dict)  # device name -> capacities beside CPUs

    @cached_property
    def all_held(self) -> CpuSet:
        """Every CPU that a claim holds."""
        return union(self.held.values())

    def held_through(self, device: str) -> CpuSet:
        """CPUs held through this device, which the scheduler counts by itself."""
        return self.held.get(device, EMPTY)

    def held_by_others(self, device: str) -> CpuSet:
        """CPUs held through other devices, which the scheduler cannot count against this device."""
        return self.all_held - self.held_through(device)
