"""Finds the containers that have claims of memory or hugepages, with what each claim gives them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.drivers.memory_promises import memory_by_cdi_device
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.memory.use import Sizes
from dracpu_agent.node import NodeState
from dracpu_agent.placement.container import Container
from dracpu_api.quantity import format_binary


@dataclass(frozen=True, slots=True)
class MemoryUser:
    """A container, and its CDI devices that give it memory."""

    container: Container
    claims: tuple[HeldClaim[Any], ...]
    devices: Mapping[str, Sizes]  # CDI device -> bytes that it gives the container, by place

    @property
    def sizes(self) -> Sizes:
        """The bytes that it may use, by place."""
        sizes: Counter[Place] = Counter()
        for of_device in self.devices.values():
            sizes.update(of_device)
        return sizes

    @property
    def ordinary(self) -> int:
        """The bytes of ordinary memory that it may use."""
        return sum(size for place, size in self.sizes.items() if place.kind == MEMORY)

    def text(self, kind: Kind) -> str:
        """The amounts that its claims have of one kind, for messages: "claim default/c has 512Mi of memory"."""
        parts = []
        for claim in self.claims:
            of_claim = [self.devices[name] for name, _ in memory_by_cdi_device(claim) if name in self.devices]
            size = sum(size for sizes in of_claim for place, size in sizes.items() if place.kind == kind)
            if size:
                parts.append(f"claim {claim.ref} has {format_binary(size)} of {kind}")
        return ", ".join(parts)


def memory_users(node: NodeState, driver: MemoryDriver) -> Iterator[MemoryUser]:
    """The containers whose claims have memory, also those of CPUs; a claim whose container runs is held or lingers."""
    held = driver.claims()
    if not held:
        return
    for container, uses in node.containers:
        own = {use.cdi_device: held[use.claim.uid] for use in uses if driver.concerns(use) and use.claim.uid in held}
        if own:
            claims = {claim.ref.uid: claim for claim in own.values()}
            sizes = {name: size for claim in claims.values() for name, size in memory_by_cdi_device(claim)}
            yield MemoryUser(
                container, tuple(claims[uid] for uid in sorted(claims)), {name: sizes[name] for name in sorted(own)}
            )
