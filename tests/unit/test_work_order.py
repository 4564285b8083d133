"""Calls for one claim are worked on one after the other, in the order in which they came."""

import asyncio
from typing import Any

from nodes import claim_object, ref, share, uid
from transacting import Agent, Claims

from dracpu_agent.claims.grant import ClaimRef

NUMA1 = "cpudevnuma001"


class Gate(Claims):
    """The API server answers each read only when the test permits it."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        super().__init__(*objects)
        self.reads = asyncio.Queue[str]()
        self.permits = asyncio.Semaphore(0)

    async def read(self, ref: ClaimRef, seconds: float) -> dict[str, Any]:
        self.reads.put_nowait(ref.name)
        await self.permits.acquire()
        return self.objects[ref.uid]


async def test_calls_for_one_claim_are_worked_on_one_after_the_other_in_their_order(tmp_path):
    claims = Gate(claim_object(1, [share(NUMA1, 2)]), claim_object(2, [share(NUMA1, 2)]))
    async with Agent(tmp_path, claims).alive() as agent:
        prepared = asyncio.create_task(agent.transactions.prepare(ref(1)))
        unprepared = asyncio.create_task(agent.transactions.unprepare(ref(1)))
        again = asyncio.create_task(agent.transactions.prepare(ref(1)))
        other = asyncio.create_task(agent.transactions.prepare(ref(2)))
        assert [await claims.reads.get(), await claims.reads.get()] == ["claim-1", "claim-2"]
        assert claims.reads.empty(), "the third call waits for its turn"
        claims.permits.release()
        claims.permits.release()
        await prepared
        await unprepared
        await other
        assert uid(1) not in agent.node.claims
        claims.permits.release()
        await again
        assert uid(1) in agent.node.claims


async def test_a_call_is_worked_on_when_the_one_before_it_was_cancelled(tmp_path):
    claims = Gate(claim_object(1, [share(NUMA1, 2)]))
    async with Agent(tmp_path, claims).alive() as agent:
        first = asyncio.create_task(agent.transactions.prepare(ref(1)))
        second = asyncio.create_task(agent.transactions.unprepare(ref(1)))
        await claims.reads.get()
        first.cancel()
        await second
        assert first.cancelled()
        assert agent.node.claims == {}
