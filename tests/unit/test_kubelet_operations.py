"""Work on a claim is finished even when the calls that requested it are cancelled."""

import asyncio
from collections.abc import Sequence

from dracpu_agent.claims.grant import ClaimRef, PreparedDevice
from dracpu_agent.kubelet.operations import ClaimOperations

ONE, TWO = ClaimRef("default", "one", "uid-1"), ClaimRef("default", "two", "uid-2")


class Steps:
    """A claim service in which each piece of work waits until the test permits it to continue."""

    def __init__(self) -> None:
        self.begun = asyncio.Queue[str]()
        self.ended: list[str] = []
        self._permits = asyncio.Semaphore(0)

    def permit(self, pieces: int = 1) -> None:
        for _ in range(pieces):
            self._permits.release()

    async def prepare(self, claim: ClaimRef) -> Sequence[PreparedDevice]:
        await self._step(f"prepare {claim.name}")
        return ()

    async def unprepare(self, claim: ClaimRef) -> None:
        await self._step(f"unprepare {claim.name}")

    async def _step(self, name: str) -> None:
        self.begun.put_nowait(name)
        await self._permits.acquire()
        self.ended.append(name)


async def test_different_requests_for_one_claim_are_passed_on_in_order() -> None:
    steps = Steps()
    operations = ClaimOperations(steps)
    tasks = [operations.request(verb, ONE) for verb in ("prepare", "unprepare", "prepare")]
    begun = [await steps.begun.get() for _ in tasks]
    assert begun == ["prepare one", "unprepare one", "prepare one"]
    steps.permit(3)
    await asyncio.gather(*tasks)


async def test_work_on_different_claims_is_concurrent() -> None:
    steps = Steps()
    operations = ClaimOperations(steps)
    tasks = [operations.request("prepare", ONE), operations.request("prepare", TWO)]
    assert [await steps.begun.get(), await steps.begun.get()] == ["prepare one", "prepare two"]
    assert steps.ended == []
    steps.permit(2)
    await asyncio.gather(*tasks)


async def test_a_repeated_request_joins_the_work_in_progress() -> None:
    steps = Steps()
    operations = ClaimOperations(steps)
    first = operations.request("prepare", ONE)
    assert operations.request("prepare", ONE) is first
    steps.permit()
    await first
    assert steps.ended == ["prepare one"]


async def test_a_request_after_the_end_starts_new_work() -> None:
    steps = Steps()
    steps.permit(2)
    operations = ClaimOperations(steps)
    first = operations.request("prepare", ONE)
    await first
    second = operations.request("prepare", ONE)
    assert second is not first
    await second
    assert steps.ended == ["prepare one", "prepare one"]


async def test_claims_with_the_same_uid_and_different_names_are_both_processed() -> None:
    steps = Steps()
    steps.permit(2)
    operations = ClaimOperations(steps)
    await asyncio.gather(
        operations.request("prepare", ONE), operations.request("prepare", ClaimRef("other", "name", ONE.uid))
    )
    assert steps.ended == ["prepare one", "prepare name"]


async def test_work_continues_when_the_call_that_waits_for_it_is_cancelled() -> None:
    steps = Steps()
    operations = ClaimOperations(steps)

    async def call() -> None:
        await asyncio.wait([operations.request("prepare", ONE)])

    caller = asyncio.create_task(call())
    await steps.begun.get()
    caller.cancel()
    await asyncio.wait([caller])
    steps.permit()
    await operations.drain(10)
    assert steps.ended == ["prepare one"]


async def test_draining_returns_at_once_when_there_is_no_work() -> None:
    await ClaimOperations(Steps()).drain(10)
