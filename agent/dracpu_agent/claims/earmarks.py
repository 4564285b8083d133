"""CPUs kept for claims that were allocated before the node's devices changed, and are not prepared yet.

The scheduler counts against the devices that it sees. It cannot count claims of former ones, so each gets its CPUs
picked out beforehand: other devices offer less by that, other claims do not get them, and the claim does when it is
prepared. Claims of devices that are published now get theirs as well: else those of the others might be picked where
there is no other choice for these. Where an earmark lies decides which device offers less, so it stays where it is as
long as its claim waits.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from dracpu_agent.allocation.choose import Ask, choose
from dracpu_agent.allocation.errors import AllocationError
from dracpu_agent.allocation.machine import Machine
from dracpu_agent.claims.ledger import HeldClaim
from dracpu_agent.devices.grouping import divided_over
from dracpu_agent.devices.publish import resolve
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import EMPTY, CpuSet, union, union_by_name
from dracpu_api.settings import Allocation, CpuNodeSpec, OutstandingClaim, Settings

Places = Mapping[str, Mapping[str, CpuSet]]  # claim UID -> device -> CPUs


@dataclass(frozen=True, slots=True)
class _Want:
    uid: str
    device: str
    group: CpuSet
    amount: int


class Earmarks:
    """What is kept for whom."""

    def __init__(self) -> None:
        self._places: dict[str, dict[str, CpuSet]] = {}  # of prepared claims too: they may be unprepared and come again
        self._waiting: frozenset[str] = frozenset()

    @property
    def places(self) -> Places:
        """For the checkpoint: an agent that restarts must not move what is published already."""
        return self._places

    def restore(self, places: Places, waiting: Collection[str]) -> None:
        """What an earlier agent kept; `waiting`: for whom nobody else may have it before the next `update`."""
        self._places = {uid: dict(devices) for uid, devices in places.items()}
        self._waiting = frozenset(self._places).intersection(waiting)

    def of(self, uid: str, device: str) -> CpuSet:
        """The CPUs kept for a claim's part of a device."""
        return self._places[uid].get(device, EMPTY) if uid in self._waiting else EMPTY

    def of_others(self, uid: str) -> CpuSet:
        """The CPUs kept for every other claim."""
        return union(cpus for other in self._waiting - {uid} for cpus in self._places[other].values())

    def shares(self) -> Iterator[tuple[str, CpuSet]]:
        """Each device name with CPUs kept for a share of it."""
        for uid in self._waiting:
            yield from self._places[uid].items()

    def update(
        self,
        topology: Topology,
        machine: Machine,
        spec: CpuNodeSpec,
        held: Mapping[str, HeldClaim],
        available: CpuSet,
        *,
        settling: bool,
    ) -> None:
        """Picks CPUs out of `available` for the outstanding claims that hold none yet. A place that CPUs of this
        topology cannot fill any more is replaced."""
        former = self._places
        # while schedulers may still see what was published, a claim that is listed again gets its former place
        self._places = dict(former) if settling else {}
        wants: list[_Want] = []
        for claim in spec.outstanding:
            if claim.uid in held:
                self._places[claim.uid] = union_by_name((grant.device, grant.cpus) for grant in held[claim.uid].grants)
            else:
                self._places[claim.uid] = {}
                wants += _wants(topology, claim)
        self._waiting = frozenset(claim.uid for claim in spec.outstanding if claim.uid not in held)
        for want in _in_order(wants, former, available):
            place = _place(machine, want, former, available, spec.settings)
            available -= place
            self._places[want.uid][want.device] = place


def _wants(topology: Topology, claim: OutstandingClaim) -> Collection[_Want]:
    """One for each device of the claim: several shares of a device are one want."""
    amounts: dict[str, int] = {}
    for device, cpus in claim.devices:
        amounts[device] = amounts.get(device, 0) + cpus
    return [
        _Want(claim.uid, device, group & topology.online, amount)
        for device, amount in amounts.items()
        if (group := resolve(topology, device)) is not None
    ]


def _place(machine: Machine, want: _Want, former: Places, available: CpuSet, settings: Settings) -> CpuSet:
    if _stays(want, former, available):
        return former[want.uid][want.device]
    free = want.group & available
    amount = min(want.amount, len(free))  # what has been reserved since cannot be kept
    if not amount:
        return EMPTY
    over = divided_over(want.device)
    try:
        return choose(machine, want.group, free, Ask(amount, settings.allocation), over)
    except AllocationError:  # whole cores cannot be had any more
        return choose(machine, want.group, free, Ask(amount, Allocation()), over)


def _stays(want: _Want, former: Places, available: CpuSet) -> bool:
    place = former.get(want.uid, {}).get(want.device, EMPTY)
    return len(place) == want.amount and place <= available


def _in_order(wants: Collection[_Want], former: Places, available: CpuSet) -> list[_Want]:
    """Those without a choice first, then those that have their place, then the small groups before the large ones."""

    def order(want: _Want) -> tuple[bool, bool, int, str, str]:
        choice = len(want.group) > want.amount
        return choice, not _stays(want, former, available), len(want.group), want.uid, want.device

    return sorted(wants, key=order)
