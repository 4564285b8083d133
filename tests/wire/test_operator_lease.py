"""One operator, its Lease and its permission to write, against a fake API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from fake_api import FakeApi
from kubernetes_asyncio.client import Configuration

from dracpu_api.errors import ConflictError, UnavailableError
from dracpu_api.resources import CPU_NODES
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.api.lease import NAME, LeaseFile
from dracpu_operator.decide.leadership import LeasePace
from dracpu_operator.election import Election
from dracpu_operator.errors import LeadershipError
from dracpu_operator.metrics import Metrics

NAMESPACE = "default"
LEASE = f"{NAMESPACE}/{NAME}"
PACE = LeasePace(lease=30, deadline=20.0, renew=0.05, retry=0.02, look=0.05, request=2.0)
IMPATIENT = LeasePace(lease=2, deadline=1.0, renew=0.05, retry=0.02, look=0.05, request=0.3)
SPEC = {
    "config": {"name": "a", "generation": 1},
    "revision": "1",
    "settings": {"mode": "grouped", "groupBy": "numanode", "reservedCPUs": ""},
}


class Candidate:
    """An election that takes place, and a connection that writes only as the election permits."""

    def __init__(self, api: FakeApi, file: LeaseFile, election: Election, cluster: Cluster) -> None:
        self.api, self.file, self.election, self.cluster = api, file, election, cluster
        self.able = asyncio.Event()
        self.running = asyncio.create_task(election.run(self.able))

    async def leads(self) -> None:
        self.able.set()
        async with asyncio.timeout(10):
            await self.election.leading.wait()

    async def lost(self) -> LeadershipError:
        async with asyncio.timeout(10):
            return await self.running

    async def resign(self) -> None:
        self.running.cancel()
        await asyncio.wait({self.running})
        await self.election.resign()

    def write(self) -> asyncio.Task[object]:
        """Begins a write of a CpuNode."""
        return asyncio.create_task(self.cluster.apply(CPU_NODES, {"metadata": {"name": "n0"}, "spec": SPEC}))

    def holder(self) -> str:
        return str(self.api.get("leases", LEASE)["spec"]["holderIdentity"])

    def writes(self) -> int:
        return sum(str(request).startswith("PATCH cpunodes") for request in self.api.requests)


async def candidate_of(api: FakeApi, stack: AsyncExitStack, pace: LeasePace = PACE) -> Candidate:
    configuration = Configuration(host=api.url)
    file = await stack.enter_async_context(LeaseFile(configuration, NAMESPACE))
    election = Election(file, "pod-a", Metrics(), pace)
    cluster = await stack.enter_async_context(Cluster(configuration, election))
    candidate = Candidate(api, file, election, cluster)
    stack.callback(candidate.running.cancel)
    return candidate


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def api(stack: AsyncExitStack) -> FakeApi:
    return await stack.enter_async_context(FakeApi())


@pytest.fixture
async def candidate(api: FakeApi, stack: AsyncExitStack) -> Candidate:
    return await candidate_of(api, stack)


async def test_a_write_waits_for_the_leadership_and_has_its_time_limit(candidate: Candidate) -> None:
    writing = candidate.write()
    await candidate.api.until(lambda: len(candidate.api.requests) > 3)
    assert candidate.writes() == 0
    await candidate.leads()
    await writing
    (request,) = [request for request in candidate.api.requests if request.method == "PATCH"]
    limit = request.query["timeout"]
    assert 0 < float(limit.removesuffix("s")) <= PACE.deadline
    assert candidate.holder().startswith("pod-a_")


async def test_the_lease_is_left_alone_until_the_operator_is_able_to_lead(candidate: Candidate) -> None:
    await candidate.api.until(lambda: len(candidate.api.requests) > 3)
    assert candidate.api.written() == []


async def test_a_lease_that_somebody_deleted_is_created_again(candidate: Candidate) -> None:
    await candidate.leads()
    candidate.api.remove("leases", LEASE)
    await candidate.api.until(lambda: candidate.api.all("leases"))
    await candidate.write()
    assert not candidate.running.done()


async def test_a_leader_whose_name_somebody_replaced_ends(candidate: Candidate) -> None:
    await candidate.leads()
    candidate.api.edit("leases", LEASE, lambda lease: lease["spec"].update(holderIdentity="somebody"))
    assert "the Lease names somebody as the leader" in str(await candidate.lost())
    writing = candidate.write()
    await candidate.api.until_idle(0.2)
    assert candidate.writes() == 0
    writing.cancel()


async def test_a_leader_whose_renewal_had_no_answer_stays_the_leader(candidate: Candidate) -> None:
    await candidate.leads()
    candidate.api.lose_answer("PUT leases", times=2)
    version = candidate.api.get("leases", LEASE)["metadata"]["resourceVersion"]
    await candidate.api.until(lambda: len([text for text in candidate.api.written() if text.startswith("PUT")]) > 5)
    await candidate.write()
    assert candidate.api.get("leases", LEASE)["metadata"]["resourceVersion"] != version
    assert candidate.api.get("leases", LEASE)["spec"]["leaseTransitions"] == 0


async def test_writes_that_are_on_their_way_end_before_the_lease_is_released(candidate: Candidate) -> None:
    await candidate.leads()
    candidate.running.cancel()
    await asyncio.wait({candidate.running})
    candidate.api.pause()
    first = candidate.write()
    await candidate.api.until(lambda: candidate.writes() == 1)
    resigning = asyncio.create_task(candidate.election.resign())
    await asyncio.sleep(0)
    second = candidate.write()
    await candidate.api.until_idle(0.2)
    assert candidate.writes() == 1, "no other write is sent"
    assert candidate.holder() != ""
    candidate.api.resume()
    await resigning
    assert first.done()
    assert candidate.holder() == ""
    assert not second.done()
    second.cancel()


async def test_the_lease_is_not_released_while_a_write_is_on_its_way(api: FakeApi, stack: AsyncExitStack) -> None:
    candidate = await candidate_of(api, stack, IMPATIENT)
    await candidate.leads()
    candidate.running.cancel()
    await asyncio.wait({candidate.running})
    api.pause()
    writing = candidate.write()
    await api.until(lambda: candidate.writes() == 1)
    await candidate.election.resign()
    assert candidate.holder() != ""
    api.resume()
    with pytest.raises(UnavailableError, match="no answer within"):
        await writing


async def test_a_lease_is_released_although_its_last_renewal_had_no_answer(candidate: Candidate) -> None:
    await candidate.leads()
    candidate.running.cancel()
    await asyncio.wait({candidate.running})
    candidate.api.edit("leases", LEASE, lambda lease: lease["metadata"].update(labels={"a": "b"}))
    await candidate.election.resign()
    assert candidate.holder() == ""


async def test_a_lease_that_another_one_holds_is_not_released(candidate: Candidate) -> None:
    await candidate.leads()
    candidate.running.cancel()
    await asyncio.wait({candidate.running})
    candidate.api.edit("leases", LEASE, lambda lease: lease["spec"].update(holderIdentity="somebody"))
    await candidate.election.resign()
    assert candidate.holder() == "somebody"


async def test_an_operator_that_may_not_read_the_lease_says_so(api: FakeApi, stack: AsyncExitStack) -> None:
    candidate = await candidate_of(api, stack, IMPATIENT)
    api.fail("GET leases", 403, "Forbidden", "leases is forbidden", times=10_000)
    await api.until(candidate.election.problems)
    (problem,) = candidate.election.problems()
    assert "leases is forbidden" in problem


async def test_each_request_of_the_lease_has_a_time_limit(api: FakeApi, stack: AsyncExitStack) -> None:
    file = await stack.enter_async_context(LeaseFile(Configuration(host=api.url), NAMESPACE))
    api.pause()
    with pytest.raises(UnavailableError, match=r"GET of the Lease: no answer within 0\.05 s"):
        await file.read(0.05)


async def test_a_lease_that_has_changed_meanwhile_is_not_written(api: FakeApi, stack: AsyncExitStack) -> None:
    files = [await stack.enter_async_context(LeaseFile(Configuration(host=api.url), NAMESPACE)) for _ in range(2)]
    assert [await file.read(5) for file in files] == [None, None]
    await files[0].take("one", 10, 5)
    with pytest.raises(ConflictError):
        await files[1].take("two", 10, 5)
    await files[1].read(5)
    await files[0].take("one", 10, 5)
    with pytest.raises(ConflictError):
        await files[1].take("two", 10, 5)
    assert api.get("leases", LEASE)["spec"]["holderIdentity"] == "one"
