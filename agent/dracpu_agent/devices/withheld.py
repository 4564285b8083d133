"""Which core is withheld for the system where the settings reserve no CPU that is online.

Shared containers fall back on it when claims hold everything else, so there should always be one. It is the lowest
core. When that goes offline another takes its place, never one that claims hold, as soon as there is one; when it
comes back, it is withheld again: no claim has been offered it meanwhile.
"""

from dataclasses import dataclass

from dracpu_agent.errors import SettingsRefusedError
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.settings import Settings


@dataclass(frozen=True, slots=True)
class Withheld:
    """The withheld core. It has no effect while the settings reserve a CPU that is online."""

    core: CpuSet  # threads of one core, some of them perhaps offline

    @classmethod
    def at_first_start(cls, topology: Topology, taken: CpuSet = EMPTY) -> "Withheld":
        """On a node without a checkpoint; `taken` are the CPUs of claims that were recovered in another way."""
        return cls(_lowest_free_core(topology, taken))

    @classmethod
    def after_restart(cls, core: CpuSet, topology: Topology, taken: CpuSet) -> "Withheld":
        """On a node whose earlier agent withheld this core, if any."""
        return cls(core).replenished(topology, None, taken)

    def cpus(self, topology: Topology, settings: Settings | None) -> CpuSet:
        """The CPUs that are withheld under these settings."""
        return self.core if _withholds(topology, settings) else EMPTY

    def reserved_cpus(self, topology: Topology, settings: Settings | None) -> CpuSet:
        """All CPUs that are not offered: those that the settings reserve, and those that are withheld."""
        return (settings.reserved_cpus if settings else EMPTY) | self.cpus(topology, settings)

    def after_hotplug(
        self, former: Topology, topology: Topology, settings: Settings | None, taken: CpuSet
    ) -> "Withheld":
        """After CPUs came or went; `taken` are held by claims, or kept for them."""
        core = self.cpus(former, settings)
        new = topology.online - former.online - taken
        for threads in topology.cores.values():
            if not threads.isdisjoint(core):
                return Withheld(core | (threads & new))
            if threads <= new:
                return Withheld(threads)
        return Withheld(core).replenished(topology, settings, taken)

    def replenished(self, topology: Topology, settings: Settings | None, taken: CpuSet) -> "Withheld":
        """Another core, where nothing is left of this one and a free core exists."""
        if not _withholds(topology, settings) or not (self.core & topology.online) <= taken:
            return self
        return Withheld(_lowest_free_core(topology, taken) or self.core)

    def after_settings(
        self, topology: Topology, former: Settings | None, settings: Settings | None, taken: CpuSet
    ) -> "Withheld":
        """After the settings changed: a core that begins to be withheld is one that no claim holds."""
        return Withheld(self.cpus(topology, former)).replenished(topology, settings, taken)

    def check(self, topology: Topology, settings: Settings, former: Settings | None, held: CpuSet) -> None:
        """Refuses settings that reserve CPUs which do not exist, or leave nothing to offer or to share. The CPUs that
        `former` reserved already are accepted, whatever has gone offline since."""
        if missing := settings.reserved_cpus - topology.present:
            raise SettingsRefusedError(
                f'reservedCPUs names CPU {missing}, which the node does not have: its CPUs are "{topology.present}"'
            )
        if former is not None and former.reserved_cpus == settings.reserved_cpus:
            return
        online, reserved = topology.online, self.reserved_cpus(topology, settings)
        if online <= reserved:
            raise SettingsRefusedError(f'reservedCPUs "{reserved}" leaves no CPU of the node ("{online}") to offer')
        if (reserved & online) <= held:
            raise SettingsRefusedError(
                f'reservedCPUs "{reserved}" leaves nothing to share on the node: containers without claims fall back '
                "on reserved CPUs, and these are offline or held by claims"
            )


def _withholds(topology: Topology, settings: Settings | None) -> bool:
    return settings is None or settings.reserved_cpus.isdisjoint(topology.online)


def _lowest_free_core(topology: Topology, taken: CpuSet) -> CpuSet:
    """The lowest core that no claim uses; the free threads of the lowest core where claims use a part of each."""
    free = [threads - taken for threads in topology.cores.values()]
    whole = (left for left, threads in zip(free, topology.cores.values(), strict=True) if left == threads)
    return next(whole, EMPTY) or next(filter(None, free), EMPTY)
