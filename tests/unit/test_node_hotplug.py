"""CPUs go offline and come back under a node that has given some of them away."""

from dataclasses import replace

import pytest
from nodes import (
    OLD_RUNTIME,
    container,
    machine,
    node,
    outstanding,
    request,
    revived,
    share,
    spec,
    started,
    uid,
    whole,
    without,
)

from dracpu_agent.claims import checkpoint
from dracpu_agent.claims.request import ClaimRefusedError
from dracpu_agent.errors import ClaimError, PlacementError, SettingsRefusedError
from dracpu_agent.node import NodeState
from dracpu_agent.report.device_health import health_of
from dracpu_agent.report.document import document_of_checkpoint
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import Allocation, GroupBy, Mode

NUMA0, NUMA1 = "cpudevnuma000", "cpudevnuma001"
WHOLE = machine()  # cores 0-1 2-3 on NUMA node 0, 4-5 6-7 on NUMA node 1


def unplug(state: NodeState, offline: str) -> None:
    state.replug(without(WHOLE, offline))


def restarted(state: NodeState, offline: str = "") -> NodeState:
    """The node after its agent was started again."""
    saved = checkpoint.decode(checkpoint.encode(state.checkpoint()))
    return revived(saved, without(WHOLE, offline))


def values(state: NodeState) -> dict[str, int]:
    return {device.name: device.capacity.value for device in state.devices() if device.capacity}


def taints(state: NodeState) -> dict[str, list[tuple[str, str]]]:
    return {device.name: [(taint.key, taint.effect) for taint in device.taints] for device in state.devices()}


def running(state: NodeState, *claims: int) -> dict[str, str]:
    """Containers of these claims and one without any, and where the runtime keeps them."""
    made = [container("shared"), *(container(f"of-{number}", f"claim-{uid(number)}") for number in claims)]
    placed = {}
    for new in made:
        placed[new.id] = str(state.containers.create(new).cpus)
        started(state, new)
    return placed


def pushed(state: NodeState) -> dict[str, str]:
    """All updates that the runtime is sent now."""
    sent = {}
    while update := state.containers.next_push():
        sent[update.container_id] = str(update.cpus)
        state.containers.pushed(update, applied=True)
    return sent


# ---- devices


def test_a_group_shrinks_by_its_offline_cpus_and_grows_when_they_are_back():
    state = node()
    unplug(state, "6-7")
    assert values(state) == {NUMA0: 2, NUMA1: 2}
    assert next(d for d in state.devices() if d.name == NUMA1).attributes["dra.cpu/numCPUs"] == 2
    unplug(state, "")
    assert values(state) == {NUMA0: 2, NUMA1: 4}
    assert state.topology.gone == ()


def test_new_cpus_are_offered():
    state = node(topology=without(WHOLE, "4-7"))
    assert values(state) == {NUMA0: 2}
    state.replug(WHOLE)
    assert values(state) == {NUMA0: 2, NUMA1: 4}


def test_an_individual_cpu_that_is_offline_is_not_offered():
    state = node(mode=Mode.INDIVIDUAL)
    unplug(state, "5")
    assert set(taints(state)) == {f"cpudev{cpu:03d}" for cpu in (2, 3, 4, 6, 7)}


def test_the_device_of_a_held_cpu_that_is_offline_stays_and_is_closed_to_others():
    state = node(mode=Mode.INDIVIDUAL)
    state.claims.grant(request(1, whole(5)))
    before = {device.name: device for device in state.devices()}
    unplug(state, "5")
    after = {device.name: device for device in state.devices()}
    assert set(after) == set(before)
    assert taints(state)["cpudev005"] == [("dra.cpu/offline", "NoSchedule")]
    assert after["cpudev005"].attributes == before["cpudev005"].attributes
    state.claims.release(uid(1))
    assert "cpudev005" not in taints(state)
    unplug(state, "")
    assert taints(state)["cpudev005"] == []


def test_an_agent_that_starts_while_a_held_cpu_is_offline_still_publishes_its_device():
    state = node(mode=Mode.INDIVIDUAL)
    state.claims.grant(request(1, whole(5)))
    state = restarted(state, "5")
    assert taints(state)["cpudev005"] == [("dra.cpu/offline", "NoSchedule")]
    assert state.cpus.draining() == ()
    assert str(state.claims[uid(1)].cpus) == "5"


def test_a_group_with_online_cpus_stays_open_when_a_cpu_of_a_claim_is_offline():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    unplug(state, "4")
    assert taints(state) == {NUMA0: [], NUMA1: [("dra.cpu/offline", "None")]}
    # two of three CPUs are held or gone with a claim: the scheduler counts 2 of these 3 as consumed
    assert values(state) == {NUMA0: 2, NUMA1: 3}
    state.claims.release(uid(1))
    assert taints(state)[NUMA1] == []


def test_a_group_without_online_cpus_is_absent_unless_claims_hold_shares_of_it():
    state = node()
    unplug(state, "4-7")
    assert values(state) == {NUMA0: 2}
    unplug(state, "")
    state.claims.grant(request(1, share(NUMA1, 3)))
    for waiting in (state, restarted(state, "4-7")):
        unplug(waiting, "4-7")
        assert values(waiting) == {NUMA0: 2, NUMA1: 3}
        assert taints(waiting)[NUMA1] == [("dra.cpu/offline", "NoSchedule")]
        assert waiting.cpus.draining() == ()
    unplug(state, "")
    assert (values(state), taints(state)[NUMA1]) == ({NUMA0: 2, NUMA1: 4}, [])


def test_with_full_cores_a_core_with_an_offline_thread_is_not_offered():
    state = node(allocation=Allocation(full_cores=True))
    unplug(state, "7")
    assert values(state)[NUMA1] == 2


# ---- claims


def test_a_claim_keeps_its_offline_cpus_through_prepare_and_restart():
    state = node()
    first = state.claims.grant(request(1, share(NUMA1, 2))).claim
    unplug(state, "4-5")
    for found in (state, restarted(state, "4-5")):
        again = found.claims.grant(request(1, share(NUMA1, 2)))
        assert (again.fresh, again.claim) == (False, first)
        assert list(again.claim.cdi_devices()) == list(first.cdi_devices())


def test_other_claims_do_not_get_the_cpus_that_a_claim_misses():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    unplug(state, "4-5")
    state.claims.grant(request(2, share(NUMA1, 2)))
    assert str(state.claims[uid(2)].cpus) == "6-7"
    unplug(state, "")
    with pytest.raises(ClaimError):
        state.claims.grant(request(3, share(NUMA1, 1)))


@pytest.mark.parametrize("result", [whole(5), share(NUMA1, 1)])
def test_a_claim_of_an_offline_device_is_refused_with_that_reason(result):
    state = node()
    unplug(state, "4-7")
    with pytest.raises(ClaimRefusedError, match="offline"):
        state.claims.grant(request(1, result))


def test_an_earmark_whose_cpus_go_offline_moves():
    state = node(mode=Mode.INDIVIDUAL, outstanding=[outstanding(1, (NUMA1, 2))])
    assert {"cpudev004", "cpudev005"}.isdisjoint(taints(state))
    unplug(state, "4-5")
    assert set(taints(state)) == {"cpudev002", "cpudev003"}
    state.claims.grant(request(1, share(NUMA1, 2)))
    assert str(state.claims[uid(1)].cpus) == "6-7"


# ---- containers


def test_containers_run_on_their_online_cpus_and_get_the_others_back():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    assert running(state, 1) == {"shared": "2-3,6-7", "of-1": "4-5"}
    unplug(state, "5,7")
    assert pushed(state) == {"shared": "2-3,6", "of-1": "4"}
    unplug(state, "")
    assert pushed(state) == {"shared": "2-3,6-7", "of-1": "4-5"}


def test_a_container_whose_cpus_are_all_offline_runs_on_shared_cpus():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    state.claims.grant(request(2, share(NUMA1, 2)))
    running(state, 1)
    unplug(state, "4-5")
    assert pushed(state) == {"of-1": "2-3"}
    assert str(state.containers.create(container("again", f"claim-{uid(1)}")).cpus) == "2-3"
    unplug(state, "")
    assert pushed(state) == {"of-1": "4-5"}


def test_without_pushes_the_next_reply_updates_containers_whose_cpus_are_all_offline():
    state = node(runtime=OLD_RUNTIME)
    state.claims.grant(request(1, share(NUMA1, 2), pods=["of-1"]))
    env = f"DRA_CPUSET_{uid(1)}=4-5"
    of_1 = container("of-1", env=[env])
    state.containers.create(of_1)
    started(state, of_1)
    unplug(state, "4-5")
    assert state.containers.next_push() is None
    (update,) = state.containers.create(container("new")).updates
    assert (update.container_id, str(update.cpus)) == ("of-1", "2-3,6-7")


def test_a_container_whose_cpus_went_offline_while_it_was_created_does_not_start():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    made = container("a", f"claim-{uid(1)}")
    state.containers.create(made)
    unplug(state, "4-5")
    with pytest.raises(PlacementError, match='would start on CPUs "4-5", which are offline'):
        state.containers.check_start(made)


def test_no_update_is_sent_when_no_cpu_is_left_to_share():
    state = node(reserved="0-1")
    state.claims.grant(request(1, share(NUMA0, 2)))
    state.claims.grant(request(2, share(NUMA1, 4)))
    running(state)
    unplug(state, "0-1")
    assert pushed(state) == {}
    with pytest.raises(PlacementError, match="no CPU is left"):
        state.containers.create(container("new"))
    unplug(state, "")
    assert str(state.division.shared) == "0-1"


# ---- the reserve


def test_the_online_threads_of_the_withheld_core_stay_withheld():
    state = node()
    unplug(state, "0")
    assert (str(state.cpus.reserved & state.topology.online), values(state)[NUMA0]) == ("1", 2)
    for found in (state, restarted(state)):
        unplug(found, "")
        assert str(found.cpus.reserved) == "0-1"


@pytest.mark.parametrize("reserved", ["", "0-1", "0"])
def test_when_all_reserved_cpus_are_offline_a_core_that_no_claim_holds_is_withheld(reserved):
    state = node(reserved=reserved)
    state.claims.grant(request(1, share(NUMA0, 2)))
    unplug(state, "0-1")
    assert str(state.cpus.reserved - CpuSet.parse(reserved)) == "4-5"
    assert values(state)[NUMA1] == 2
    unplug(state, "0-1,7")
    assert str(state.cpus.reserved - CpuSet.parse(reserved)) == "4-5", "it does not wander"
    state.claims.release(uid(1))
    unplug(state, "0-1")
    assert str(state.cpus.reserved - CpuSet.parse(reserved)) == "4-5", "it does not wander back either"
    assert restarted(state, "0-1").cpus.reserved == state.cpus.reserved
    unplug(state, "")
    assert str(state.cpus.reserved) == (reserved or "0-1")


def test_settings_in_force_are_not_refused_when_cpus_go_offline():
    state = node(reserved="0-1")
    state.claims.grant(request(1, share(NUMA0, 2)))
    state.claims.grant(request(2, share(NUMA1, 4)))
    unplug(state, "0-1")
    state.configure(spec(reserved="0-1", revision="r2"))
    assert state.spec is not None
    assert state.spec.revision == "r2"
    again = restarted(state, "0-1")
    assert again.spec == state.spec
    with pytest.raises(SettingsRefusedError, match="nothing to share"):
        again.configure(spec(reserved="2"))


def test_only_a_core_that_no_claim_holds_begins_to_be_withheld():
    state = node(reserved="4-5")
    state.claims.grant(request(1, share(NUMA0, 2)))
    assert str(state.claims[uid(1)].cpus) == "0-1"
    state.configure(spec(revision="r2"))
    assert str(state.cpus.reserved) == "2-3"


def test_the_checkpoint_document_shows_the_withheld_core():
    assert document_of_checkpoint(node().checkpoint())["reserved"] == "0-1"
    assert document_of_checkpoint(node(reserved="4").checkpoint())["reserved"] == "4"


def test_a_checkpoint_without_the_withheld_core_can_be_read():
    state = node()
    state.claims.grant(request(1, share(NUMA0, 2)))
    old = replace(state.checkpoint(), withheld=CpuSet())
    assert str(revived(old, without(WHOLE, "0-1")).cpus.reserved) == "4-5"


def test_cpus_that_are_kept_for_a_claim_are_not_withheld():
    state = node(outstanding=[outstanding(1, (NUMA1, 2))])
    unplug(state, "0-3,5-7")
    for found in (state, restarted(state, "0-3,5-7")):
        assert (str(found.cpus.reserved & found.topology.online), values(found)) == ("", {NUMA1: 1})
    state.configure(spec(revision="r2"))
    assert str(state.cpus.reserved & state.topology.online) == "4", "nobody waits for it any more"


def test_a_settling_node_publishes_the_same_devices_after_a_restart():
    state = node()
    state.configure(spec(Mode.INDIVIDUAL, reserved="4-5", settle_seconds=10, revision="r2"))
    assert (state.cpus.settling, values(state)) == (True, {NUMA0: 4, NUMA1: 2})
    assert values(restarted(state)) == values(state)


def test_a_device_kept_for_a_waiting_claim_does_not_count_as_held():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    unplug(state, "4")
    state.configure(spec(Mode.INDIVIDUAL, outstanding=[outstanding(2, ("cpudev004", 1))], revision="r2"))
    assert set(taints(state)) == {"cpudev002", "cpudev003", "cpudev006", "cpudev007"}


# ---- health


def health(state: NodeState) -> dict[str, str]:
    return {health.device: health.message for health in health_of(state, state.claims) if not health.healthy}


@pytest.mark.parametrize(("mode", "result"), [(Mode.GROUPED, share(NUMA1, 1)), (Mode.INDIVIDUAL, whole(4))])
def test_a_device_is_unhealthy_while_a_claim_misses_a_cpu_of_it(mode, result):
    state = node(mode=mode)
    state.claims.grant(request(1, result))
    device = result["device"]
    unplug(state, "7")
    assert health(state) == {}
    unplug(state, "4,7")
    assert list(health(state)) == [device]
    assert "CPU 4, which a claim holds, is offline" in health(state)[device]
    state.claims.release(uid(1))
    assert health(state) == {}


def test_devices_of_a_former_representation_have_a_health_while_claims_hold_them():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    state.configure(spec(Mode.INDIVIDUAL, GroupBy.MACHINE, revision="r2"))
    assert NUMA1 in {health.device for health in health_of(state, state.claims)}
    unplug(state, "4-5")
    assert "CPUs 4-5, which claims hold, are offline" in health(state)[NUMA1]
