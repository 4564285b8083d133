"""Selects the updates of other containers for one reply to the runtime, which drops a plugin that sends too long a
message."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import ContainerUpdate
from dracpu_agent.placement.tracked import Tracked
from dracpu_api.cpuset import CpuSet

# NRI: 4 MiB a message. The rest is for the envelope and for the CPUs of the container that the hook is about.
ROOM: Final = (4096 - 64) * 1024
_OVERHEAD: Final = 48  # of an encoded update, at most, in addition to its texts
_OVERHEAD_OF_LIMIT: Final = 12  # likewise


class Due(NamedTuple):
    """An update that the reply should include."""

    tracked: Tracked
    update: ContainerUpdate
    strays: bool  # the container must leave CPUs
    repeated: bool  # an earlier reply included the update


def size_of(update: ContainerUpdate) -> int:
    """The bytes that an encoded update takes at most."""
    limits = sum(len(name) + len(value) + _OVERHEAD_OF_LIMIT for name, value in update.limits)
    return len(update.container_id) + len(str(update.cpus)) + limits + _OVERHEAD


def select(due: Sequence[Due], clearing: CpuSet, taken: int = 0) -> Sequence[Due]:
    """All updates if there is room for them, next to the `taken` bytes, otherwise the most urgent ones.

    Raises PlacementError when the reply would leave containers on `clearing`: the CPUs of a claim whose container is
    about to be created.
    """
    room = ROOM - taken
    if sum(size_of(known.update) for known in due) <= room:
        return due

    def blocks(known: Due) -> bool:
        return bool(clearing) and known.strays and known.tracked.may_run_on(clearing)

    by_urgency = sorted(due, key=lambda known: (not blocks(known), not known.strays, known.repeated))
    sizes = accumulate(size_of(known.update) for known in by_urgency)
    selected = [known for known, size in zip(by_urgency, sizes, strict=True) if size <= room]
    if blocking := sum(map(blocks, by_urgency[len(selected) :])):
        raise PlacementError(
            f"{blocking} containers more than a reply to the runtime has room for must leave the CPUs of the claim: "
            "they are moved step by step, and the kubelet retries"
        )
    return selected
