"""Decides which containers may share a claim of memory, and how much each container may use."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from dracpu_agent.errors import PlacementError
from dracpu_agent.memory.existing import permitted
from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.memory.kinds import Kind, Place
from dracpu_agent.memory.limits import memory_limits, page_limits, pages_in
from dracpu_agent.memory.pods import PodPages
from dracpu_agent.placement.container import Container


class MemoryContainers:
    """Decides which containers may use claims of memory, and which limits they get.

    `inventory` returns the memory of the machine as it was read last."""

    def __init__(self, pods: PodPages, inventory: Callable[[], Inventory]) -> None:
        self.sizes_of_devices: Mapping[str, Mapping[Place, int]] = {}  # by CDI device, of every claim that is held
        self._pods = pods
        self._inventory = inventory

    def admit(
        self, container: Container, devices: frozenset[str], others: Sequence[tuple[Container, frozenset[str]]]
    ) -> None:
        """Refuses a container that would share what cannot be shared: no cgroup contains some containers of a pod
        and not the others."""
        if not devices:
            return
        own = self._sizes(devices)
        for other, used in others:
            if other.pod_uid != container.pod_uid:
                raise PlacementError(
                    f"container {container.name} has a claim of memory that pod {other.pod_name} uses: memory serves "
                    "one pod; use a ResourceClaimTemplate, which makes a claim for each pod"
                )
            shared = self._sizes(devices & used)
            if any(not place.kind.is_huge for place in shared):
                raise PlacementError(
                    f"container {container.name} has a request of memory that container {other.name} uses: memory "
                    "serves one running container; give each container a request of its own"
                )
            for page, size in pages_in(shared).items():
                if size < self._pods.claimed(container.pod_uid).get(page, 0):
                    raise PlacementError(
                        f"container {container.name} has a request of {Kind(page)} that container {other.name} uses, "
                        "and the pod has other requests of this size: containers can share a request only if it is the "
                        "pod's only one of its size"
                    )
        missing_nodes = {place.numa for place in own if not place.kind.is_huge}.difference(self._inventory().by_numa)
        if missing_nodes:
            raise PlacementError(
                f"container {container.name} has claims of memory on NUMA nodes that have none any more: "
                f"{', '.join(map(str, sorted(missing_nodes)))}"
            )

    def limits(self, container: Container, devices: frozenset[str]) -> Mapping[str, str]:
        """The limits that claims set in a container's cgroup: all of them for a container that is about to be created,
        otherwise those that it can be sent without harm."""
        wanted = self._wanted(container, devices)
        return wanted if container.is_new else permitted(wanted, dict(container.recorded), started=container.started)

    def _wanted(self, container: Container, devices: frozenset[str]) -> dict[str, str]:
        """The limits that follow from a container's claims and its pod's spec.

        A pod with claims of pages has limits of pages for all of its containers. Each may use what the spec of the pod
        asks for, and its own claims besides. Which container asks for how much of the pod's figure is not known: with
        its default settings, the runtime does not pass on the pages in the spec of a container, and limits them for the
        pod alone. A smaller share could take from a program what its spec has; with this one, containers can take
        from each other what the spec of their pod has, as they can without claims, and never what another one claims.
        """
        sizes = self._sizes(devices)
        limits = memory_limits(sizes, container.memory_limit, self._inventory().by_numa)
        claimed = pages_in(sizes)
        if not claimed and container.pod_uid not in self._pods.claiming:
            return limits
        own = self._pods.own(container.pod_uid)
        return limits | page_limits(
            {page: own.get(page, 0) + claimed.get(page, 0) for page in self._inventory().page_sizes}
        )

    def _sizes(self, devices: frozenset[str]) -> Mapping[Place, int]:
        sizes: Counter[Place] = Counter()
        for device in devices:
            sizes.update(self.sizes_of_devices.get(device, {}))
        return sizes
