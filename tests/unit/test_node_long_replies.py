"""Replies to the runtime stay within NRI's limit on machines with very long cpusets and very many containers."""

from dataclasses import replace

import pytest
from nodes import OLD_RUNTIME, SAFE_RUNTIME, cdi, container, machine, node, request, running, share, started, uid

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement import reply
from dracpu_agent.placement.container import ContainerUpdate, RuntimeInfo
from dracpu_agent.runtime import convert
from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_agent.runtime.ttrpc import MAX_DATA
from dracpu_api.cpuset import CpuSet

CONTAINERS = 1000
NO_PUSHES = replace(OLD_RUNTIME, passes_cdi_devices=True)
PINNED = container("pinned", cdi(2))


def crowded(runtime: RuntimeInfo = SAFE_RUNTIME):
    """A machine of 2,048 CPUs whose shared CPUs are every second one, and a claim that takes some of them away from
    1,000 containers."""
    state = node(machine(sockets=2, cores=512), runtime)
    odd = CpuSet(range(3, 2048, 2))
    state.claims.grant(request(1, share("cpudevnuma000", 1)))
    state.replug(replace(state.topology, cpus=tuple(cpu for cpu in state.topology.cpus if cpu.id not in odd)))
    shared = state.division.shared
    listed = [container(f"{number:064d}", cpus=shared) for number in range(CONTAINERS)]
    state.containers.synchronize(listed)
    state.containers.allow_pushes()
    push_all(state)
    state.claims.grant(request(2, share("cpudevnuma001", 4)))
    return state


def push_all(state) -> set[str]:
    """Pushes until no push is due; returns the containers."""
    pushed = set()
    while update := state.containers.next_push():
        state.containers.pushed(update, applied=True)
        pushed.add(update.container_id)
    return pushed


def encoded(updates) -> bytes:
    return nri.StopContainerResponse(update=map(convert.update, updates)).SerializeToString()


@pytest.mark.parametrize("runtime", [SAFE_RUNTIME, NO_PUSHES], ids=["pushes", "no pushes"])
def test_a_claims_container_is_refused_in_words_while_one_reply_cannot_clear_its_cpus(runtime):
    state = crowded(runtime)
    with pytest.raises(PlacementError, match="more than a reply to the runtime has room for must leave the CPUs"):
        state.containers.create(PINNED)


def test_a_refused_creation_counts_no_update_as_sent():
    state = crowded()
    with pytest.raises(PlacementError):
        state.containers.create(PINNED)
    assert len(push_all(state)) == CONTAINERS
    assert state.containers.create(PINNED).updates == ()


def test_without_pushes_the_replies_that_follow_refusals_clear_the_cpus():
    state = crowded(NO_PUSHES)
    moved: set[str] = set()
    for _ in range(10):
        try:
            placement = state.containers.create(PINNED)
            break
        except PlacementError:
            updates = state.containers.stopped(PINNED.id)  # the runtime reports the end of what was refused
            assert 0 < len(encoded(updates)) < MAX_DATA
            moved |= {update.container_id for update in updates}
    assert len(moved | {update.container_id for update in placement.updates}) == CONTAINERS
    assert placement.cpus == state.claims[uid(2)].cpus


def test_a_container_without_a_claim_is_created_with_as_many_updates_as_fit():
    state = crowded(NO_PUSHES)
    placement = state.containers.create(container("shared"))
    assert len(convert.create_response(container("shared"), placement).SerializeToString()) < MAX_DATA
    assert 0 < len(placement.updates) < CONTAINERS


def test_the_reply_to_a_synchronization_has_as_many_updates_as_fit():
    state = crowded()
    listed = [replace(container(f"{number:064d}"), started=number % 20 > 0) for number in range(CONTAINERS)]
    updates, _ = state.containers.synchronize(listed)
    assert len(nri.SynchronizeResponse(update=map(convert.update, updates)).SerializeToString()) < MAX_DATA
    state.containers.allow_pushes()
    for item in listed:
        if not item.started:
            started(state, item)
    assert {update.container_id for update in updates} | push_all(state) == {item.id for item in listed}


def test_containers_that_must_leave_the_claims_cpus_come_first(monkeypatch):
    state = node(runtime=NO_PUSHES)
    for number in (1, 2):
        state.claims.grant(request(number, share("cpudevnuma001", 2)))
    running(state, container("grows"))
    state.claims.release(uid(2))
    monkeypatch.setattr(reply, "ROOM", 0)
    running(state, container("must leave"))
    state.claims.grant(request(2, share("cpudevnuma001", 2)))
    state.claims.release(uid(1))
    monkeypatch.setattr(reply, "ROOM", 80)
    placement = state.containers.create(PINNED)
    assert [update.container_id for update in placement.updates] == ["must leave"]


@pytest.mark.parametrize("cpus", ["0", "0-8191", ",".join(map(str, range(0, 8192, 2)))])
@pytest.mark.parametrize("name", ["c", "c" * 64, "c" * 500])
def test_an_update_takes_no_more_bytes_than_expected(name, cpus):
    update = ContainerUpdate(name, CpuSet.parse(cpus))
    message = nri.CreateContainerResponse(update=[convert.update(update)])
    assert len(message.SerializeToString()) <= reply.size_of(update)
