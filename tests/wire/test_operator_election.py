"""Two operators as processes, against a fake API server: one leads, and the other one takes over."""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from background import background
from fake_agents import FakeAgents
from fake_api import FakeApi
from operator_process import LEASE, NAMESPACE, OperatorProcess
from operator_world import World


class Pair:
    """A cluster with two operators, of which the first one leads."""

    def __init__(self, world: World, first: OperatorProcess, second: OperatorProcess) -> None:
        self.world, self.api, self.agents = world, world.api, world.agents
        self.first, self.second = first, second

    def holder(self) -> str:
        """Returns the name of the process that the Lease names; "" after a release."""
        return holder(self.api)

    def writes(self, process: OperatorProcess) -> list[int]:
        """Returns the positions of a process's writes among all requests, without those of the Lease."""
        return [
            number
            for number, request in enumerate(self.api.requests)
            if request.method != "GET" and "leases" not in str(request) and by(request.headers) == process.name
        ]

    async def quiet(self) -> None:
        """Waits until there is no request any more but those of the Lease, which never end."""
        before, now = -1, 0
        while before != now:
            await asyncio.sleep(0.3)
            before, now = now, sum("leases" not in str(request) for request in self.api.requests)

    async def takes_over(self) -> None:
        await self.world.until(lambda: self.holder() == "second")

    async def roll_out_to(self, count: int) -> set[str]:
        """Begins a rollout that no agent answers; returns the nodes that were given the new settings."""
        self.agents.away = set(self.world.specs())
        self.world.edit(mode="individual")
        await self.world.until(lambda: self.world.reached(count))
        return self.world.having(mode="individual")

    async def finish(self) -> None:
        """The agents answer again, and the rollout goes on to its end."""
        self.agents.away = set()
        for name in self.world.having(mode="individual"):
            self.agents.answer(name, phase="Ready", appliedRevision=self.world.revision(name))
        await self.world.applied(len(self.world.specs()))


def holder(api: FakeApi) -> str:
    leases = [lease["spec"]["holderIdentity"] for lease in api.all("leases")]
    return str(leases[0]).partition("_")[0] if leases else ""


def by(headers: Mapping[str, str]) -> str:
    return headers.get("Authorization", "").removeprefix("Bearer ")


async def page(process: OperatorProcess, path: str) -> tuple[int, str]:
    port = await process.port()
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


async def until_ready(process: OperatorProcess) -> None:
    async with asyncio.timeout(30):
        status = 0
        while status != 200:
            await asyncio.sleep(0.05)
            status, _ = await page(process, "/readyz")


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with FakeApi() as api, AsyncExitStack() as stack:
        agents = FakeAgents(api)
        await stack.enter_async_context(background(agents.run()))
        world = World(api, agents, tmp_path)
        api.add("namespaces", {"metadata": {"name": NAMESPACE}})
        world.nodes(8)
        world.config(rollout={"maxUnavailable": 2})
        first = await stack.enter_async_context(OperatorProcess(api.url, tmp_path, "first"))
        await api.until(lambda: holder(api) == "first", seconds=30)
        await world.applied(8)
        second = await stack.enter_async_context(OperatorProcess(api.url, tmp_path, "second"))
        await until_ready(second)
        yield Pair(world, first, second)


async def test_the_standby_takes_over_a_rollout_when_the_leader_is_killed_and_keeps_its_budget(pair: Pair) -> None:
    given = await pair.roll_out_to(2)
    await pair.first.killed()
    await pair.takes_over()
    await pair.quiet()
    assert pair.world.having(mode="individual") == given
    await pair.finish()
    assert pair.world.having(mode="individual") == set(pair.world.specs())


async def test_writes_that_were_on_their_way_when_the_leader_was_killed_count_in_the_budget(pair: Pair) -> None:
    pair.agents.away = set(pair.world.specs())
    before = len(pair.writes(pair.first))
    pair.api.pause()
    pair.world.edit(reservedCPUs="2")
    await pair.world.until(lambda: len(pair.writes(pair.first)) >= before + 2)
    await pair.first.killed()
    pair.api.resume()
    await pair.takes_over()
    await pair.quiet()
    assert len(pair.world.having(reservedCPUs="2")) == 2


async def test_a_standby_is_ready_and_reports_that_it_does_not_lead(pair: Pair) -> None:
    assert "dra_cpu_operator_leader 1.0" in (await page(pair.first, "/metrics"))[1]
    assert "dra_cpu_operator_leader 0.0" in (await page(pair.second, "/metrics"))[1]
    assert pair.writes(pair.second) == []
    await pair.first.killed()
    await pair.takes_over()
    assert "dra_cpu_operator_leader 1.0" in (await page(pair.second, "/metrics"))[1]


async def test_a_leader_that_ends_hands_over_without_waiting_for_the_lease_to_expire(pair: Pair) -> None:
    holders: list[str] = []

    def was_taken() -> bool:
        holders.append(pair.holder())
        return holders[-1] == "second"

    given = await pair.roll_out_to(2)
    pair.first.send(signal.SIGTERM)
    await pair.world.until(was_taken)
    assert "" in holders, "it is released before anybody takes it"
    assert await pair.first.ended() == 0
    await pair.quiet()
    assert pair.world.having(mode="individual") == given
    await pair.finish()


async def test_a_leader_that_is_cut_off_ends_before_the_other_one_writes(pair: Pair) -> None:
    given = await pair.roll_out_to(2)
    pair.api.tokens = {"second"}
    await pair.takes_over()
    position = len(pair.api.requests)
    await pair.finish()
    assert await pair.first.ended() == 1
    assert "this operator no longer leads: the Lease could not be renewed within 2 s" in pair.first.printed[-1]
    assert [number for number in pair.writes(pair.first) if number >= position] == []
    assert given <= pair.world.having(mode="individual")


async def test_a_leader_that_stood_still_ends_when_another_one_has_taken_over(pair: Pair) -> None:
    await pair.roll_out_to(2)
    await pair.quiet()  # a write that it was about to send would be sent when it goes on
    pair.first.send(signal.SIGSTOP)
    await pair.takes_over()
    position = len(pair.api.requests)
    pair.first.send(signal.SIGCONT)
    assert await pair.first.ended() == 1
    assert "this operator no longer leads" in pair.first.printed[-1]
    await pair.finish()
    assert [number for number in pair.writes(pair.first) if number >= position] == []


async def test_an_operator_that_does_not_lead_ends_at_once_and_leaves_the_lease_alone(pair: Pair) -> None:
    pair.second.send(signal.SIGTERM)
    assert await pair.second.ended() == 0
    assert pair.holder() == "first"


async def test_the_lease_names_its_holder_and_counts_the_changes(pair: Pair) -> None:
    spec = pair.api.get("leases", LEASE)["spec"]
    assert spec["leaseDurationSeconds"] == 3
    assert spec["leaseTransitions"] == 0
    await pair.first.killed()
    await pair.takes_over()
    after = pair.api.get("leases", LEASE)["spec"]
    assert after["leaseTransitions"] == 1
    assert after["acquireTime"] > spec["acquireTime"]


async def test_fields_of_the_lease_that_others_have_written_stay(pair: Pair) -> None:
    version = pair.api.get("leases", LEASE)["metadata"]["resourceVersion"]
    pair.api.edit("leases", LEASE, lambda lease: lease["metadata"].update(labels={"a": "b"}))
    renewals = len(pair.api.written())
    await pair.world.until(lambda: len(pair.api.written()) >= renewals + 4)
    lease = pair.api.get("leases", LEASE)
    assert pair.holder() == "first"
    assert lease["metadata"]["labels"] == {"a": "b"}
    assert lease["metadata"]["resourceVersion"] != version
    assert pair.writes(pair.second) == []
