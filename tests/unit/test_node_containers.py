"""A node's decisions about containers: their CPUs, the updates to send, and the proof of their claims."""

import pytest
from nodes import (
    OLD_RUNTIME,
    cdi,
    container,
    granted,
    key,
    node,
    offered,
    pending_push,
    request,
    running,
    share,
    uid,
)

from dracpu_agent.errors import ClaimError, PlacementError
from dracpu_agent.placement.container import ContainerUpdate
from dracpu_agent.placement.proof import UnknownConsumerError
from dracpu_api.cpuset import CpuSet

NUMA0, NUMA1 = "cpudevnuma000", "cpudevnuma001"


def cpus(text):
    return CpuSet.parse(text)


# ---- containers


def test_containers_without_claims_share_what_is_neither_reserved_nor_held():
    state = node()
    assert str(state.containers.create(container("before")).cpus) == "2-7"
    state.claims.grant(request(1, share(NUMA1, 2)))
    assert state.containers.create(container("after")).cpus == cpus("2-7") - state.claims[uid(1)].cpus


def test_a_pinned_container_runs_on_its_claim_and_others_are_moved_off_in_the_same_reply():
    state = node()
    running(state, container("before"))
    state.claims.grant(request(1, share(NUMA1, 2)))
    placement = state.containers.create(container("pinned", cdi(1)))
    assert placement.cpus == state.claims[uid(1)].cpus
    assert placement.updates == (ContainerUpdate("before", cpus("2-7") - placement.cpus),)


def test_shared_containers_off_the_claims_cpus_are_not_touched_by_its_container():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    running(state, container("after"))
    assert state.containers.create(container("pinned", cdi(1))).updates == ()


def test_a_container_runs_on_the_cpus_of_the_requests_that_it_references():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2, "a"), share(NUMA0, 2, "b", 1)))
    claim = state.claims[uid(1)]
    assert state.containers.create(container("one", cdi(1, "a"))).cpus == claim.cpus_of("a")
    assert state.containers.create(container("both", cdi(1, "a"), cdi(1, "b"))).cpus == claim.cpus


def test_a_released_claims_cpus_are_pushed_to_shared_containers():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    running(state, container("shared"))
    assert state.containers.next_push() is None
    state.claims.release(uid(1))
    assert state.containers.next_push() == ContainerUpdate("shared", cpus("2-7"))
    state.containers.pushed(ContainerUpdate("shared", cpus("2-7")), applied=True)
    assert state.containers.next_push() is None


def test_a_grant_cancels_the_growth_that_was_not_sent_yet():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 4)))
    running(state, container("shared"))
    state.claims.release(uid(1))
    state.claims.grant(request(2, share(NUMA1, 4)))
    assert state.containers.next_push() is None


def test_a_growth_answered_after_a_grant_is_pushed_again_without_the_granted_cpus():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 4)))
    running(state, container("shared"))
    state.claims.release(uid(1))
    under_way = pending_push(state)
    state.claims.grant(request(2, share(NUMA1, 4)))
    state.containers.pushed(under_way, applied=True)
    assert state.containers.next_push() == ContainerUpdate("shared", cpus("2-3"))


def test_a_failed_push_is_repeated():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    running(state, container("shared"))
    state.claims.release(uid(1))
    update = pending_push(state)
    state.containers.pushed(update, applied=False)
    assert state.containers.next_push() == update
    assert state.containers.next_push(skip=frozenset(["shared"])) is None


def test_nothing_is_pushed_before_the_runtime_has_the_answer_to_its_synchronization():
    state = node()
    state.containers.disconnected()
    state.containers.synchronize([container("shared")])
    state.containers.repeat("shared")
    state.claims.grant(request(1, share(NUMA1, 2)))
    assert state.containers.next_push() is None
    state.containers.allow_pushes()
    assert state.containers.next_push() is not None


def test_without_safe_pushes_containers_get_freed_cpus_with_the_next_hook():
    state = node(runtime=OLD_RUNTIME)
    state.claims.grant(request(1, share(NUMA1, 2), pods=["p"]))
    running(state, container("shared"))
    state.claims.release(uid(1))
    assert state.containers.next_push() is None
    assert state.containers.create(container("next")).updates == (ContainerUpdate("shared", cpus("2-7")),)


def test_an_update_by_the_kubelet_repeats_the_containers_cpus():
    state = node()
    running(state, container("shared"))
    assert state.containers.repeat("shared") == ContainerUpdate("shared", cpus("2-7"))
    assert state.containers.repeat("unknown") is None


def test_when_claims_hold_everything_offered_others_fall_back_on_reserved_cpus():
    state = node()
    running(state, container("shared"))
    state.claims.grant(request(1, share(NUMA0, 2), share(NUMA1, 4, "b", 1)))
    assert state.containers.next_push() == ContainerUpdate("shared", cpus("0-1"))


def test_a_claims_cpus_linger_until_its_last_container_has_ended():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 4)))
    running(state, container("one", cdi(1)), container("two", cdi(1)))
    assert not state.claims.release(uid(1))
    assert str(state.containers.create(container("shared")).cpus) == "2-3"
    state.containers.stopped("one")
    with pytest.raises(ClaimError):
        state.claims.grant(request(2, share(NUMA1, 1)))
    state.containers.stopped("two")
    assert uid(1) not in state.claims
    state.claims.grant(request(2, share(NUMA1, 4)))


def test_prepare_revives_a_lingering_claim():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 4)))
    running(state, container("one", cdi(1)))
    state.claims.release(uid(1))
    assert not state.claims.grant(request(1, share(NUMA1, 4))).claim.lingering
    state.containers.stopped("one")
    assert uid(1) in state.claims


def test_a_claim_unprepared_while_the_runtime_is_away_lingers_until_containers_are_known():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 4)))
    state.containers.disconnected()
    assert not state.claims.release(uid(1))
    state.containers.synchronize([container("one", cdi(1))])
    assert uid(1) in state.claims
    state.containers.synchronize([])
    assert uid(1) not in state.claims


def test_a_restarted_container_keeps_its_cpus_in_any_order_of_stop_and_create():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    running(state, container("old", cdi(1)))
    fresh = state.containers.create(container("new", cdi(1)))
    state.containers.stopped("old")
    state.containers.stopped("old")
    assert fresh.cpus == state.claims[uid(1)].cpus
    assert state.containers.uses(key(1))


def test_synchronize_updates_only_the_containers_whose_cpus_are_wrong():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    held = state.claims[uid(1)].cpus
    updates, unproven = state.containers.synchronize(
        [
            container("right", cpus=cpus("2-7") - held),
            container("strayed", cpus=cpus("0-7")),
            container("unlimited"),
            container("pinned", cdi(1), cpus=held),
            container("unpinned", cdi(1)),
        ]
    )
    assert unproven == ()
    assert {update.container_id: update.cpus for update in updates} == {
        "strayed": cpus("2-7") - held,
        "unlimited": cpus("2-7") - held,
        "unpinned": held,
    }


def test_a_container_without_proof_does_not_prevent_the_repair_of_others():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 4)))
    updates, unproven = state.containers.synchronize(
        [container("lost", cdi(7)), container("forger", env=[f"DRA_CPUSET_{uid(1)}=4-7"]), container("plain")]
    )
    assert [found.container.name for found in unproven] == ["lost", "forger"]
    assert {update.container_id: str(update.cpus) for update in updates} == dict.fromkeys(
        ("lost", "forger", "plain"), "2-3"
    )


def test_a_container_that_has_ended_does_not_start():
    state = node()
    running(state, container("short"))
    state.containers.stopped("short")
    assert state.containers.begin_start(container("short")) is None
    with pytest.raises(PlacementError, match="short has ended"):
        state.containers.check_start(container("short"))


def test_containers_are_updated_again_when_the_creation_that_moved_them_has_failed():
    state = node(runtime=OLD_RUNTIME)
    running(state, container("shared"))
    state.claims.grant(request(1, share(NUMA1, 4), pods=["p"]))
    entry = f"DRA_CPUSET_{uid(1)}=4-7"
    move = (ContainerUpdate("shared", cpus("2-3")),)
    assert state.containers.create(container("first", env=[entry], pod="p")).updates == move
    assert state.containers.stopped("first") == move  # the runtime applied nothing of the first reply
    second = state.containers.create(container("second", env=[entry], pod="p"))
    assert second.updates == move  # once more, as nobody reports whether it was applied
    third = state.containers.create(container("third", env=[entry], pod="p"))
    assert third.updates == ()


def test_updates_due_after_a_removal_are_sent_with_the_next_hook():
    state = node(runtime=OLD_RUNTIME)
    running(state, container("shared"), container("old"))
    state.claims.grant(request(1, share(NUMA1, 4), pods=["p"]))
    state.containers.ended("old")
    placement = state.containers.create(container("c", env=[f"DRA_CPUSET_{uid(1)}=4-7"], pod="p"))
    assert placement.updates == (ContainerUpdate("shared", cpus("2-3")),)


def test_lingering_cpus_are_not_offered():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 4)))
    running(state, container("c", cdi(1)))
    state.claims.release(uid(1))
    assert offered(state) == {NUMA0: 2}
    state.containers.stopped("c")
    assert offered(state) == {NUMA0: 2, NUMA1: 4}


def test_a_creation_that_failed_without_a_report_does_not_make_its_claim_linger():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 4)))
    state.containers.create(container("phantom", cdi(1)))
    assert state.claims.release(uid(1))
    assert uid(1) not in state.claims


def test_a_container_proven_later_gets_its_claims_cpus():
    state = node(runtime=OLD_RUNTIME)
    state.claims.grant(request(1, share(NUMA1, 4), pods=["first"]))
    second = container("second", env=[f"DRA_CPUSET_{uid(1)}=4-7"], cpus=cpus("4-7"))
    _, (unproven,) = state.containers.synchronize([second])
    assert unproven.claim_to_read == key(1)
    state.claims.set_consumers(uid(1), frozenset(["second"]))
    state.containers.prove_again(second)
    assert state.containers.repeat("second") == ContainerUpdate("second", cpus("4-7"))


# ---- proof


def test_a_container_of_a_claim_that_is_not_prepared_is_refused():
    with pytest.raises(PlacementError, match="not prepared on this node"):
        node().containers.create(container("c", cdi(1)))


@pytest.mark.parametrize(
    "entry", [f"DRA_CPUSET_{uid(1)}=4-7", "DRA_CPUSET_X=1", "DRA_CPUSET_=", f"DRA_CPUSET_{uid(1)}"]
)
def test_our_variables_without_a_cdi_device_are_refused(entry):
    state = node()
    state.claims.grant(request(1, share(NUMA1, 4)))
    with pytest.raises(PlacementError, match="pods must not set variables"):
        state.containers.create(container("forger", env=[entry.format("DRA_CPUSET_")]))


def test_a_container_with_a_claim_cannot_claim_another_one_by_environment():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    state.claims.grant(request(2, share(NUMA1, 2)))
    mine = f"DRA_CPUSET_{uid(1)}={granted(state, 1)}"
    with pytest.raises(PlacementError):
        state.containers.create(container("forger", cdi(1), env=[mine, f"DRA_CPUSET_{uid(2)}={granted(state, 2)}"]))
    assert state.containers.create(container("honest", cdi(1), env=[mine])).cpus == cpus(granted(state, 1))


def test_variables_with_similar_names_are_not_checked():
    assert node().containers.create(container("c", env=["DRA_CPUSETFOO=1", "MY_DRA_CPUSET_X=2"])).cpus


def test_an_old_runtime_proves_a_claim_by_environment_namespace_cpuset_and_pod():
    state = node(runtime=OLD_RUNTIME)
    state.claims.grant(request(1, share(NUMA1, 4), pods=["mine"]))
    entry = f"DRA_CPUSET_{uid(1)}=4-7"
    assert str(state.containers.create(container("c", env=[entry], pod="mine")).cpus) == "4-7"
    with pytest.raises(PlacementError, match="not a claim prepared"):
        state.containers.create(container("wrong-cpus", env=[f"DRA_CPUSET_{uid(1)}=4-6"], pod="mine"))
    with pytest.raises(UnknownConsumerError):
        state.containers.create(container("stranger", env=[entry], pod="other"))
    state.claims.set_consumers(uid(1), frozenset(["other"]))
    assert str(state.containers.create(container("second", env=[entry], pod="other")).cpus) == "4-7"


def test_a_claims_consumers_are_the_pods_that_it_is_reserved_for_and_those_whose_containers_run():
    state = node(runtime=OLD_RUNTIME)
    state.claims.grant(request(1, share(NUMA1, 4), pods=["forgotten"]))
    entry = f"DRA_CPUSET_{uid(1)}=4-7"
    running(state, container("forgotten", env=[entry]))  # it was force-deleted, so the claim is not reserved for it
    for pod in ("first", "second", "third"):
        state.claims.set_consumers(uid(1), frozenset([pod]))
        running(state, container(pod, env=[entry]))
        state.containers.ended(pod)
    assert state.claims[uid(1)].consumers == {"forgotten", "third"}
    state.claims.grant(request(1, share(NUMA1, 4), pods=["fourth"]))
    assert state.claims[uid(1)].consumers == {"forgotten", "fourth"}
    state.containers.ended("forgotten")
    state.claims.set_consumers(uid(1), frozenset(["fourth"]))
    assert state.claims[uid(1)].consumers == {"fourth"}
