"""CPUs kept for claims that were allocated before the node's devices changed, and are not prepared yet.

The scheduler counts against the devices that it sees. It cannot count claims of former devices, so each of them gets
its CPUs earmarked beforehand: other devices offer less, other claims do not get these CPUs, and the claim does when it
is prepared. Claims of devices that are published now get earmarks as well, since the earmarks of the others might
otherwise take the only CPUs that these can have. The place of an earmark decides which device offers less, so it does
not move as long as its claim waits.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from dracpu_agent.allocation.choose import Ask, choose
from dracpu_agent.allocation.errors import AllocationError
from dracpu_agent.allocation.machine import Machine
from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.devices.grouping import divided_over
from dracpu_agent.devices.publish import resolve
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import EMPTY, CpuSet, union, union_by_name
from dracpu_api.names import DRIVER
from dracpu_api.settings import Allocation, CpuNodeSpec, OutstandingClaim, Settings

Places = Mapping[str, Mapping[str, CpuSet]]  # claim UID -> device -> CPUs


@dataclass(frozen=True, slots=True)
class _Want:
    uid: str
    device: str
    group: CpuSet
    amount: int


class Earmarks:
    """The CPUs that are kept, by claim and device."""

    def __init__(self) -> None:
        self._places: dict[str, dict[str, CpuSet]] = {}  # of prepared claims, too: they may come again
        self._waiting: frozenset[str] = frozenset()

    @property
    def places(self) -> Places:
        """For the checkpoint: an agent that restarts must not move what is published already."""
        return self._places

    def restore(self, places: Places, waiting: Collection[str]) -> None:
        """Takes over an earlier agent's earmarks; those of `waiting` claims are in force before `update`."""
        self._places = {uid: dict(devices) for uid, devices in places.items()}
        self._waiting = frozenset(self._places).intersection(waiting)

    def for_claim(self, uid: str, device: str) -> CpuSet:
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
        held: Mapping[str, CpuClaim],
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
    """One want for each device of CPUs of the claim, which several shares of the device have together."""
    amounts: dict[str, int] = {}
    for device in claim.devices:
        if device.driver == DRIVER and device.cpus:
            amounts[device.name] = amounts.get(device.name, 0) + device.cpus
    return [
        _Want(claim.uid, device, group & topology.online, amount)
        for device, amount in amounts.items()
        if (group := resolve(topology, device)) is not None
    ]


def _place(machine: Machine, want: _Want, former: Places, available: CpuSet, settings: Settings) -> CpuSet:
    if _stays(want, former, available):
        return former[want.uid][want.device]
    free = want.group & available
    amount = min(want.amount, len(free))  # CPUs that have been reserved meanwhile cannot be kept
    if not amount:
        return EMPTY
    over = divided_over(want.device)
    try:
        return choose(machine, want.group, free, Ask(amount, settings.allocation), over)
    except AllocationError:  # whole cores are not available any more
        return choose(machine, want.group, free, Ask(amount, Allocation()), over)


def _stays(want: _Want, former: Places, available: CpuSet) -> bool:
    place = former.get(want.uid, {}).get(want.device, EMPTY)
    return len(place) == want.amount and place <= available


def _in_order(wants: Collection[_Want], former: Places, available: CpuSet) -> list[_Want]:
    """Wants without a choice first, then wants that keep their place, then small groups before large ones."""

    def order(want: _Want) -> tuple[bool, bool, int, str, str]:
        choice = len(want.group) > want.amount
        return choice, not _stays(want, former, available), len(want.group), want.uid, want.device

    return sorted(wants, key=order)
