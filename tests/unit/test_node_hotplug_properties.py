"""CPUs come and go while settings change and claims wait to be prepared: what a node shows is a matter of its record.

So an agent that is started again at any moment, on the same machine, shows the same devices, of which each is one that
the API server takes. And what stays with the system is never what a claim has.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from nodes import NODE, SAFE_RUNTIME, machine, outstanding, request, revived, share, spec, uid, whole, without

from dracpu_agent.claims import checkpoint
from dracpu_agent.devices.device import Device
from dracpu_agent.errors import ClaimError, SettingsRefusedError
from dracpu_agent.node import NodeState
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.settings import Allocation, GroupBy, Mode

MACHINE = machine(sockets=2, cores=3)
CLAIMS = st.integers(1, 6)
OFFLINE = st.frozensets(st.integers(0, 11), max_size=11)
NAMED = [("cpudevnuma000", 2), ("cpudevnuma001", 1), ("cpudevsocket001", 3), ("cpudevmachine", 4), ("cpudev008", 1)]
WAITING = st.dictionaries(CLAIMS, st.sampled_from(NAMED), max_size=3)


def restarted(state: NodeState) -> NodeState:
    return revived(checkpoint.decode(checkpoint.encode(state.checkpoint())), state.topology)


def shown(state: NodeState) -> tuple[CpuSet, tuple[Device, ...]]:
    return state.cpus.reserved & state.topology.online, state.devices()


class Plugging(RuleBasedStateMachine):
    @initialize(reserved=st.sampled_from(["", "0-1"]))
    def begin(self, reserved):
        self.state = NodeState(NODE, MACHINE)
        self.state.configure(spec(reserved=reserved))
        self.connect()
        self.promised: dict[str, CpuSet] = {}

    def connect(self):
        self.state.containers.connected(SAFE_RUNTIME)
        self.state.containers.synchronize([])

    @rule(offline=OFFLINE)
    def cpus_come_and_go(self, offline):
        self.state.replug(without(MACHINE, str(CpuSet(offline))))

    @rule(
        mode=st.sampled_from(Mode),
        group_by=st.sampled_from(GroupBy),
        reserved=st.sampled_from(["", "0-1", "2", "4-5"]),
        full_cores=st.booleans(),
        settle_seconds=st.sampled_from([0, 10]),
        waiting=WAITING,
    )
    def reconfigure(self, mode, group_by, reserved, full_cores, settle_seconds, waiting):
        claims = [outstanding(number, device) for number, device in waiting.items()]
        told = spec(mode, group_by, reserved, "r2", Allocation(full_cores=full_cores), claims, settle_seconds)
        try:
            self.state.configure(told)
        except SettingsRefusedError:
            assert self.state.spec != told

    @rule()
    def settle(self):
        self.state.settled()

    @rule()
    def deconfigure(self):
        self.state.deconfigure()

    @rule(number=CLAIMS, result=st.sampled_from(NAMED))
    def prepare(self, number, result):
        device, amount = result
        asked = whole(8) if device == "cpudev008" else share(device, amount)
        try:
            claim = self.state.claims.grant(request(number, asked)).claim
        except ClaimError:
            return
        self.promised[uid(number)] = claim.cpus

    @rule(number=CLAIMS)
    def unprepare(self, number):
        self.promised.pop(uid(number), None)
        self.state.claims.release(uid(number))

    @precondition(lambda self: self.state.spec is not None)
    @rule()
    def restart(self):
        self.state = restarted(self.state)
        self.connect()

    @invariant()
    def a_restarted_agent_publishes_the_same_devices(self):
        if self.state.spec is not None:
            assert shown(restarted(self.state)) == shown(self.state)

    @invariant()
    def claims_keep_what_they_were_promised_and_share_none_of_it(self):
        assert {claim: held.cpus for claim, held in self.state.claims.items()} == self.promised
        assert sum(map(len, self.promised.values())) == len(self.state.division.exclusive)

    @invariant()
    def shared_cpus_are_online_and_not_held(self):
        division = self.state.division
        assert division.shared <= self.state.topology.online - division.exclusive
        assert division.shared or self.state.topology.online <= division.exclusive

    @invariant()
    def the_withheld_core_is_not_held(self):
        now = self.state.spec
        withheld = self.state.cpus.reserved - (now.settings.reserved_cpus if now else EMPTY)
        assert withheld.isdisjoint(self.state.division.exclusive)

    @invariant()
    def the_api_server_takes_every_amount_that_is_published(self):
        for device in self.state.devices():
            if device.capacity is not None:
                value, policy = device.capacity.value, device.capacity.policy
                assert 1 <= policy.default <= value
                assert policy.valid_values in ((), (policy.default,))
                assert policy.minimum is None or policy.minimum + (policy.step or 0) <= value


TestPlugging = Plugging.TestCase
TestPlugging.settings = settings(max_examples=60, stateful_step_count=25)
