"""For how long claims have to be followed. Pure: the time is an argument.

A list of outstanding claims is complete when it is written, together with the settings that make it necessary. More
claims may be allocated on the former devices afterwards: while the node still publishes them, and for as long as a
scheduler may hold a pod back whose devices it has chosen before. So claims are followed from each change of a node's
devices until its agent has applied the change and this time has passed, and for as long as claims are outstanding.

A new process learns from the CpuNode when the devices were changed. It cannot learn when the agent applied the change,
which takes a ready agent some seconds after it has settled. So it adds a time for that, and where the agent has become
ready later than that, it counts from then on. Following for too long costs little.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dracpu_api.conditions import Phase
from dracpu_operator.decide.records import CpuNode
from dracpu_operator.decide.times import time_of

_ANSWERING: Final = timedelta(minutes=5)  # from new settings until a ready agent has applied them, apart from settling


class Following:
    """`is_needed` while at least one node is followed. `ends_at` is the time when that ends by itself, None when it
    takes another event."""

    def __init__(self, seconds: float) -> None:
        self.is_needed = False
        self.ends_at: datetime | None = None
        self._time = timedelta(seconds=seconds)
        self._seen: dict[str, _Seen] = {}  # by UID
        self._tried_until: datetime | None = None  # after the last attempt to change devices

    def update(self, cpu_nodes: Collection[CpuNode], now: datetime, *, changes_devices: bool = False) -> None:
        """Takes the present CpuNodes into account. `changes_devices` is true when nodes are about to change their
        devices: such a change may be refused and tried again."""
        latest, is_open = now, False
        if changes_devices:
            self._tried_until = now + self._time
        if self._tried_until is not None:
            latest = max(now, self._tried_until)
        for cpu_node in cpu_nodes:
            seen = self._seen.get(cpu_node.uid)
            if seen is None or seen.cpu_node is not cpu_node:
                seen = self._seen[cpu_node.uid] = self._look(cpu_node, seen, now)
            if seen.is_open:
                is_open, seen.until = True, now + self._time
            latest = max(latest, seen.until)
        if len(self._seen) > len(cpu_nodes):
            present = {cpu_node.uid for cpu_node in cpu_nodes}
            self._seen = {uid: seen for uid, seen in self._seen.items() if uid in present}
        self.is_needed = is_open or latest > now
        self.ends_at = latest if self.is_needed and not is_open else None

    def _look(self, cpu_node: CpuNode, before: "_Seen | None", now: datetime) -> "_Seen":
        if not is_listing(cpu_node):
            return _Seen(cpu_node, now, is_open=False)
        if _is_open(cpu_node):
            return _Seen(cpu_node, now + self._time, is_open=True)
        if before is not None and before.is_open:
            before.until = now + self._time
        return _Seen(cpu_node, self._end(cpu_node, None if before is None else before.until, now), is_open=False)

    def _end(self, cpu_node: CpuNode, known: datetime | None, now: datetime) -> datetime:
        """Until when to follow a node that publishes the devices of its settings."""
        assert cpu_node.spec is not None
        changed = time_of(cpu_node.devices_changed_at or cpu_node.given_at)
        if changed is None:  # a former version of the operator did not store it
            return now + self._time if known is None else known
        if known is None:
            ready = time_of(cpu_node.reported_agent.get("since")) if cpu_node.reported_agent.get("ready") else None
            known = changed if ready is None else ready + _ANSWERING + self._time
        settling = timedelta(seconds=cpu_node.spec.settle_seconds)
        return max(known, changed + settling + _ANSWERING + self._time)


@dataclass(slots=True)
class _Seen:
    """A CpuNode as it was last seen, and until when it is followed."""

    cpu_node: CpuNode
    until: datetime
    is_open: bool


def is_listing(cpu_node: CpuNode) -> bool:
    """True for a CpuNode whose list of outstanding claims the operator keeps up to date."""
    return cpu_node.owner is not None and cpu_node.spec is not None


def _is_open(cpu_node: CpuNode) -> bool:
    """True while the node may publish other devices than those of its present settings, or waits for claims on others.
    A node whose agent has never reported has published nothing."""
    if cpu_node.phase is None:
        return False
    assert cpu_node.spec is not None
    return not cpu_node.arrived or cpu_node.phase is Phase.SETTLING or bool(cpu_node.spec.outstanding)
