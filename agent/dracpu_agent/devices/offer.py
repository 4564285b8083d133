"""What both modes need to know before they offer anything: the settings, and which CPUs are spoken for."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from dracpu_agent.devices.device import Taint
from dracpu_api.cpuset import EMPTY, CpuSet, union
from dracpu_api.settings import Settings


@dataclass(frozen=True)
class Offer:
    """The node's side of publishing."""

    settings: Settings
    reserved: CpuSet
    held: Mapping[str, CpuSet]  # device name -> CPUs that claims hold through it, whatever the mode was then
    taints: tuple[Taint, ...] = ()

    @cached_property
    def all_held(self) -> CpuSet:
        """Every CPU that a claim holds."""
        return union(self.held.values())

    def held_through(self, device: str) -> CpuSet:
        """CPUs held through this device: the scheduler counts them by itself."""
        return self.held.get(device, EMPTY)

    def held_by_others(self, device: str) -> CpuSet:
        """CPUs held through devices of another name: the scheduler cannot count those against this device."""
        return self.all_held - self.held_through(device)
