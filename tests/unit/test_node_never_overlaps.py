"""Whatever happens in whatever order, no CPU belongs to two claims, and no shared container runs on a claim's CPU.

A model runtime keeps the cpuset of each container as it was told, and applies a pushed update at any later moment.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from nodes import NODE, SAFE_RUNTIME, container, machine, request, revived, share, spec, started, uid, whole

from dracpu_agent.claims import checkpoint
from dracpu_agent.errors import ClaimError, PlacementError, SettingsRefusedError
from dracpu_agent.node import NodeState
from dracpu_agent.placement.container import Container, ContainerUpdate
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.settings import Allocation, GroupBy, Mode

CLAIMS = st.integers(1, 5)
DEVICES = st.sampled_from(["cpudevnuma000", "cpudevnuma001", "cpudevsocket000", "cpudevmachine"])


class Node(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = NodeState(NODE, machine(sockets=2, cores=3))
        self.state.configure(spec())
        self.runtime: dict[str, Container] = {}
        self.cpus: dict[str, CpuSet] = {}
        self.promised: dict[str, CpuSet] = {}  # what Prepare answered, until Unprepare
        self.under_way: ContainerUpdate | None = None
        self.connect()

    def connect(self) -> None:
        self.state.containers.connected(SAFE_RUNTIME)
        updates, _ = self.state.containers.synchronize([self.as_listed(name) for name in self.runtime])
        self.state.containers.allow_pushes()
        self.apply(updates)

    def as_listed(self, name: str) -> Container:
        known = self.runtime[name]
        return Container(
            known.id, known.name, known.namespace, known.pod_name, known.pod_uid, known.cdi_devices, (), self.cpus[name]
        )

    def apply(self, updates) -> None:
        for update in updates:
            assert update.cpus, "an empty cpuset means no change to the runtime"
            if update.container_id in self.cpus:
                self.cpus[update.container_id] = update.cpus

    def prepared(self, number: int, *results) -> None:
        try:
            claim = self.state.claims.grant(request(number, *results)).claim
        except ClaimError:
            return
        if self.under_way is not None and not self.under_way.cpus.isdisjoint(claim.cpus):
            self.answer_push(applied=True)  # Prepare waits for it
        self.promised[uid(number)] = claim.cpus

    @rule(number=CLAIMS, device=DEVICES, amount=st.integers(1, 5))
    def prepare_share(self, number, device, amount):
        self.prepared(number, share(device, amount))

    @rule(number=CLAIMS, cpus=st.lists(st.integers(0, 11), min_size=1, max_size=3, unique=True))
    def prepare_whole_devices(self, number, cpus):
        self.prepared(number, *(whole(cpu) for cpu in cpus))

    @rule(number=CLAIMS)
    def prepare_fails_after_the_grant(self, number):
        if uid(number) in self.state.claims:
            return
        try:
            granted = self.state.claims.grant(request(number, share("cpudevmachine", 2)))
        except ClaimError:
            return
        self.state.claims.undo(granted)

    @rule(number=CLAIMS)
    def unprepare(self, number):
        self.promised.pop(uid(number), None)
        self.state.claims.release(uid(number))

    @rule(
        mode=st.sampled_from(Mode),
        group_by=st.sampled_from(GroupBy),
        reserved=st.sampled_from(["", "0", "0-3", "5,7"]),
        full_cores=st.booleans(),
    )
    def reconfigure(self, mode, group_by, reserved, full_cores):
        try:
            self.state.configure(spec(mode, group_by, reserved, allocation=Allocation(full_cores=full_cores)))
        except SettingsRefusedError:
            return

    @rule(name=st.sampled_from("abcde"))
    def create_shared(self, name):
        self.create(container(name))

    @rule(name=st.sampled_from("vwxyz"), number=CLAIMS)
    def create_pinned(self, name, number):
        self.create(container(name, f"claim-{uid(number)}"))

    def create(self, created: Container) -> None:
        if created.id in self.runtime or not self.state.containers.synchronized:
            return
        try:
            placement = self.state.containers.create(created)
        except PlacementError:
            return
        self.apply(placement.updates)
        self.runtime[created.id] = created
        self.cpus[created.id] = placement.cpus
        started(self.state, created)

    @rule(name=st.sampled_from("abcdevwxyz"))
    def stop(self, name):
        if self.runtime.pop(name, None) is not None:
            del self.cpus[name]
            if self.state.containers.synchronized:
                self.apply(self.state.containers.stopped(name))

    @precondition(lambda self: self.under_way is None)
    @rule()
    def begin_push(self):
        self.under_way = self.state.containers.next_push()

    @precondition(lambda self: self.under_way is not None)
    @rule(applied=st.booleans())
    def answer_push(self, applied):
        update, self.under_way = self.under_way, None
        assert update is not None
        if applied:
            self.apply([update])
        self.state.containers.pushed(update, applied=applied)

    @rule()
    def runtime_restarts(self):
        self.under_way = None
        self.state.containers.disconnected()

    @rule()
    def runtime_comes_back(self):
        if not self.state.containers.synchronized:
            self.connect()

    @rule()
    def agent_is_killed_and_restarted(self):
        saved = checkpoint.decode(checkpoint.encode(self.state.checkpoint()))
        self.under_way = None
        self.state = revived(saved, self.state.topology)
        self.connect()

    @invariant()
    def claims_keep_what_they_were_promised(self):
        for claim_uid, cpus in self.promised.items():
            assert self.state.claims[claim_uid].cpus == cpus

    @invariant()
    def no_cpu_is_held_twice(self):
        seen = EMPTY
        for claim in self.state.claims.values():
            for grant in claim.grants:
                assert grant.cpus
                assert grant.cpus.isdisjoint(seen)
                seen |= grant.cpus
        assert seen == self.state.division.exclusive

    @invariant()
    def nothing_is_offered_twice(self):
        held = self.state.division.exclusive
        for device in self.state.devices():
            others = held - self.state.division.granted.get(device.name, EMPTY)
            if device.capacity is None:
                mine = [g for c in self.state.claims.values() for g in c.grants if g.device == device.name]
                assert mine or device.cpus.isdisjoint(others)
            else:
                foreign = EMPTY
                for claim in self.state.claims.values():
                    for grant in claim.grants:
                        if grant.device != device.name:
                            foreign |= grant.cpus
                assert device.capacity.value <= len(device.cpus - foreign)

    @invariant()
    def a_pinned_container_runs_on_its_claim_alone(self):
        for name, known in self.runtime.items():
            for device in known.cdi_devices:
                claim = self.state.claims.get(device.removeprefix("dra.k8s.io/cpu=claim-"))
                if claim is not None:
                    assert self.cpus[name] == claim.cpus

    @invariant()
    def shared_containers_leave_a_claims_cpus_when_its_container_is_created(self):
        in_use = EMPTY
        for _, claim_uid in self.state.containers.used_claims():
            in_use |= self.state.claims[claim_uid].cpus
        if not self.state.containers.synchronized:
            return
        failed_push = self.under_way is not None
        for name, known in self.runtime.items():
            if not known.cdi_devices and not failed_push:
                assert self.cpus[name].isdisjoint(in_use)


TestNodeNeverOverlaps = Node.TestCase
TestNodeNeverOverlaps.settings = settings(max_examples=150, stateful_step_count=40)
