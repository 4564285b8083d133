"""Whatever the scheduler has given to a claim can be prepared, however often the node's devices change meanwhile.

A model scheduler gives devices away as the real one does: it sees what is published, and counts what claims have of a
device by the device's name. The operator's own function says which claims are listed while the devices change.
"""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from nodes import NODE, SAFE_RUNTIME, machine, request, revived, share, spec, uid, whole
from nodes import outstanding as as_listed

from dracpu_agent.claims import checkpoint
from dracpu_agent.devices.device import Device
from dracpu_agent.errors import ClaimError
from dracpu_agent.node import NodeState
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.settings import Allocation, CpuNodeSpec, GroupBy, Mode
from dracpu_operator.decide.outstanding import outstanding

REPRESENTATIONS = st.sampled_from(
    [(Mode.GROUPED, group_by) for group_by in GroupBy] + [(Mode.INDIVIDUAL, GroupBy.MACHINE)]
)


class Switching(RuleBasedStateMachine):
    @initialize(representation=REPRESENTATIONS, full_cores=st.booleans())
    def begin(self, representation, full_cores):
        self.allocation = Allocation(full_cores=full_cores)
        self.state = NodeState(NODE, machine(sockets=2, cores=2))
        mode, group_by = representation
        self.state.configure(spec(mode, group_by, allocation=self.allocation))
        self.state.containers.connected(SAFE_RUNTIME)
        self.state.containers.synchronize([])
        self.allocated: dict[int, dict[str, int]] = {}  # claim -> device -> CPUs, as the scheduler keeps it
        self.prepared: dict[int, CpuSet] = {}
        self.number = 0
        self.before: Sequence[Device] | None = None  # what a scheduler still sees that has not heard of the taint

    # ---- the scheduler

    def consumed(self, device: str) -> int:
        return sum(devices.get(device, 0) for devices in self.allocated.values())

    def schedule(self, devices: Sequence[Device], choice: int, amount: int) -> None:
        if not devices:
            return
        device = devices[choice % len(devices)]
        if device.capacity is None:
            amount, room = 1, 1
        else:
            policy = device.capacity.policy
            unit = policy.step or policy.default
            amount, room = -(-amount // unit) * unit, device.capacity.value
        if self.consumed(device.name) + amount <= room:
            self.number += 1
            self.allocated[self.number] = {device.name: amount}

    @rule(choice=st.integers(0, 5), amount=st.integers(1, 4))
    def a_claim_is_allocated(self, choice, amount):
        self.schedule([device for device in self.state.devices() if not device.taints], choice, amount)

    @precondition(lambda self: self.before)
    @rule(choice=st.integers(0, 5), amount=st.integers(1, 6))
    def a_claim_is_allocated_by_a_scheduler_that_has_not_seen_the_taint(self, choice, amount):
        assert self.before is not None
        self.schedule(self.before, choice, amount)

    # ---- the kubelet

    @precondition(lambda self: len(self.allocated) > len(self.prepared))
    @rule(choice=st.integers(0, 100))
    def prepare(self, choice):
        waiting = sorted(set(self.allocated) - set(self.prepared))
        number = waiting[choice % len(waiting)]
        wanted = request(number, *self.results(number))
        try:
            claim = self.state.claims.grant(wanted).claim
        except ClaimError:  # CPUs may be kept for a claim that is gone: the kubelet tries again
            self.claims_are_listed_again()
            claim = self.state.claims.grant(wanted).claim
        self.prepared[number] = claim.cpus

    @precondition(lambda self: self.prepared)
    @rule(choice=st.integers(0, 100), comes_again=st.booleans())
    def unprepare(self, choice, comes_again):
        numbers = sorted(self.prepared)
        number = numbers[choice % len(numbers)]
        del self.prepared[number]
        assert self.state.claims.release(uid(number))
        if not comes_again:  # else: another pod of the same claim, which stays allocated
            del self.allocated[number]

    def results(self, number: int):
        return [
            whole(int(device.removeprefix("cpudev")))
            if device.removeprefix("cpudev").isdigit()
            else share(device, amount)
            for device, amount in self.allocated[number].items()
        ]

    # ---- the operator

    def listed(self, wanted: CpuNodeSpec) -> CpuNodeSpec:
        claims = [as_listed(number, *devices.items()) for number, devices in self.allocated.items()]
        return replace(wanted, outstanding=outstanding(claims, wanted.settings, wanted.outstanding))

    def list_again(self, state: NodeState) -> None:
        assert state.spec is not None
        state.configure(self.listed(state.spec))

    @rule(representation=REPRESENTATIONS, settle_seconds=st.sampled_from([0, 10]))
    def the_devices_change(self, representation, settle_seconds):
        mode, group_by = representation
        wanted = spec(mode, group_by, allocation=self.allocation, settle_seconds=settle_seconds)
        seen = self.state.devices() if self.before is None else self.before
        self.state.configure(self.listed(wanted))
        self.before = seen if self.state.cpus.settling else None

    @rule()
    def claims_are_listed_again(self):
        self.list_again(self.state)

    @precondition(lambda self: self.state.cpus.settling)
    @rule()
    def the_node_settles(self):
        self.claims_are_listed_again()  # within settleSeconds
        self.state.settled()
        self.before = None

    @rule()
    def the_agent_restarts(self):
        saved = checkpoint.decode(checkpoint.encode(self.state.checkpoint()))
        before = self.state.devices()
        self.state = revived(saved, self.state.topology)
        self.state.containers.connected(SAFE_RUNTIME)
        self.state.containers.synchronize([])
        assert self.state.devices() == before

    # ---- what must hold

    @invariant()
    def every_claim_that_is_allocated_could_be_prepared_now(self):
        waiting = sorted(set(self.allocated) - set(self.prepared))
        for order in (waiting, waiting[::-1]):
            trial = revived(self.state.checkpoint(), self.state.topology)
            trial.containers.connected(SAFE_RUNTIME)
            trial.containers.synchronize([])
            self.list_again(trial)
            for number in order:
                trial.claims.grant(request(number, *self.results(number)))

    @invariant()
    def no_cpu_is_held_twice(self):
        seen = EMPTY
        for cpus in self.prepared.values():
            assert cpus
            assert cpus.isdisjoint(seen)
            seen |= cpus

    @invariant()
    def no_cpu_of_a_former_device_is_offered_as_another(self):
        if self.state.cpus.settling or any(device.capacity for device in self.state.devices()):
            return
        offered = {device.name for device in self.state.devices()}
        for number, cpus in self.prepared.items():
            if not any(name in offered for name in self.allocated[number]):
                assert not offered & {f"cpudev{cpu:03d}" for cpu in cpus}


TestSwitching = Switching.TestCase
TestSwitching.settings = settings(max_examples=100, stateful_step_count=30)
