"""A new claim is read again, within the call, when the API server cannot answer at the moment."""

import asyncio
from collections.abc import AsyncIterator

import dra_objects
import pytest
from fake_api import FakeApi

from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.cluster.access import ApiAccess
from dracpu_agent.cluster.claims import ApiClaimReader, ClaimMissingError
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.errors import NotReadyError

LONG = 1000.0  # seconds that no test waits for


@pytest.fixture
async def server() -> AsyncIterator[FakeApi]:
    async with FakeApi() as server:
        yield server


class Reading:
    """A claim, and a reader that waits only as long as the API server asks."""

    def __init__(self, server: FakeApi, client: ApiClient) -> None:
        claim = server.add("resourceclaims", dra_objects.claim("c", dra_objects.request()))
        self.ref = ClaimRef("default", "c", claim["metadata"]["uid"])
        self._server = server
        self._reader = ApiClaimReader(client, "n1", jitter=lambda low, high: 0.0)

    async def read(self, seconds: float = LONG, name: str = "c") -> str:
        """Reads the claim with retries, and returns its UID."""
        ref = ClaimRef("default", name, self.ref.uid)
        return str((await self._reader.read_with_retries(ref, seconds))["metadata"]["uid"])

    @property
    def attempts(self) -> int:
        return len(self._server.requests)


@pytest.fixture
async def reading(server: FakeApi) -> AsyncIterator[Reading]:
    async with ApiClient(ApiAccess(server.url), version="1") as client:
        yield Reading(server, client)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were slept, instead of sleeping."""
    seconds: list[float] = []
    sleep = asyncio.sleep

    async def at_once(delay: float) -> None:
        seconds.append(delay)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", at_once)
    return seconds


@pytest.mark.parametrize("code", [404, 429, 500, 502, 503, 504])
async def test_a_read_is_repeated_after_an_error_that_passes(server: FakeApi, reading: Reading, code: int) -> None:
    server.fail("GET resourceclaims", code, times=3)
    assert await reading.read() == reading.ref.uid
    assert reading.attempts == 4


async def test_a_read_is_repeated_after_a_broken_connection(server: FakeApi, reading: Reading) -> None:
    server.lose_answer("GET resourceclaims", times=3)
    assert await reading.read() == reading.ref.uid


@pytest.mark.parametrize("code", [400, 401, 403])
async def test_a_refusal_is_reported_at_once(server: FakeApi, reading: Reading, code: int) -> None:
    server.fail("GET resourceclaims", code, "Forbidden", "no permission")
    with pytest.raises(NotReadyError, match="claim default/c cannot be read: .*no permission"):
        await reading.read()
    assert reading.attempts == 1


async def test_a_missing_claim_is_reported_at_once(reading: Reading) -> None:
    with pytest.raises(ClaimMissingError):
        await reading.read(name="none")
    assert reading.attempts == 1


async def test_the_api_server_decides_how_long_to_wait(server: FakeApi, reading: Reading, slept: list[float]) -> None:
    server.fail("GET resourceclaims", 429, "TooManyRequests", retry_after=7)
    assert await reading.read() == reading.ref.uid
    assert slept == [7.0]


async def test_a_wait_beyond_the_end_of_the_call_is_not_begun(
    server: FakeApi, reading: Reading, slept: list[float]
) -> None:
    server.fail("GET resourceclaims", 503, "ServiceUnavailable", "starting", times=9, retry_after=30)
    with pytest.raises(NotReadyError, match="starting"):
        await reading.read(seconds=15)
    assert slept == []
    assert reading.attempts == 1


async def test_the_waits_grow_and_end_with_the_call(server: FakeApi, slept: list[float]) -> None:
    server.fail("GET resourceclaims", 503, "ServiceUnavailable", "starting", times=100)
    async with ApiClient(ApiAccess(server.url), version="1") as client:
        longest = ApiClaimReader(client, "n1", jitter=lambda low, high: high)
        with pytest.raises(NotReadyError, match="starting"):
            await longest.read_with_retries(ClaimRef("default", "c", "u"), 10.0)
    assert slept == sorted(slept)
    assert len(set(slept)) == len(slept) > 2
    assert max(slept) < 10.0


async def test_a_request_that_hangs_is_given_up_early_enough_for_another_one(server: FakeApi, reading: Reading) -> None:
    server.pause()
    reader = asyncio.create_task(reading.read(seconds=1.0))
    await server.until(lambda: reading.attempts == 2)
    server.resume()
    assert await reader == reading.ref.uid
