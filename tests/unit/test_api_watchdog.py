"""The watchdog ends a process that hangs, and lets every other process live."""

import asyncio
import faulthandler
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest

from dracpu_api.watchdog import watch_process

DEADLINE = 60  # of a process that ends within a second


def python(program: str) -> subprocess.CompletedProcess[str]:
    prelude = """
import asyncio, time
from dracpu_api import logging
from dracpu_api.watchdog import watch_process
logging.configure("json", "info")
"""
    return subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(program)],
        capture_output=True,
        check=False,
        text=True,
        timeout=DEADLINE,
    )


def test_a_process_whose_event_loop_hangs_is_ended_and_shows_where() -> None:
    ended = python("""
        def hang():
            time.sleep(1000)

        async def main():
            watching = asyncio.create_task(watch_process(hang_seconds=0.1))
            await asyncio.sleep(0)
            hang()

        asyncio.run(main())
    """)
    assert ended.returncode == 1
    assert "in hang" in ended.stderr


def test_a_process_with_reasons_to_restart_is_ended_and_logs_them() -> None:
    ended = python("""
        asyncio.run(watch_process(lambda: ["stuck for good"], hang_seconds=1, beat_seconds=0.01))
    """)
    assert ended.returncode == 1
    assert ended.stderr.count("stuck for good") == 1


class Timer:
    """Stands for faulthandler's timer, and counts how often it was started."""

    def __init__(self) -> None:
        self.started = 0
        self.cancelled = False
        self.on_start: Callable[[], None] = lambda: None

    def start(self, _seconds: float, *, exit: bool, file: int) -> None:  # noqa: A002 - the name of faulthandler's
        assert exit
        assert file == 2
        self.started += 1
        self.on_start()

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> Timer:
    timer = Timer()
    monkeypatch.setattr(faulthandler, "dump_traceback_later", timer.start)
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", timer.cancel)
    return timer


async def test_a_live_process_starts_the_timer_again_and_again(timer: Timer) -> None:
    often = asyncio.Event()

    def count() -> None:
        if timer.started == 5:
            often.set()

    timer.on_start = count
    watching = asyncio.create_task(watch_process(beat_seconds=0))
    await often.wait()
    watching.cancel()
    await asyncio.wait({watching})
    assert timer.cancelled


async def test_a_process_that_recovers_lives_on(timer: Timer) -> None:
    answers = iter([["stuck"], ["stuck"], [], []])
    starts: list[int] = []  # how often the timer was started before each answer
    asked = asyncio.Event()

    def live() -> list[str]:
        starts.append(timer.started)
        answer = next(answers, None)
        if answer is None:
            asked.set()
        return answer or []

    watching = asyncio.create_task(watch_process(live, beat_seconds=0))
    await asked.wait()
    watching.cancel()
    await asyncio.wait({watching})
    assert starts[:5] == [1, 1, 1, 2, 3]
