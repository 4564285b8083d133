"""A node's decisions while CPUs that the runtime was sent may not be in force yet: starts, resizes, failed updates."""

from dataclasses import replace

import pytest
from nodes import (
    OLD_RUNTIME,
    SAFE_RUNTIME,
    cdi,
    container,
    key,
    machine,
    node,
    pending_push,
    request,
    running,
    share,
    uid,
    without,
)

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import ContainerUpdate
from dracpu_api.cpuset import CpuSet

NUMA0, NUMA1 = "cpudevnuma000", "cpudevnuma001"


def cpus(text):
    return CpuSet.parse(text)


def test_a_container_is_sent_no_update_before_it_runs():
    state = node()
    state.containers.create(container("young"))
    state.containers.created("young")
    state.claims.grant(request(1, share(NUMA1, 4)))
    assert state.containers.next_push() is None
    state.containers.check_start(container("young"))
    assert state.containers.next_push() is None
    state.containers.started(container("young"))
    assert state.containers.next_push() == ContainerUpdate("young", cpus("2-3"))


def test_a_claims_container_is_not_created_before_containers_that_may_start_on_its_cpus():
    state = node()
    young, pinned = container("young"), container("pinned", cdi(1))
    state.containers.create(young)
    state.claims.grant(request(1, share(NUMA1, 4)))
    for event in (state.containers.created, lambda _: state.containers.check_start(young)):
        with pytest.raises(PlacementError, match="young is being started or changed"):
            state.containers.create(pinned)
        event("young")
    state.containers.started(young)
    assert state.containers.create(pinned).updates == (ContainerUpdate("young", cpus("2-3")),)


def overdue():
    """A container that has been created on CPUs 2-7, and a claim on CPUs 4-7 that has waited for its start in vain."""
    state = node()
    state.containers.create(container("young"))
    state.containers.created("young")
    state.claims.grant(request(1, share(NUMA1, 4)))
    state.containers.expire("young")
    assert state.containers.create(container("pinned", cdi(1))).updates == (ContainerUpdate("young", cpus("2-3")),)
    return state


def doubt_about(state, starting):
    """The doubt with which the container would start."""
    doubt = state.containers.begin_start(starting)
    assert doubt is not None
    return doubt


def test_a_container_starts_late_if_its_cgroup_has_the_cpus_that_its_record_was_given_meanwhile():
    state = overdue()
    state.containers.resolve(doubt_about(state, container("young")), cpus("2-3"))
    state.containers.check_start(container("young"))
    state.containers.started(container("young"))
    assert state.containers.next_push() is None


def test_a_container_does_not_start_late_if_its_cgroup_has_cpus_of_a_claim_whose_container_exists():
    state = overdue()
    state.containers.resolve(doubt_about(state, container("young")), cpus("2-7"))
    with pytest.raises(PlacementError, match='young would start on CPUs "2-7", .* creates it again, unless'):
        state.containers.check_start(container("young"))


def test_a_container_does_not_start_in_doubt_where_no_cgroup_can_be_read():
    state = overdue()
    assert state.containers.begin_start(container("young")) is not None
    with pytest.raises(PlacementError, match="young would start on CPUs"):
        state.containers.check_start(container("young"))


def test_what_was_read_before_another_event_resolves_no_doubt():
    state = overdue()
    doubt = doubt_about(state, container("young"))
    state.claims.grant(request(2, share(NUMA0, 1)))
    state.containers.expire("pinned")
    state.containers.create(container("second", cdi(2)))  # its reply changes the record of "young" again
    state.containers.resolve(doubt, cpus("2-3"))
    assert state.containers.begin_start(container("young")) is not None


def listed_as_created(runtime=None):
    """A node that has just connected to the runtime: a claim's container runs, and "young" is created, not started."""
    state = node()
    state.claims.grant(request(1, share(NUMA1, 4)))
    running(state, container("pinned", cdi(1)))
    state.containers.disconnected()
    if runtime is not None:
        state.containers.connected(runtime)
    young = replace(container("young", cpus=cpus("2-7")), started=False)
    state.containers.synchronize([container("pinned", cdi(1), cpus=cpus("4-7")), young])
    state.containers.allow_pushes()
    return state


def test_a_container_that_was_created_without_an_agent_starts_where_its_cgroup_is_right():
    state = listed_as_created()
    state.containers.resolve(doubt_about(state, container("young")), cpus("2-3"))
    state.containers.check_start(container("young"))
    state.containers.started(container("young"))
    assert state.containers.next_push() is None


@pytest.mark.parametrize("in_its_cgroup", ["0-7", "2-7", None])
def test_a_container_whose_cgroup_was_written_without_an_agent_starts_and_is_moved_first(in_its_cgroup):
    state = listed_as_created()
    doubt = doubt_about(state, container("young"))
    if in_its_cgroup is not None:
        state.containers.resolve(doubt, cpus(in_its_cgroup))
    state.containers.check_start(container("young"))
    assert state.containers.unsettled_on(cpus("4-7"), key(1))
    state.containers.started(container("young"))
    assert state.containers.next_push() == ContainerUpdate("young", cpus("2-3"))


def test_a_container_whose_cgroup_was_written_without_an_agent_is_moved_before_others_are_confirmed():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 4)))
    state.containers.disconnected()
    others = [container(f"other-{number}", cpus=cpus("2-3")) for number in range(3)]
    state.containers.synchronize([*others, replace(container("young", cpus=cpus("2-7")), started=False)])
    state.containers.allow_pushes()
    state.containers.begin_start(container("young"))
    state.containers.check_start(container("young"))
    state.containers.started(container("young"))
    assert state.containers.next_push() == ContainerUpdate("young", cpus("2-3"))


def test_a_container_that_no_update_can_move_does_not_start_on_a_claim():
    state = node(machine(sockets=1, cores=2), reserved="0-1")
    state.claims.grant(request(1, share(NUMA0, 2)))
    running(state, container("pinned", cdi(1)))
    state.containers.disconnected()
    state.replug(without(state.topology, "0-1"))  # the claim has every CPU that is left
    young = replace(container("young"), started=False)
    state.containers.synchronize([container("pinned", cdi(1), cpus=cpus("2-3")), young])
    state.containers.allow_pushes()
    state.containers.resolve(doubt_about(state, container("young")), cpus("2-3"))
    with pytest.raises(PlacementError, match="where others run on their claims"):
        state.containers.check_start(container("young"))


def test_a_container_whose_claim_is_not_shown_yet_does_not_start_on_other_claims():
    state = node(runtime=replace(SAFE_RUNTIME, passes_cdi_devices=False))
    state.claims.grant(request(1, share(NUMA1, 4), pods=["first"]))
    state.claims.grant(request(2, share(NUMA0, 1), pods=["other"]))
    running(state, container("other", pod="other", env=[f"DRA_CPUSET_{uid(2)}=2"]))
    state.containers.disconnected()
    second = container("second", env=[f"DRA_CPUSET_{uid(1)}=4-7"], pod="second")
    state.containers.synchronize(
        [
            container("other", pod="other", env=[f"DRA_CPUSET_{uid(2)}=2"], cpus=cpus("2")),
            replace(second, started=False),
        ]
    )
    state.containers.allow_pushes()
    state.containers.resolve(doubt_about(state, second), cpus("0-7"))
    with pytest.raises(PlacementError, match="where others run on their claims"):
        state.containers.check_start(second)


def test_a_claims_container_does_not_wait_for_another_claims_container_that_is_not_started():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    state.claims.grant(request(2, share(NUMA1, 2)))
    state.containers.disconnected()
    state.containers.synchronize([replace(container("first", cdi(1)), started=False)])
    assert state.containers.create(container("second", cdi(2))).cpus == cpus("6-7")
    assert state.containers.create(container("again", cdi(1))).cpus == cpus("4-5")


def test_nothing_waits_anew_for_a_container_after_a_lost_connection():
    state = node()
    state.containers.create(container("young"))
    state.containers.created("young")
    state.claims.grant(request(1, share(NUMA1, 4)))
    state.containers.expire("young")
    state.containers.disconnected()
    state.containers.synchronize([replace(container("young", cpus=cpus("2-7")), started=False)])
    assert state.containers.create(container("pinned", cdi(1))).cpus == cpus("4-7")


def test_without_pushes_a_container_whose_cgroup_was_written_without_an_agent_does_not_start_on_a_claim():
    state = listed_as_created(runtime=OLD_RUNTIME)
    state.containers.resolve(doubt_about(state, container("young")), cpus("2-7"))
    with pytest.raises(PlacementError, match='young would start on CPUs "2-7"'):
        state.containers.check_start(container("young"))


def test_a_container_that_was_created_without_an_agent_and_starts_too_late_does_not_start_on_a_claim():
    state = listed_as_created()
    state.containers.expire("young")
    state.containers.resolve(doubt_about(state, container("young")), cpus("2-7"))
    with pytest.raises(PlacementError, match='young would start on CPUs "2-7"'):
        state.containers.check_start(container("young"))


def test_a_claims_container_whose_cgroup_was_written_without_an_agent_does_not_start_elsewhere():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 4)))
    state.containers.disconnected()
    pinned = container("pinned", cdi(1))
    state.containers.synchronize([replace(pinned, started=False)])
    state.containers.resolve(doubt_about(state, pinned), cpus("0-7"))
    with pytest.raises(PlacementError, match="which are not those of its claims"):
        state.containers.check_start(pinned)


def test_a_container_whose_creation_was_not_reported_starts_where_no_claim_is_in_the_way():
    state = node()
    late = container("late")
    assert state.containers.begin_start(late) is None
    state.containers.check_start(late)
    state.containers.started(late)
    assert state.containers.next_push() == ContainerUpdate("late", cpus("2-7"))


def test_a_claims_container_whose_creation_was_not_reported_starts_only_on_its_claim():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 4)))
    pinned = container("pinned", cdi(1))
    doubt = doubt_about(state, pinned)
    with pytest.raises(PlacementError, match="pinned would start on CPUs that are not known"):
        state.containers.check_start(pinned)
    state.containers.resolve(doubt, cpus("4-7"))
    state.containers.check_start(pinned)


def test_a_claims_container_is_not_created_while_another_one_is_being_started_on_its_cpus():
    state = node()
    young = container("young")
    state.containers.create(young)
    state.containers.check_start(young)
    state.claims.grant(request(1, share(NUMA1, 4)))
    assert state.containers.unsettled_on(cpus("4-7"), key(1))
    with pytest.raises(PlacementError, match="young is being started or changed"):
        state.containers.create(container("pinned", cdi(1)))
    state.containers.started(young)
    assert not state.containers.unsettled_on(cpus("4-7"), key(1))
    assert state.containers.create(container("pinned", cdi(1))).updates == (ContainerUpdate("young", cpus("2-3")),)


def test_nothing_waits_for_a_start_whose_end_is_never_reported():
    state = node()
    young = container("young")
    state.containers.create(young)
    state.containers.check_start(young)
    state.claims.grant(request(1, share(NUMA1, 4)))
    state.containers.expire("young")
    assert not state.containers.unsettled_on(cpus("4-7"), key(1))
    assert state.containers.next_push() == ContainerUpdate("young", cpus("2-3"))


def test_a_move_in_a_reply_is_pushed_again_as_the_runtime_does_not_report_its_failure():
    state = node()
    running(state, container("shared"))
    state.claims.grant(request(1, share(NUMA1, 4)))
    move = ContainerUpdate("shared", cpus("2-3"))
    assert state.containers.create(container("pinned", cdi(1))).updates == (move,)
    assert pending_push(state) == move
    state.containers.pushed(move, applied=True)
    assert state.containers.next_push() is None


def test_a_reply_does_not_replace_the_repetition_of_a_failed_push():
    state = node()
    running(state, container("shared"))
    state.claims.grant(request(1, share(NUMA1, 4)))
    move = pending_push(state)
    state.containers.pushed(move, applied=False)
    assert state.containers.create(container("pinned", cdi(1))).updates == (move,)
    assert state.containers.next_push() == move


def test_what_was_sent_during_a_resize_is_sent_again_after_it():
    state = node()
    shared = container("shared")
    running(state, shared)
    assert state.containers.repeat("shared") == ContainerUpdate("shared", cpus("2-7"))
    state.claims.grant(request(1, share(NUMA1, 4)))
    move = pending_push(state)
    state.containers.pushed(move, applied=True)
    assert state.containers.next_push() is None  # the runtime may still apply the resize
    state.containers.updated(shared)
    assert state.containers.next_push() == move


def test_without_pushes_a_container_is_moved_after_the_runtime_refused_its_resize():
    state = node(runtime=OLD_RUNTIME)
    running(state, container("shared"))
    state.claims.grant(request(1, share(NUMA1, 4), pods=["p"]))
    assert state.containers.repeat("shared") == ContainerUpdate(
        "shared", cpus("2-3")
    )  # but the runtime fails to apply it
    pinned = container("pinned", env=[f"DRA_CPUSET_{uid(1)}=4-7"], pod="p")
    assert state.containers.create(pinned).updates == (ContainerUpdate("shared", cpus("2-3")),)


def test_a_running_container_whose_creation_was_not_reported_is_placed():
    state = node()
    state.containers.started(container("seen-late"))
    assert state.containers.next_push() == ContainerUpdate("seen-late", cpus("2-7"))


def test_the_runtimes_record_of_a_container_is_not_taken_for_what_its_cgroup_has():
    state = node()
    state.containers.disconnected()
    listed = [container("shared", cpus=cpus("2-7"))]
    assert state.containers.synchronize(listed) == ((), ())
    state.containers.allow_pushes()
    sent = pending_push(state)
    assert sent == ContainerUpdate("shared", cpus("2-7"))
    state.containers.pushed(sent, applied=True)
    state.containers.disconnected()
    state.containers.synchronize(listed)
    state.containers.allow_pushes()
    assert state.containers.next_push() is None  # known from the former connection


def test_without_pushes_two_replies_move_a_container_whose_record_is_right_already():
    state = node(runtime=OLD_RUNTIME)
    state.claims.grant(request(1, share(NUMA1, 2)))
    shared = cpus("2-7") - state.claims[uid(1)].cpus
    state.containers.disconnected()
    move = ContainerUpdate("listed", shared)
    updates, _ = state.containers.synchronize([container("listed", cpus=shared)])
    assert updates == (move,), "its cgroup may have been written before its record"
    assert move in state.containers.create(container("second")).updates, "the first update may have failed"
    assert move not in state.containers.create(container("third")).updates


def test_a_container_that_ends_before_its_start_is_reported_is_not_taken_for_a_running_one():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    state.containers.create(container("short", cdi(1)))
    state.containers.created("short")
    state.containers.check_start(container("short", cdi(1)))
    state.containers.stopped("short")  # containerd reports the end of a program as soon as it can get its lock
    state.containers.started(container("short", cdi(1)))
    assert len(state.containers) == 0
    assert state.claims.release(uid(1)), "nothing runs on the claim"


def test_creations_that_failed_without_a_report_are_forgotten_in_the_end():
    state = node()
    for number in range(10):
        state.containers.create(container(f"rejected-{number}"))
        state.containers.expire(f"rejected-{number}")
    assert len(state.containers) == 0
