"""Runs programs on the host, waits for conditions, writes files, and prints progress to the terminal."""

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


def report(text: str) -> None:
    """Prints a line to standard error, so that standard output holds only the output of a command that the lab runs."""
    sys.stderr.write(f"lab: {text}\n")
    sys.stderr.flush()


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Prints how long the body took, also when it failed."""
    start = time.monotonic()
    try:
        yield
    finally:
        report(f"{time.monotonic() - start:6.1f} s  {name}")


def run(
    *command: Argument,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    text: str | None = None,
    timeout: float = 3600,
) -> str:
    """Runs a program and returns its standard output; when it fails, the CommandFailedError holds all its output.

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
        remedy = "run `python -m lab setup` and `python -m lab build`"
        raise LabError(f"the program `{words[0]}` was not found: {remedy}") from error
    except subprocess.TimeoutExpired as error:
        raise NotReadyError(f"`{shlex.join(words)}` was stopped: it did not end within {timeout:.0f} s") from error
    if done.returncode:
        raise CommandFailedError(shlex.join(words), done.returncode, done.stdout + done.stderr)
    return done.stdout


def wait_until(what: str, ready: Callable[[], bool], seconds: float, *, look: str = "") -> None:
    """Calls `ready` until it returns True; after `seconds` it raises an error that refers to `look` for details."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise NotReadyError(f"timed out after {seconds:.0f} s waiting for {what}{look and f': see {look}'}")
        time.sleep(0.2)


@contextmanager
def file_lock(lock: Path) -> Iterator[None]:
    """Holds a file lock during the body; a second command that wants the lock waits for the first."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another lab command to finish")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_whole(path: Path, data: str | bytes) -> None:
    """Replaces a file atomically, so that a reader, or the next run after a crash, never finds half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_bytes(data.encode() if isinstance(data, str) else data)
    draft.replace(path)


def missing_packages(wanted: Sequence[str]) -> list[str]:
    """Returns those of the Debian packages that are not installed."""
    try:
        listed = run("dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n")
    except LabError as error:
        raise LabError("cannot run dpkg-query: the lab needs Debian or a distribution based on it") from error
    installed = {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}
    return [name for name in wanted if name not in installed]
