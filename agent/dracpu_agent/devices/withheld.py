"""Which CPUs stay with the system: those that the settings reserve and, where none of these is online, a core withheld.

Shared containers fall back on them when claims hold everything else, so there should always be some. The withheld core
is the lowest one. When that goes offline another takes its place, never one that claims hold, as soon as there is one;
when it comes back, it is withheld again: nobody has been offered it meanwhile.
"""

from dataclasses import dataclass

from dracpu_agent.errors import SettingsRefusedError
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.settings import Settings


@dataclass(frozen=True, slots=True)
class Reserve:
    """The reserve of a node as it is now."""

    topology: Topology
    withheld: CpuSet  # threads of one core, some of them perhaps offline; means nothing while settings reserve enough

    @classmethod
    def of(cls, topology: Topology, taken: CpuSet = EMPTY) -> "Reserve":
        """A node that is read for the first time; `taken` by claims of an earlier agent."""
        return cls(topology, _lowest_free_core(topology, taken))

    @classmethod
    def resumed(cls, topology: Topology, withheld: CpuSet, taken: CpuSet) -> "Reserve":
        """A node whose earlier agent withheld these CPUs, if any."""
        return cls(topology, withheld).replenished(None, taken)

    def under(self, settings: Settings | None) -> CpuSet:
        """The CPUs that are not offered under these settings."""
        return (settings.reserved_cpus if settings else EMPTY) | self.withheld_under(settings)

    def withheld_under(self, settings: Settings | None) -> CpuSet:
        """Those of them that the settings do not name."""
        return self.withheld if self._is_withholding(settings) else EMPTY

    def on(self, topology: Topology, taken: CpuSet, settings: Settings | None) -> "Reserve":
        """The same after CPUs came or went; `taken` is held by claims, or kept for them."""
        former = self.withheld_under(settings)
        new = topology.online - self.topology.online - taken
        for threads in topology.cores.values():
            if not threads.isdisjoint(former):
                return Reserve(topology, former | (threads & new))
            if threads <= new:
                return Reserve(topology, threads)
        return Reserve(topology, former).replenished(settings, taken)

    def replenished(self, settings: Settings | None, taken: CpuSet) -> "Reserve":
        """The same, or another core where nothing is left of this one and there is one to be had."""
        if not self._is_withholding(settings) or not (self.withheld & self.topology.online) <= taken:
            return self
        return Reserve(self.topology, _lowest_free_core(self.topology, taken) or self.withheld)

    def going_over(self, former: Settings | None, settings: Settings | None, taken: CpuSet) -> "Reserve":
        """The same when the settings change: a core that comes to be withheld now is one that nobody has."""
        return Reserve(self.topology, self.withheld_under(former)).replenished(settings, taken)

    def _is_withholding(self, settings: Settings | None) -> bool:
        return settings is None or settings.reserved_cpus.isdisjoint(self.topology.online)

    def check(self, settings: Settings, held: CpuSet, *, former: Settings | None) -> None:
        """Refuses settings that name what is not there, or leave nothing to offer or to share. What is in force already
        stays in force, whatever has gone offline since."""
        online, present = self.topology.online, self.topology.present
        if missing := settings.reserved_cpus - present:
            raise SettingsRefusedError(
                f'reservedCPUs names CPU {missing}, which the node does not have: its CPUs are "{present}"'
            )
        if former is not None and former.reserved_cpus == settings.reserved_cpus:
            return
        reserved = self.under(settings)
        if online <= reserved:
            raise SettingsRefusedError(f'reservedCPUs "{reserved}" leaves no CPU of the node ("{online}") to offer')
        if (reserved & online) <= held:
            raise SettingsRefusedError(
                f'reservedCPUs "{reserved}" leaves nothing to share on the node: containers without claims fall back '
                "on reserved CPUs, and these are offline or held by claims"
            )


def _lowest_free_core(topology: Topology, taken: CpuSet) -> CpuSet:
    """What is left of the lowest one where claims have a part of each."""
    free = [threads - taken for threads in topology.cores.values()]
    whole = (left for left, threads in zip(free, topology.cores.values(), strict=True) if left == threads)
    return next(whole, EMPTY) or next(filter(None, free), EMPTY)
