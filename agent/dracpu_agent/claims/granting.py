"""A claim's request -> the CPUs that it gets: devices/ resolves the group behind a name, allocation/ picks in it."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from dracpu_agent.allocation.choose import Ask, choose
from dracpu_agent.allocation.distributed import Level
from dracpu_agent.allocation.errors import AllocationError
from dracpu_agent.allocation.machine import Machine
from dracpu_agent.claims.cpu_asks import CpuAsk, CpuRequest
from dracpu_agent.claims.cpu_claim import CpuGrant
from dracpu_agent.claims.earmarks import Earmarks
from dracpu_agent.claims.request import ClaimRefusedError
from dracpu_agent.devices.grouping import divided_over, grouping_of
from dracpu_agent.devices.publish import resolve
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import EMPTY, CpuSet, union
from dracpu_api.settings import Allocation


@dataclass(frozen=True, slots=True)
class Granting:
    """The node at the moment of a grant."""

    node_name: str
    topology: Topology
    machine: Machine
    allocation: Allocation  # of the settings; a claim's parameters override it
    reserved: CpuSet
    held: CpuSet
    earmarks: Earmarks

    def grants(self, request: CpuRequest) -> tuple[CpuGrant, ...]:
        """One grant for each part of the request, in its order; raises a ClaimError when a part cannot be granted."""
        # parts that leave no choice go first: an explicit cpuset, a device that is one CPU
        chosen: dict[int, CpuGrant] = {}
        taken = EMPTY
        order = sorted(enumerate(request.asks), key=lambda item: _freedom(item[1]))
        for index, ask in order:
            grant = self._grant(request, ask, taken)
            taken |= grant.cpus
            chosen[index] = grant
        return tuple(chosen[index] for index in sorted(chosen))

    def _grant(self, request: CpuRequest, ask: CpuAsk, taken: CpuSet) -> CpuGrant:
        group = resolve(self.topology, ask.device)
        if group is None:
            raise ClaimRefusedError(
                f"claim {request.ref}, request {ask.request}: node {self.node_name} has no device {ask.device}"
            )
        if group.isdisjoint(self.topology.online):
            raise ClaimRefusedError(
                f"claim {request.ref}, request {ask.request}: the CPUs of device {ask.device} ({group}) are offline"
            )
        if ask.amount is None and grouping_of(ask.device) is not None:
            raise ClaimRefusedError(
                f"claim {request.ref}, request {ask.request}: device {ask.device} was given without a number of CPUs; "
                "the cluster needs the feature gate DRAConsumableCapacity"
            )
        if ask.amount is None:  # a whole device leaves no choice, and fullCores has no effect on it
            wanted = Ask(len(group), Allocation(), explicit=ask.parameters.cpuset or group)
        else:
            wanted = Ask(ask.amount, ask.parameters.applied_to(self.allocation), explicit=ask.parameters.cpuset)
        free = self.topology.online - self.reserved - self.held - self.earmarks.of_others(request.ref.uid) - taken
        kept = self.earmarks.for_claim(request.ref.uid, ask.device)
        close = union(self.topology.pcie_roots.get(root, EMPTY) for root in ask.roots)
        cpus = self._pick(group, (free & kept, free & close, free), wanted, divided_over(ask.device))
        return CpuGrant(request=ask.request, pool=ask.pool, device=ask.device, share_id=ask.share_id, cpus=cpus)

    def _pick(self, group: CpuSet, choices: Sequence[CpuSet], wanted: Ask, over: Level) -> CpuSet:
        """Picks out of the first choice that has enough; a claim's parameters may need other CPUs than its earmark."""
        *better, free = choices
        for cpus in better:
            if not cpus.isdisjoint(group):
                with suppress(AllocationError):
                    return choose(self.machine, group, cpus, wanted, over, reserved=self.reserved)
        return choose(self.machine, group, free, wanted, over, reserved=self.reserved)


def _freedom(ask: CpuAsk) -> int:
    return 0 if ask.amount is None or ask.parameters.cpuset is not None else 1
