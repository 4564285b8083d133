"""Whatever CPUs come and go: no claim loses its CPUs, no container is sent nowhere, and what is offered can be had.

The model runtime is quick: all updates reach it at once. What happens when they do not is the other machine's matter
(test_node_never_overlaps.py).
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from nodes import NODE, SAFE_RUNTIME, container, machine, request, revived, share, spec, started, uid, whole, without

from dracpu_agent.claims import checkpoint
from dracpu_agent.errors import ClaimError, PlacementError, SettingsRefusedError
from dracpu_agent.node import NodeState
from dracpu_agent.placement.container import Container
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.settings import Allocation, GroupBy, Mode

MACHINE = machine(sockets=2, cores=3)
CLAIMS = st.integers(1, 4)


class Plugging(RuleBasedStateMachine):
    @initialize(mode=st.sampled_from(Mode), group_by=st.sampled_from(GroupBy), reserved=st.sampled_from(["", "0-1"]))
    def begin(self, mode, group_by, reserved):
        self.state = NodeState(NODE, MACHINE)
        self.state.configure(spec(mode, group_by, reserved))
        self.promised: dict[str, CpuSet] = {}
        self.containers: dict[str, Container] = {}
        self.cpus: dict[str, CpuSet] = {}
        self.connect()

    def connect(self):
        self.state.containers.connected(SAFE_RUNTIME)
        updates, _ = self.state.containers.synchronize(
            [container(name, *cdi_of(known), cpus=self.cpus[name]) for name, known in self.containers.items()]
        )
        self.state.containers.allow_pushes()
        for update in updates:
            self.apply(update.container_id, update.cpus)

    def apply(self, name: str, cpus: CpuSet) -> None:
        assert not cpus.isdisjoint(self.state.topology.online), "such a cgroup may run anywhere"
        self.cpus[name] = cpus

    def push(self):
        for _ in range(100):
            update = self.state.containers.next_push()
            if update is None:
                return
            self.apply(update.container_id, update.cpus)
            self.state.containers.pushed(update, applied=True)
        raise AssertionError("the pushes never end")

    @rule(offline=st.frozensets(st.integers(0, 11), max_size=11))
    def cpus_come_and_go(self, offline):
        self.state.replug(without(MACHINE, str(CpuSet(offline))))
        self.push()

    @rule(number=CLAIMS, device=st.integers(0, 20), amount=st.integers(1, 4))
    def prepare(self, number, device, amount):
        offered = [found for found in self.state.devices() if not any(t.effect == "NoSchedule" for t in found.taints)]
        if not offered:
            return
        chosen = offered[device % len(offered)]
        result = share(chosen.name, amount) if chosen.capacity else whole(chosen.cpus.lowest)
        try:
            self.promised[uid(number)] = self.state.claims.grant(request(number, result)).claim.cpus
        except ClaimError:
            return
        self.push()

    @rule(number=CLAIMS)
    def prepare_again(self, number):
        if uid(number) in self.promised:
            granted = self.state.claims.grant_held(uid(number))
            assert granted is not None
            assert (granted.fresh, granted.claim.cpus) == (False, self.promised[uid(number)])

    @rule(number=CLAIMS, containers_end=st.booleans())
    def unprepare(self, number, containers_end):
        for name, known in list(self.containers.items()):
            if containers_end and cdi_of(known) == [f"claim-{uid(number)}"]:
                self.stop(name)
        self.promised.pop(uid(number), None)
        self.state.claims.release(uid(number))
        self.push()

    @rule(mode=st.sampled_from(Mode), group_by=st.sampled_from(GroupBy), reserved=st.sampled_from(["", "0-1", "4,6"]))
    def reconfigure(self, mode, group_by, reserved):
        try:
            self.state.configure(spec(mode, group_by, reserved))
        except SettingsRefusedError:
            return
        self.push()

    @rule(full_cores=st.booleans())
    def settings_without_a_change_of_reserved_cpus_are_never_refused(self, full_cores):
        now = self.state.spec
        assert now is not None
        kept = now.settings
        allocation = Allocation(full_cores=full_cores)
        self.state.configure(spec(kept.mode, kept.group_by, str(kept.reserved_cpus), allocation=allocation))
        self.push()

    @rule(name=st.sampled_from("ab"), number=st.integers(0, 4))
    def create(self, name, number):
        made = container(f"{name}{number}", *([f"claim-{uid(number)}"] if number else []))
        if made.id in self.containers:
            return
        try:
            placement = self.state.containers.create(made)
        except PlacementError:
            return
        for update in placement.updates:
            self.apply(update.container_id, update.cpus)
        self.apply(made.id, placement.cpus)
        self.containers[made.id] = made
        started(self.state, made)
        self.push()

    @rule(name=st.sampled_from([f"{name}{number}" for name in "ab" for number in range(5)]))
    def stop(self, name):
        if self.containers.pop(name, None) is not None:
            del self.cpus[name]
            self.state.containers.stopped(name)
            self.push()

    @rule()
    def the_agent_restarts(self):
        before = self.published()
        saved = checkpoint.decode(checkpoint.encode(self.state.checkpoint()))
        self.state = revived(saved, self.state.topology)
        self.connect()
        assert self.published() == before

    @rule(offline=st.frozensets(st.integers(0, 11), max_size=11))
    def cpus_come_and_go_while_the_agent_is_away(self, offline):
        saved = checkpoint.decode(checkpoint.encode(self.state.checkpoint()))
        self.state = revived(saved, without(MACHINE, str(CpuSet(offline))))
        self.connect()

    def published(self):
        return {
            device.name: (device.capacity and device.capacity.value, device.taints) for device in self.state.devices()
        }

    def consumed(self, device: str) -> int:
        """The CPUs that the scheduler counts against a device."""
        grants = [grant for claim in self.state.claims.values() if not claim.lingering for grant in claim.grants]
        return sum(len(grant.cpus) for grant in grants if grant.device == device)

    @invariant()
    def claims_keep_what_they_were_promised_and_share_none_of_it(self):
        seen = EMPTY
        for claim_uid, cpus in self.promised.items():
            assert self.state.claims[claim_uid].cpus == cpus
            assert cpus.isdisjoint(seen)
            seen |= cpus

    @invariant()
    def containers_run_where_they_should(self):
        online, shared = self.state.topology.online, self.state.division.shared
        for name, known in self.containers.items():
            own = self.state.claims[cdi_of(known)[0].removeprefix("claim-")].cpus if cdi_of(known) else EMPTY
            wanted = own & online or shared
            assert not wanted or self.cpus[name] == wanted

    @invariant()
    def offline_cpus_are_not_offered_and_those_of_claims_are_marked(self):
        online, missing = self.state.topology.online, {}
        for claim in self.state.claims.values():
            for grant in claim.grants:
                if not claim.lingering and not grant.cpus <= online:
                    missing[grant.device] = True
        for device in self.state.devices():
            marked = any(taint.key == "dra.cpu/offline" for taint in device.taints)
            assert marked == (device.name in missing)
            closed = any(taint.effect == "NoSchedule" for taint in device.taints)
            assert closed or device.cpus <= online

    @invariant()
    def everything_that_is_offered_can_be_granted_at_once(self):
        trial = revived(self.state.checkpoint(), self.state.topology)
        trial.containers.connected(SAFE_RUNTIME)
        trial.containers.synchronize([container(name, *cdi_of(known)) for name, known in self.containers.items()])
        whole_cores = self.state.spec is not None and self.state.spec.settings.allocation.full_cores
        for number, device in enumerate(trial.devices(), start=100):
            if any(taint.effect == "NoSchedule" for taint in device.taints):
                continue
            if device.capacity is None:
                if not self.consumed(device.name):
                    trial.claims.grant(request(number, whole(device.cpus.lowest)))
                continue
            left = device.capacity.value - self.consumed(device.name)
            unit = device.capacity.policy.default if whole_cores else 1
            if left >= unit:
                trial.claims.grant(request(number, share(device.name, left // unit * unit)))


def cdi_of(known: Container) -> list[str]:
    return [device.removeprefix("dra.k8s.io/cpu=") for device in known.cdi_devices]


TestPlugging = Plugging.TestCase
TestPlugging.settings = settings(max_examples=150, stateful_step_count=30)
