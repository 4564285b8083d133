"""A node's devices change while claims hold CPUs, or have been given some and are not prepared yet."""

import pytest
from nodes import (
    NODE,
    SAFE_RUNTIME,
    claim_object,
    granted,
    machine,
    node,
    offered,
    outstanding,
    ref,
    request,
    revived,
    share,
    spec,
    uid,
    whole,
)

from dracpu_agent.claims import checkpoint
from dracpu_agent.claims.cpu_asks import read_cpu_request
from dracpu_agent.devices.device import Taint
from dracpu_agent.errors import ClaimError, SettingsRefusedError
from dracpu_agent.node import NodeState
from dracpu_api.settings import Allocation, GroupBy, Mode, OutstandingClaim, OutstandingDevice

NUMA0, NUMA1, SOCKET0, MACHINE = "cpudevnuma000", "cpudevnuma001", "cpudevsocket000", "cpudevmachine"
INDIVIDUAL = {f"cpudev{cpu:03d}" for cpu in range(2, 8)}


def restarted(state):
    made = revived(checkpoint.decode(checkpoint.encode(state.checkpoint())), state.topology)
    made.containers.connected(SAFE_RUNTIME)
    made.containers.synchronize([])
    return made


# ---- settling


def test_former_devices_stay_closed_to_new_claims_until_the_node_has_settled():
    state = node()
    state.configure(spec(Mode.INDIVIDUAL, settle_seconds=10))
    assert state.cpus.settling
    assert offered(state) == {NUMA0: 2, NUMA1: 4}
    assert {device.taints for device in state.devices()} == {(Taint("dra.cpu/settling"),)}
    state.settled()
    assert set(offered(state)) == INDIVIDUAL
    assert {device.taints for device in state.devices()} == {()}


def test_a_restarted_agent_goes_on_settling():
    state = node()
    state.configure(spec(Mode.INDIVIDUAL, settle_seconds=10))
    again = restarted(state)
    assert again.cpus.settling
    assert again.devices() == state.devices()


def test_a_restarted_agent_whose_machine_has_changed_meanwhile_does_not_settle():
    state = node(machine(sockets=2, cores=4))
    state.configure(spec(Mode.INDIVIDUAL, reserved="12", settle_seconds=10))
    smaller = NodeState(NODE, machine())
    with pytest.raises(SettingsRefusedError, match="CPU 12"):
        smaller.resume(state.checkpoint())
    assert not smaller.cpus.settling
    assert smaller.devices() == ()


def test_a_node_whose_change_is_taken_back_does_not_settle():
    state = node()
    state.configure(spec(Mode.INDIVIDUAL, settle_seconds=10))
    state.configure(spec(settle_seconds=10))
    assert not state.cpus.settling
    assert {device.taints for device in state.devices()} == {()}


@pytest.mark.parametrize(
    "changed",
    [spec(reserved="2-3", settle_seconds=10), spec(allocation=Allocation(full_cores=True), settle_seconds=10)],
)
def test_settings_with_the_same_devices_apply_without_settling(changed):
    state = node()
    state.configure(changed)
    assert not state.cpus.settling


def test_the_first_settings_apply_without_settling():
    state = node()
    state.deconfigure()
    state.configure(spec(Mode.INDIVIDUAL, settle_seconds=10))
    assert not state.cpus.settling


def test_group_by_has_no_effect_in_individual_mode():
    state = node(mode=Mode.INDIVIDUAL)
    state.configure(spec(Mode.INDIVIDUAL, GroupBy.SOCKET, settle_seconds=10))
    assert not state.cpus.settling


# ---- claims that are not prepared yet


def test_a_waiting_claims_cpus_are_not_offered_and_are_there_when_it_is_prepared():
    state = node()
    state.configure(spec(Mode.INDIVIDUAL, outstanding=[outstanding(1, (NUMA1, 2))]))
    missing = INDIVIDUAL - set(offered(state))
    assert len(missing) == 2
    assert missing <= {"cpudev004", "cpudev005", "cpudev006", "cpudev007"}
    state.claims.grant(request(1, share(NUMA1, 2)))
    assert {f"cpudev{cpu:03d}" for cpu in state.claims[uid(1)].cpus} == missing
    assert INDIVIDUAL - set(offered(state)) == missing
    assert state.cpus.draining() == (ref(1),)


def test_memory_of_a_waiting_claim_takes_no_cpus_and_does_not_keep_devices_of_cpus_back():
    memory = OutstandingDevice("memory-numa000", 0, "dra.memory", (("memory", 1024**3),))
    beside = OutstandingDevice(NUMA1, 2, amounts=(("memory", 1024**3),))
    claims = [OutstandingClaim(uid(1), "default", "a", (memory,)), OutstandingClaim(uid(2), "default", "b", (beside,))]
    state = node()
    before = offered(state)
    state.configure(spec(outstanding=claims))
    assert (offered(state), state.cpus.draining()) == (before, ())
    state.configure(spec(Mode.INDIVIDUAL, outstanding=claims))
    assert len(INDIVIDUAL - set(offered(state))) == 2
    assert [waiting.uid for waiting in state.cpus.draining()] == [uid(2)]


def test_other_claims_do_not_get_a_waiting_claims_cpus():
    state = node(mode=Mode.INDIVIDUAL)
    state.configure(spec(outstanding=[outstanding(1, ("cpudev004", 1))]))
    assert offered(state) == {NUMA0: 2, NUMA1: 3}
    with pytest.raises(ClaimError):
        state.claims.grant(request(2, share(NUMA1, 4)))
    state.claims.grant(request(3, share(NUMA1, 3)))
    assert granted(state, 3) == "5-7"
    state.claims.grant(request(1, whole(4)))
    assert granted(state, 1) == "4"


def test_containers_without_claims_use_the_cpus_of_waiting_claims():
    state = node()
    state.configure(spec(Mode.INDIVIDUAL, outstanding=[outstanding(1, (NUMA1, 2))]))
    assert str(state.division.shared) == "2-7"


def test_a_node_drains_until_no_waiting_claim_is_listed_any_more():
    state = node()
    state.configure(spec(Mode.INDIVIDUAL, outstanding=[outstanding(1, (NUMA1, 2))]))
    assert state.cpus.draining() == (ref(1),)
    state.configure(spec(Mode.INDIVIDUAL))
    assert state.cpus.draining() == ()
    assert set(offered(state)) == INDIVIDUAL


def test_listed_claims_of_published_devices_do_not_count_as_draining_and_take_nothing_from_their_own_device():
    state = node()
    state.configure(spec(outstanding=[outstanding(1, (NUMA1, 2))]))
    assert state.cpus.draining() == ()
    assert offered(state) == {NUMA0: 2, NUMA1: 4}


def test_a_claim_of_a_published_device_keeps_its_only_choice():
    state = node()
    listed = [outstanding(1, (NUMA0, 2)), outstanding(2, ("cpudev002", 1))]
    state.configure(spec(Mode.INDIVIDUAL, outstanding=listed))
    state.claims.grant(request(2, whole(2)))
    assert granted(state, 2) == "2"


def test_an_earmark_does_not_move_when_other_cpus_become_free():
    state = node()
    state.claims.grant(request(1, share(NUMA0, 2)))
    state.configure(spec(group_by=GroupBy.MACHINE))
    state.claims.grant(request(2, share(MACHINE, 2)))
    assert granted(state, 2) == "4-5"
    state.configure(spec(outstanding=[outstanding(3, (MACHINE, 2))]))
    assert offered(state) == {NUMA0: 2}  # which the first claim has; 6 and 7 are all that is left for the third
    state.claims.release(uid(2))
    assert offered(state) == {NUMA0: 2, NUMA1: 2}
    state.claims.grant(request(3, share(MACHINE, 2)))
    assert granted(state, 3) == "6-7"


def test_an_earmark_does_not_move_when_the_devices_change_back_at_once():
    state = node(group_by=GroupBy.MACHINE)
    state.claims.grant(request(1, share(MACHINE, 2)))
    listed = [outstanding(2, (MACHINE, 2))]
    state.configure(spec(Mode.INDIVIDUAL, outstanding=listed))
    state.claims.release(uid(1))
    before = offered(state)
    state.configure(spec(group_by=GroupBy.MACHINE, settle_seconds=10))  # whose own claim it is: not listed
    state.configure(spec(Mode.INDIVIDUAL, outstanding=listed, settle_seconds=10))
    assert offered(state) == before


def test_an_unprepared_claim_that_is_still_listed_keeps_the_cpus_that_it_had():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    state.claims.grant(request(2, share(NUMA1, 2)))
    listed = [outstanding(1, (NUMA1, 2)), outstanding(2, (NUMA1, 2))]
    state.configure(spec(group_by=GroupBy.MACHINE, outstanding=listed))
    held = granted(state, 2)
    state.claims.release(uid(1))
    state.claims.release(uid(2))
    state.claims.grant(request(2, share(NUMA1, 2)))
    assert granted(state, 2) == held


def test_a_restarted_agent_keeps_the_same_cpus_for_waiting_claims():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    state.configure(spec(Mode.INDIVIDUAL, outstanding=[outstanding(2, (NUMA1, 2))]))
    state.claims.release(uid(1))
    kept = INDIVIDUAL - set(offered(state))
    again = restarted(state)
    assert INDIVIDUAL - set(offered(again)) == kept


def test_a_claim_with_its_own_cpuset_gets_that_instead_of_its_earmark():
    state = node()
    state.configure(spec(group_by=GroupBy.SOCKET, outstanding=[outstanding(1, (NUMA1, 2))]))
    parameters = {"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": "6-7"}}
    config = [{"source": "FromClaim", "requests": [], "opaque": {"driver": "dra.cpu", "parameters": parameters}}]
    state.claims.grant(read_cpu_request(ref(1), claim_object(1, [share(NUMA1, 2)], config), "vm1"))
    assert granted(state, 1) == "6-7"


def test_cpus_reserved_meanwhile_cannot_be_kept():
    state = node()
    state.configure(spec(Mode.INDIVIDUAL, reserved="0-5", outstanding=[outstanding(1, (NUMA1, 4))]))
    assert offered(state) == {}
    with pytest.raises(ClaimError):
        state.claims.grant(request(1, share(NUMA1, 4)))


def test_a_listed_claim_of_a_device_that_does_not_exist_gets_no_earmark():
    state = node()
    state.configure(spec(Mode.INDIVIDUAL, outstanding=[outstanding(1, ("cpudevnuma007", 2), ("cpudev900", 1))]))
    assert set(offered(state)) == INDIVIDUAL


def test_several_shares_of_a_device_are_kept_together():
    state = node(machine(sockets=2, cores=4))
    state.configure(spec(Mode.INDIVIDUAL, outstanding=[outstanding(1, (NUMA1, 2), (NUMA1, 3))]))
    assert len(offered(state)) == 14 - 5
    state.claims.grant(request(1, share(NUMA1, 2, "a"), share(NUMA1, 3, "b", 1)))
    assert len(offered(state)) == 14 - 5
