"""Computes how much of their claims containers use, and how much they use beyond them. Only arithmetic.

A claim has an amount on one NUMA node. The kernel limits only the sum over all nodes, so that a container with claims
on two nodes can use more on one of them than it has claimed there: that part is use without a claim.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dracpu_agent.memory.kinds import Place
from dracpu_agent.memory.room import SMALLEST

Sizes = Mapping[Place, int]

# A change of what is used is shown when it is more than this part of what is promised: use changes all the time, and
# each change that is shown is a write to the API server.
SHOWN_PART: Final = 1 / 16


class Using(NamedTuple):
    """A container, what it uses, and what its CDI devices give it."""

    container_id: str
    used: Sizes
    devices: Mapping[str, Sizes]


@dataclass(frozen=True, slots=True)
class Shares:
    """The use of memory by containers, divided between their claims."""

    of_devices: Mapping[str, Sizes]  # CDI device -> what is used of it
    beyond: Mapping[str, Sizes]  # id of a container -> what it uses without a claim, of the kinds that it has claimed


@dataclass(frozen=True, slots=True)
class ClaimsUse:
    """How much of their claims containers use, as it was read last."""

    by_claim: Mapping[str, Sizes] = field(default_factory=dict)  # by UID; those of which it is not known are absent
    not_read: Mapping[str, Sizes] = field(default_factory=dict)  # these: what was read last, or else all that they have
    shown: Sizes = field(default_factory=dict)  # the sums that the CpuNode shows


def summed(parts: Iterable[Sizes]) -> Sizes:
    """The sums, by place."""
    sums: Counter[Place] = Counter()
    for sizes in parts:
        sums.update(sizes)
    return sums


def share_out(containers: Iterable[Using]) -> Shares:
    """Divides what containers use between their devices, in the order of the devices' names: no device gets more than
    it has, also where several containers use it."""
    of_devices: dict[str, Counter[Place]] = {}
    beyond: dict[str, Sizes] = {}
    for container in sorted(containers, key=lambda using: using.container_id):
        kinds = {place.kind for sizes in container.devices.values() for place in sizes}
        left = {place: size for place, size in container.used.items() if place.kind in kinds}
        for device, sizes in sorted(container.devices.items()):
            taken = of_devices.setdefault(device, Counter())
            for place, size in sizes.items():
                part = min(left.get(place, 0), size - taken[place])
                taken[place] += part
                if part:
                    left[place] -= part
        beyond[container.container_id] = {place: size for place, size in left.items() if size}
    return Shares(of_devices, beyond)


def spread(pages: Mapping[int, int], claimed: Sizes) -> Sizes:
    """Where a container has pages (size of a page -> bytes) of which the kernel does not count the NUMA nodes: on those
    of its claims, by what these have, and never more than that. Where else it has some is not known."""
    found: dict[Place, int] = {}
    for page, size in pages.items():
        places = {place: has // page for place, has in sorted(claimed.items()) if place.kind.page == page}
        room = sum(places.values())
        left = min(size // page, room)
        for place, has in places.items():
            part = left * has // room if room else 0
            found[place] = part * page
            left, room = left - part, room - has
    return found


def without_own_pages(beyond: Sizes, own: Mapping[int, int]) -> Sizes:
    """A container's use beyond its claims, without the hugepages that the spec of its pod requests (size of a page ->
    bytes), and without small amounts of ordinary memory, which also the kernel takes."""
    sums: Counter[int] = Counter()
    for place, size in beyond.items():
        sums[place.kind.page] += size
    return {
        place: size
        for place, size in beyond.items()
        if (sums[place.kind.page] > own.get(place.kind.page, 0) if place.kind.is_huge else size >= SMALLEST)
    }


def steadily(shown: Sizes, now: Sizes, promised: Sizes) -> Sizes:
    """The use that is to be shown: what is used `now`, or what was `shown` before where it has hardly changed."""

    def steady(place: Place, size: int) -> int:
        before = shown.get(place, 0)
        hardly_changed = abs(size - before) <= promised.get(place, 0) * SHOWN_PART
        return before if before and size and hardly_changed else size

    return {place: steady(place, size) for place, size in now.items()}
