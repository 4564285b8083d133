"""Running programs on the host, waiting for things, and telling the person at the terminal what goes on."""

import fcntl
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.errors import CommandFailedError, LabError, NotReadyError

Argument = str | Path


def say(text: str) -> None:
    """Tells on standard error, so that the output of a wrapped command stays clean."""
    sys.stderr.write(f"lab: {text}\n")
    sys.stderr.flush()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Prints how long a part took, also when it failed."""
    start = time.monotonic()
    try:
        yield
    finally:
        say(f"{time.monotonic() - start:6.1f} s  {name}")


def run(
    *command: Argument,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    text: str | None = None,
    timeout: float = 3600,
) -> str:
    """Runs a program, returns its standard output, and raises with what it printed when it fails.

    `env` is added to this process's environment; `text` is the program's standard input.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            input=text if text is not None else "",
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise LabError(f"`{words[0]}` is not there: run `python -m lab setup` and `python -m lab build`") from error
    except subprocess.TimeoutExpired as error:
        raise NotReadyError(f"`{shlex.join(words)}` did not end within {timeout:.0f} s") from error
    if done.returncode:
        raise CommandFailedError(shlex.join(words), done.returncode, done.stdout + done.stderr)
    return done.stdout


def wait_until(what: str, ready: Callable[[], bool], seconds: float, *, look: str = "") -> None:
    """Asks until the answer is yes; `look` says where to look when it never is."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise NotReadyError(f"{what} not ready after {seconds:.0f} s{look and f': see {look}'}")
        time.sleep(0.2)


@contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """One at a time: a second build or start waits for the first."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another lab command is at work, waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_whole(path: Path, data: str | bytes) -> None:
    """Writes a file so that a reader, or the next run after a crash, never finds half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_bytes(data.encode() if isinstance(data, str) else data)
    draft.replace(path)


def missing_packages(wanted: Sequence[str]) -> list[str]:
    """The Debian packages of these that are not installed."""
    try:
        listed = run("dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n")
    except LabError as error:
        raise LabError("the lab needs Debian or a distribution made from it (dpkg is not there)") from error
    installed = {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}
    return [name for name in wanted if name not in installed]
