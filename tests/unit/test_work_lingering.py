"""A claim keeps its CPUs while processes of its pods run, also in containers that the runtime does not list."""

import asyncio
import threading
from pathlib import Path

from cgroup_trees import write_cgroup
from nodes import cdi, claim_object, container, key, node, ref, request, revived, running, share, uid
from transacting import Agent, Claims

from dracpu_agent.claims.checkpoint import decode, encode
from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.work.lingering import Lingering

NUMA1 = "cpudevnuma001"


def write_pod(tree: Path, *, populated: bool) -> None:
    for parent in (tree, tree / "kubepods"):
        write_cgroup(parent)
    write_cgroup(tree / "kubepods" / "podpod-a", populated=populated)


async def test_a_claim_lingers_while_a_container_that_the_runtime_does_not_list_runs(tmp_path: Path) -> None:
    state = node()
    lingering = Lingering(state, CgroupTree(tmp_path))
    state.claims.grant(request(1, share(NUMA1, 2), pods=["pod-a"]))
    running(state, container("one", cdi(1), pod="pod-a"))
    write_pod(tmp_path, populated=True)
    assert not state.claims.release(uid(1))
    await lingering.look()
    state.containers.disconnected()
    state.containers.synchronize([])  # containerd has restarted, and the container's shim does not answer
    await lingering.look()
    assert uid(1) in state.claims
    write_pod(tmp_path, populated=False)
    await lingering.look()
    assert uid(1) not in state.claims


class SlowTree:
    """In the cgroups of all pods there are processes. The first look at them takes until `over`."""

    def __init__(self) -> None:
        self.begun, self.over = threading.Event(), threading.Event()

    def running(self, pod_uids: frozenset[str]) -> frozenset[str]:
        if not self.begun.is_set():
            self.begun.set()
            assert self.over.wait(30)
        return pod_uids


async def test_two_looks_at_the_same_time_release_no_claim_whose_processes_run() -> None:
    state, tree = node(), SlowTree()
    lingering = Lingering(state, tree)
    for number in (1, 2):
        state.claims.grant(request(number, share(NUMA1, 2), pods=[f"pod-{number}"]))
    slow = asyncio.create_task(lingering.look(key(1)))
    await asyncio.to_thread(tree.begun.wait)
    await lingering.look(key(2))
    state.claims.release(uid(2))
    tree.over.set()
    await slow
    state.claims.release(uid(1))
    assert set(state.claims) == {uid(1), uid(2)}


async def test_a_claim_that_lingers_does_so_after_a_restart_of_the_agent(tmp_path: Path) -> None:
    before = node()
    before.claims.grant(request(1, share(NUMA1, 2), pods=["pod-a"]))
    before.containers.disconnected()
    before.claims.release(uid(1))
    state = revived(decode(encode(before.checkpoint())))
    write_pod(tmp_path, populated=True)
    lingering = Lingering(state, CgroupTree(tmp_path))
    await lingering.look()
    state.containers.synchronize([])
    assert uid(1) in state.claims


async def test_a_claim_is_unprepared_when_the_cgroups_of_its_pods_are_empty(tmp_path: Path) -> None:
    claims = Claims(claim_object(1, [share(NUMA1, 2)], pods=["pod-a"]))
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        write_pod(tmp_path / "cgroup", populated=True)
        await agent.transactions.unprepare(ref(1))
        assert agent.node.claims[uid(1)].lingering
        write_pod(tmp_path / "cgroup", populated=False)
        await agent.transactions.unprepare(ref(1))
        assert uid(1) not in agent.node.claims
