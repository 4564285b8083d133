"""Decides about the things that containers with claims of memory get only at their creation, as nothing can change them
later: the NUMA nodes that they prefer, and file systems of hugepages.
"""

from collections.abc import Callable, Mapping, Sequence

from dracpu_agent.memory.binding import Part, check_mounts, is_strict, mount_options, page_mounts, preferred_nodes
from dracpu_agent.memory.existing import MEMS
from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.placement.container import AtCreation, Container, Mount


class MemoryCreation:
    """Decides this from the claims of a container. `inventory` returns the memory of the machine."""

    def __init__(self, inventory: Callable[[], Inventory]) -> None:
        self._inventory = inventory
        self._parts_of_devices: Mapping[str, Sequence[Part]] = {}

    def follow(self, parts_of_devices: Mapping[str, Sequence[Part]]) -> None:
        """Takes over the memory that each CDI device gives a container now."""
        self._parts_of_devices = parts_of_devices

    def unbound(self, limits: Mapping[str, str], devices: frozenset[str]) -> dict[str, str]:
        """The limits of a container with these CDI devices, without a binding where it only prefers its nodes."""
        strict = is_strict(self._parts(devices))
        return {file: content for file, content in limits.items() if strict or file != MEMS}

    def of(self, container: Container, devices: frozenset[str]) -> AtCreation:
        """The preferred nodes and the mounts of a container that has these CDI devices; raises PlacementError."""
        if not devices:
            return AtCreation()
        mounts = page_mounts(self._parts_of_devices.get(device, ()) for device in sorted(devices))
        check_mounts(container.name, mounts, container.mounted, in_user_namespace=container.in_user_namespace)
        bound = container.bound_nodes  # for example by the kubelet's memory manager
        allowed = [numa for numa in self._inventory().by_numa if not bound or numa in bound]
        return AtCreation(
            preferred_nodes(self._parts(devices), allowed),
            tuple(Mount(mount.path, "hugetlbfs", "nodev", mount_options(mount)) for mount in mounts),
        )

    def _parts(self, devices: frozenset[str]) -> Sequence[Part]:
        return [part for device in devices for part in self._parts_of_devices.get(device, ())]
