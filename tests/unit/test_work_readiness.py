"""A Prepare that comes before the runtime's list of containers waits for it, and for nothing else."""

import asyncio

import pytest
from nodes import SAFE_RUNTIME, claim_object, ref, share, uid
from transacting import Agent, Claims

from dracpu_agent.errors import NotReadyError

NUMA1 = "cpudevnuma001"
LONG = 3600.0  # seconds that no test waits for


def synchronize(agent: Agent) -> None:
    agent.node.containers.connected(SAFE_RUNTIME)
    agent.node.containers.synchronize([])


async def test_claims_of_one_call_wait_together_for_the_runtime(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 1)]), claim_object(2, [share(NUMA1, 1)]))
    async with Agent(tmp_path, claims, runtime_seconds=LONG).alive() as agent:
        agent.node.containers.disconnected()
        waiting = [asyncio.create_task(agent.transactions.prepare(ref(number))) for number in (1, 2)]
        await asyncio.sleep(0)
        agent.node.containers.connected(SAFE_RUNTIME)  # a change that does not make the node ready
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        assert agent.node.claims == {}
        synchronize(agent)
        await asyncio.gather(*waiting)
        assert set(agent.node.claims) == {uid(1), uid(2)}


async def test_a_runtime_that_restarts_while_the_claim_is_read_is_waited_for(tmp_path):
    class Leaving(Claims):
        async def read(self, ref, seconds):
            agent.node.containers.disconnected()
            read.set()
            return await super().read(ref, seconds)

    read = asyncio.Event()
    agent = Agent(tmp_path, Leaving(claim_object(1, [share(NUMA1, 1)])), runtime_seconds=LONG)
    async with agent.alive():
        waiting = asyncio.create_task(agent.transactions.prepare(ref(1)))
        await read.wait()
        await asyncio.sleep(0)
        assert agent.node.claims == {}
        synchronize(agent)
        await waiting
        assert set(agent.node.claims) == {uid(1)}


async def test_a_known_claim_waits_for_the_runtime_too(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 1)]))
    async with Agent(tmp_path, claims, runtime_seconds=LONG).alive() as agent:
        first = await agent.transactions.prepare(ref(1))
        agent.node.containers.disconnected()
        claims.away = True
        waiting = asyncio.create_task(agent.transactions.prepare(ref(1)))
        await asyncio.sleep(0)
        assert claims.read_count == 1
        synchronize(agent)
        assert await waiting == first
        assert claims.read_count == 2


async def test_the_wait_for_the_runtime_ends_with_an_error_that_names_it(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 1)]))
    async with Agent(tmp_path, claims, runtime_seconds=0.01).alive() as agent:
        agent.node.containers.disconnected()
        with pytest.raises(NotReadyError, match="not connected to its container runtime"):
            await agent.transactions.prepare(ref(1))


async def test_a_checkpoint_that_cannot_be_written_is_reported_without_a_wait(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 1)]), claim_object(2, [share(NUMA1, 1)]))
    async with Agent(tmp_path, claims, runtime_seconds=LONG).alive() as agent:
        (tmp_path / "state" / ".checkpoint.json").mkdir()
        with pytest.raises(NotReadyError, match="cannot write the checkpoint"):
            await agent.transactions.prepare(ref(1))
        agent.node.containers.disconnected()
        with pytest.raises(NotReadyError, match="cannot write its checkpoint"):
            await agent.transactions.prepare(ref(2))
