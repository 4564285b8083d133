"""Computes how much memory is promised, and how much may still be offered, for both ways to publish memory.

Memory has devices of its own, or the devices of CPUs have it as capacities, never both at a time: the scheduler counts
what claims consume of a device by the device's name and capacity, and would give the same memory away twice. After a
change from one to the other, claims of both exist. The published devices offer less, by what the scheduler cannot
count there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dracpu_agent.memory.kinds import Place
from dracpu_agent.memory.room import capacity
from dracpu_api.settings import Publish


@dataclass(frozen=True, slots=True)
class Promise:
    """Memory that a claim holds, or that is kept for a claim that was allocated and is not prepared yet."""

    uid: str
    through: Publish  # which devices it was allocated through
    sizes: Mapping[Place, int]
    is_counted: bool = True  # False for a lingering claim, which is usually deallocated


def total(promises: Iterable[Promise]) -> Mapping[Place, int]:
    """The bytes of some promises, by place."""
    sizes: Counter[Place] = Counter()
    for promise in promises:
        sizes.update(promise.sizes)
    return sizes


def kept(there: Mapping[Place, int], held: Iterable[Promise], waiting: Iterable[Promise]) -> tuple[Promise, ...]:
    """The memory that is kept for each claim that waits, as far as it is there beside what claims hold."""
    left = Counter(there)
    left.subtract(total(held))
    found = []
    for promise in sorted(waiting, key=lambda promise: (promise.uid, promise.through)):
        sizes = {place: max(0, min(size, left[place])) for place, size in promise.sizes.items()}
        left.subtract(sizes)
        found.append(Promise(promise.uid, promise.through, sizes))
    return tuple(found)


def offered(
    there: Mapping[Place, int], published: Publish, held: Iterable[Promise], waiting: Iterable[Promise]
) -> Mapping[Place, int]:
    """How much the published devices offer of each place. The scheduler subtracts by itself what claims have that were
    allocated through these devices, prepared or not."""
    held = tuple(held)
    counted = total(promise for promise in held if promise.is_counted and promise.through is published)
    uncounted = Counter(total(held))
    uncounted.subtract(counted)
    uncounted.update(total(promise for promise in waiting if promise.through is not published))
    return {
        place: capacity(there.get(place, 0), counted.get(place, 0), uncounted[place])
        for place in {*there, *counted, *uncounted}
    }


def left_for(
    uid: str, there: Mapping[Place, int], held: Iterable[Promise], waiting: Iterable[Promise]
) -> Mapping[Place, int]:
    """How much a claim can get of each place; below 0 where more is promised than there is."""
    left = Counter(there)
    left.subtract(total(held))
    left.subtract(total(promise for promise in waiting if promise.uid != uid))
    return left
