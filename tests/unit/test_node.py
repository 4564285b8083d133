"""A node's decisions about settings and claims, and the state that it keeps."""

from dataclasses import replace

import pytest
from nodes import (
    NODE,
    SAFE_RUNTIME,
    cdi,
    claim_object,
    container,
    granted,
    machine,
    node,
    offered,
    ref,
    request,
    revived,
    running,
    share,
    spec,
    uid,
    whole,
)

from dracpu_agent.claims.cpu_asks import read_cpu_request
from dracpu_agent.claims.cpu_claim import CpuClaim, CpuGrant
from dracpu_agent.claims.ledger import LedgerError
from dracpu_agent.claims.request import ClaimRefusedError
from dracpu_agent.errors import ClaimError, NotReadyError, SettingsRefusedError
from dracpu_agent.node import NodeState
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import Allocation, GroupBy, Mode

NUMA0, NUMA1 = "cpudevnuma000", "cpudevnuma001"


def cpus(text):
    return CpuSet.parse(text)


# ---- settings


def test_without_reserved_cpus_the_lowest_core_is_withheld():
    state = node()
    assert str(state.cpus.reserved) == "0-1"
    assert offered(state) == {NUMA0: 2, NUMA1: 4}


def test_a_node_without_settings_offers_and_prepares_nothing():
    state = NodeState(NODE, machine())
    assert state.devices() == ()
    with pytest.raises(NotReadyError, match="no CpuDriverConfig selects it"):
        state.claims.grant(request(1, share(NUMA0, 2)))


@pytest.mark.parametrize(
    ("reserved", "message"),
    [("0,64", "names CPU 64"), ("0-7", "leaves no CPU")],
)
def test_settings_that_a_node_cannot_apply_leave_it_on_its_last_good_ones(reserved, message):
    state = node(reserved="2")
    with pytest.raises(SettingsRefusedError, match=message):
        state.configure(spec(reserved=reserved))
    assert str(state.cpus.reserved) == "2"


def test_settings_that_leave_nothing_to_share_are_refused():
    state = node(reserved="0-1")
    state.claims.grant(request(1, share(NUMA1, 2)))
    assert granted(state, 1) == "4-5"
    with pytest.raises(SettingsRefusedError, match="nothing to share"):
        state.configure(spec(reserved="4-5"))


# ---- claims


def test_a_grouping_that_the_machine_does_not_have_is_refused():
    without_caches = replace(machine(), cpus=tuple(replace(cpu, l3=-1) for cpu in machine().cpus))
    state = node(without_caches)
    with pytest.raises(SettingsRefusedError, match="groupBy l3cache: the kernel reports no such groups"):
        state.configure(spec(group_by=GroupBy.L3_CACHE))
    assert offered(state) == {"cpudevnuma000": 2, NUMA1: 4}


def test_cpus_without_an_l3_cache_are_offered_by_no_device_and_stay_shared():
    mixed = replace(machine(), cpus=tuple(replace(cpu, l3=-1) if cpu.id >= 6 else cpu for cpu in machine().cpus))
    state = node(mixed, group_by=GroupBy.L3_CACHE)
    assert offered(state) == {"cpudevl3cache000": 2, "cpudevl3cache001": 2}
    assert str(state.cpus.ungrouped()) == "6-7"
    state.claims.grant(request(1, share("cpudevl3cache001", 2)))
    assert (granted(state, 1), str(state.division.shared)) == ("4-5", "2-3,6-7")


def test_a_claim_for_two_cpus_gets_both_threads_of_one_core():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    assert granted(state, 1) in ("4-5", "6-7")


def test_requests_of_one_claim_get_disjoint_cpus():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 1, "a"), share(NUMA1, 2, "b", 1), share(NUMA0, 2, "c", 2)))
    claim = state.claims[uid(1)]
    assert sorted(len(claim.cpus_of(name)) for name in "abc") == [1, 2, 2]
    assert len(claim.cpus) == 5


def test_an_explicit_cpuset_is_chosen_before_the_allocator_can_take_its_cpus():
    state = node()
    config = [
        {
            "source": "FromClaim",
            "requests": ["b"],
            "opaque": {"driver": "dra.cpu", "parameters": {"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": "4-5"}}},
        }
    ]
    asked = claim_object(1, [share(NUMA1, 2, "a"), share(NUMA1, 2, "b", 1)], config)
    state.claims.grant(read_cpu_request(ref(1), asked, NODE))
    claim = state.claims[uid(1)]
    assert (str(claim.cpus_of("a")), str(claim.cpus_of("b"))) == ("6-7", "4-5")


def test_the_same_claim_asked_again_keeps_its_cpus():
    state = node()
    first = state.claims.grant(request(1, share(NUMA1, 2), pods=["a"]))
    again = state.claims.grant(request(1, share(NUMA1, 2), pods=["a", "b"]))
    assert first.fresh
    assert not again.fresh
    assert again.claim.cpus == first.claim.cpus
    assert again.claim.consumers == {"a", "b"}


def test_another_allocation_of_a_claim_that_no_container_uses_is_resolved_anew():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    state.claims.grant(request(1, share(NUMA0, 2)))
    assert granted(state, 1) == "2-3"


def test_another_allocation_is_refused_while_containers_of_the_former_one_run():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    before = granted(state, 1)
    running(state, container("c", cdi(1)))
    with pytest.raises(ClaimRefusedError, match="have to end first"):
        state.claims.grant(request(1, share(NUMA0, 2)))
    assert granted(state, 1) == before


def test_another_allocation_that_does_not_fit_leaves_the_former_one():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    before = granted(state, 1)
    with pytest.raises(ClaimError):
        state.claims.grant(request(1, share(NUMA0, 3)))
    assert granted(state, 1) == before


def test_a_request_for_more_cpus_than_are_free_is_refused_and_takes_none():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 3)))
    with pytest.raises(ClaimError):
        state.claims.grant(request(2, share(NUMA1, 1), share(NUMA1, 1, "b", 1)))
    assert set(state.claims) == {uid(1)}


def test_a_group_given_without_an_amount_is_refused():
    result = {key: value for key, value in share(NUMA1, 4).items() if key != "consumedCapacity"}
    with pytest.raises(ClaimRefusedError, match="DRAConsumableCapacity"):
        node().claims.grant(request(1, result))


def test_individual_devices_are_exactly_the_cpus_that_they_name():
    state = node(mode=Mode.INDIVIDUAL)
    state.claims.grant(request(1, whole(3), whole(6)))
    assert granted(state, 1) == "3,6"
    with pytest.raises(ClaimError):
        state.claims.grant(request(2, whole(6)))


def test_a_reserved_cpu_is_never_given_even_when_it_was_allocated():
    state = node(mode=Mode.INDIVIDUAL, reserved="2-3")
    with pytest.raises(ClaimError, match="2"):
        state.claims.grant(request(1, whole(2)))


def test_a_device_that_the_machine_does_not_have_is_refused_by_name():
    with pytest.raises(ClaimRefusedError, match="no device cpudevnuma007"):
        node().claims.grant(request(1, share("cpudevnuma007", 1)))


def test_full_cores_are_given_whole():
    state = node(allocation=Allocation(full_cores=True))
    state.claims.grant(request(1, share(NUMA1, 2)))
    with pytest.raises(ClaimError):
        state.claims.grant(request(2, share(NUMA1, 1)))


def test_undoing_a_grant_frees_its_cpus_and_no_others():
    state = node()
    kept = state.claims.grant(request(1, share(NUMA1, 2)))
    undone = state.claims.grant(request(2, share(NUMA1, 2)))
    state.claims.undo(undone)
    state.claims.undo(state.claims.grant(request(1, share(NUMA1, 2))))
    assert set(state.claims) == {uid(1)}
    assert state.claims[uid(1)].cpus == kept.claim.cpus


def test_a_claim_of_the_former_representation_still_prepares_while_its_cpus_are_free():
    state = node()
    state.configure(spec(Mode.INDIVIDUAL))
    state.claims.grant(request(1, share(NUMA1, 2)))
    assert granted(state, 1) == "4-5"
    assert state.cpus.draining() == (ref(1),)
    assert "cpudev004" not in [device.name for device in state.devices()]
    state.claims.release(uid(1))
    assert "cpudev004" in [device.name for device in state.devices()]


def test_a_claim_keeps_cpus_that_become_reserved():
    state = node(reserved="0")
    state.claims.grant(request(1, share(NUMA0, 1)))
    held = granted(state, 1)
    state.configure(spec(reserved=f"0,{held}"))
    assert granted(state, 1) == held
    assert str(state.containers.create(container("c", cdi(1))).cpus) == held


# ---- persistence


def test_a_restarted_node_has_its_claims_and_settings():
    state = node(reserved="2", group_by=GroupBy.SOCKET)
    state.claims.grant(request(1, share("cpudevsocket001", 2), pods=["a"]))
    again = revived(state.checkpoint())
    assert again.claims == state.claims
    assert again.devices() == state.devices()
    with pytest.raises(ClaimError):
        again.claims.grant(request(2, share("cpudevsocket001", 3)))


def test_two_claims_cannot_be_booked_on_one_cpu():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 4)))
    grant = CpuGrant(request="main", pool=NODE, device=NUMA1, share_id=None, cpus=cpus("4"))
    with pytest.raises(LedgerError, match="not free"):
        state.adopt(CpuClaim(ref(2), (grant,), frozenset(), ""))


def test_listeners_are_called_after_every_change_and_not_otherwise():
    state = node()
    heard: list[int] = []
    state.on_change(lambda: heard.append(1))
    state.claims.grant(request(1, share(NUMA1, 2)))
    assert len(heard) == 1
    state.claims.grant(request(1, share(NUMA1, 2)))
    assert len(heard) == 1
    state.containers.connected(SAFE_RUNTIME)
    assert len(heard) == 2
