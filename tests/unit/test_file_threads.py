"""Work on files has threads of its own, and ends before its caller does."""

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from nodes import claim_object, ref, share
from transacting import Agent, Claims

from dracpu_agent.file_threads import THREADS, in_file_thread
from dracpu_agent.http1.client import HttpClient

SOURCES = Path(__file__).parents[2] / "agent" / "dracpu_agent"
DEFAULT_THREADS = 2


class Blocked:
    """A function that blocks its threads until `release`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._released = threading.Event()
        self.entered = asyncio.Semaphore(0)
        self.calls = 0

    def __call__(self, *_: object, **__: object) -> None:
        self.calls += 1
        self._loop.call_soon_threadsafe(self.entered.release)
        assert self._released.wait(60)

    def release(self) -> None:
        self._released.set()


@pytest.fixture
async def blocked() -> AsyncIterator[Blocked]:
    made = Blocked()
    yield made
    made.release()


async def test_claims_are_prepared_while_look_ups_of_the_api_server_hang(tmp_path, monkeypatch, blocked):
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(DEFAULT_THREADS))
    monkeypatch.setattr(socket, "getaddrinfo", blocked)
    client = HttpClient("http://api.invalid:6443")
    requests = [
        asyncio.create_task(client.request("GET", "/", headers={}, seconds=60)) for _ in range(DEFAULT_THREADS + 1)
    ]
    for _ in range(DEFAULT_THREADS):
        await blocked.entered.acquire()
    async with Agent(tmp_path, Claims(claim_object(1, [share("cpudevnuma001", 2)]))).alive() as agent:
        async with asyncio.timeout(30):
            await agent.transactions.prepare(ref(1))
            await agent.transactions.unprepare(ref(1))
    assert not any(request.done() for request in requests), "the look-ups still hang"
    for request in requests:
        request.cancel()
    await asyncio.wait(requests)
    await client.close()


async def test_a_cancelled_caller_ends_after_the_work_that_has_begun(blocked):
    caller = asyncio.create_task(in_file_thread(blocked))
    await blocked.entered.acquire()
    caller.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not caller.done()
    blocked.release()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_work_that_waits_for_a_thread_never_begins_when_its_caller_is_cancelled(blocked):
    begun = [asyncio.create_task(in_file_thread(blocked)) for _ in range(THREADS)]
    for _ in range(THREADS):
        await blocked.entered.acquire()
    waiting = asyncio.create_task(in_file_thread(blocked))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    blocked.release()
    await asyncio.gather(*begun)
    assert blocked.calls == THREADS


async def test_an_error_of_the_work_reaches_the_caller():
    def fail() -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await in_file_thread(fail)


async def test_an_error_after_the_cancellation_of_the_caller_is_not_reported_elsewhere(blocked):
    def fail() -> None:
        blocked()
        raise OSError("disk full")

    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    caller = asyncio.create_task(in_file_thread(fail))
    await blocked.entered.acquire()
    caller.cancel()
    blocked.release()
    with contextlib.suppress(asyncio.CancelledError):
        await caller
    assert reported == []


def test_no_work_of_the_agent_uses_the_threads_of_look_ups():
    users = [path for path in SOURCES.rglob("*.py") if re.search(r"to_thread\(|run_in_executor\(", path.read_text())]
    assert users == []
