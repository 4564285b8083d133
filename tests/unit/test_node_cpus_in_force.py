"""A node's decisions while CPUs that the runtime was sent may not be in force yet: starts, resizes, failed updates."""

import pytest
from nodes import OLD_RUNTIME, cdi, container, node, pending_push, request, running, share, uid

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import ContainerUpdate
from dracpu_api.cpuset import CpuSet

NUMA1 = "cpudevnuma001"


def cpus(text):
    return CpuSet.parse(text)


def test_a_container_is_sent_no_update_before_it_runs():
    state = node()
    state.containers.create(container("young"))
    state.containers.created("young")
    state.grant(request(1, share(NUMA1, 4)))
    assert state.containers.next_push() is None
    state.containers.check_start(container("young"))
    assert state.containers.next_push() is None
    state.containers.started(container("young"))
    assert state.containers.next_push() == ContainerUpdate("young", cpus("2-3"))


def test_a_container_does_not_start_on_cpus_of_a_claim_whose_container_was_created_meanwhile():
    state = node()
    state.containers.create(container("young"))
    state.grant(request(1, share(NUMA1, 4)))
    assert state.containers.create(container("pinned", cdi(1))).updates == ()
    with pytest.raises(PlacementError, match='"2-7" of container young .* creates it again'):
        state.containers.check_start(container("young"))


def test_a_claims_container_is_not_created_while_another_one_is_being_started_on_its_cpus():
    state = node()
    young = container("young")
    state.containers.create(young)
    state.containers.check_start(young)
    state.grant(request(1, share(NUMA1, 4)))
    assert state.containers.unsettled_on(cpus("4-7"), uid(1))
    with pytest.raises(PlacementError, match="young is being started or changed"):
        state.containers.create(container("pinned", cdi(1)))
    state.containers.started(young)
    assert not state.containers.unsettled_on(cpus("4-7"), uid(1))
    assert state.containers.create(container("pinned", cdi(1))).updates == (ContainerUpdate("young", cpus("2-3")),)


def test_nothing_waits_for_a_start_whose_end_is_never_reported():
    state = node()
    young = container("young")
    state.containers.create(young)
    state.containers.check_start(young)
    state.grant(request(1, share(NUMA1, 4)))
    state.containers.expire("young")
    assert not state.containers.unsettled_on(cpus("4-7"), uid(1))
    assert state.containers.next_push() == ContainerUpdate("young", cpus("2-3"))


def test_a_move_in_a_reply_is_pushed_again_as_the_runtime_does_not_report_its_failure():
    state = node()
    running(state, container("shared"))
    state.grant(request(1, share(NUMA1, 4)))
    move = ContainerUpdate("shared", cpus("2-3"))
    assert state.containers.create(container("pinned", cdi(1))).updates == (move,)
    assert pending_push(state) == move
    state.containers.pushed(move, applied=True)
    assert state.containers.next_push() is None


def test_a_reply_does_not_replace_the_repetition_of_a_failed_push():
    state = node()
    running(state, container("shared"))
    state.grant(request(1, share(NUMA1, 4)))
    move = pending_push(state)
    state.containers.pushed(move, applied=False)
    assert state.containers.create(container("pinned", cdi(1))).updates == (move,)
    assert state.containers.next_push() == move


def test_what_was_sent_during_a_resize_is_sent_again_after_it():
    state = node()
    shared = container("shared")
    running(state, shared)
    assert state.containers.repeat_cpus("shared") == cpus("2-7")
    state.grant(request(1, share(NUMA1, 4)))
    move = pending_push(state)
    state.containers.pushed(move, applied=True)
    assert state.containers.next_push() is None  # the runtime may still apply the resize
    state.containers.updated(shared)
    assert state.containers.next_push() == move


def test_without_pushes_a_container_is_moved_after_the_runtime_refused_its_resize():
    state = node(runtime=OLD_RUNTIME)
    running(state, container("shared"))
    state.grant(request(1, share(NUMA1, 4), pods=["p"]))
    assert state.containers.repeat_cpus("shared") == cpus("2-3")  # but the runtime fails to apply it
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
    state.grant(request(1, share(NUMA1, 2)))
    shared = cpus("2-7") - state.claims[uid(1)].cpus
    state.containers.disconnected()
    move = ContainerUpdate("listed", shared)
    updates, _ = state.containers.synchronize([container("listed", cpus=shared)])
    assert updates == (move,), "its cgroup may have been written before its record"
    assert move in state.containers.create(container("second")).updates, "the first update may have failed"
    assert move not in state.containers.create(container("third")).updates


def test_a_container_that_ends_before_its_start_is_reported_is_not_taken_for_a_running_one():
    state = node()
    state.grant(request(1, share(NUMA1, 2)))
    state.containers.create(container("short", cdi(1)))
    state.containers.created("short")
    state.containers.check_start(container("short", cdi(1)))
    state.containers.stopped("short")  # containerd reports the end of a program as soon as it can get its lock
    state.containers.started(container("short", cdi(1)))
    assert len(state.containers) == 0
    assert state.release(uid(1)), "nothing runs on the claim"


def test_creations_that_failed_without_a_report_are_forgotten_in_the_end():
    state = node()
    for number in range(10):
        state.containers.create(container(f"rejected-{number}"))
        state.containers.expire(f"rejected-{number}")
    assert len(state.containers) == 0
