"""Writes the checkpoint to disk: atomically, with fsync, and keeping the previous copy.

`save` returns when a checkpoint that was taken after the call is on disk. Calls during a write share the next one, so
that 60 claims that are prepared at once cost two writes and not 60.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from dracpu_agent.claims import checkpoint
from dracpu_agent.claims.checkpoint import KINDS, Checkpoint, CheckpointError, ClaimKind, NewerCheckpointError
from dracpu_agent.errors import NotReadyError
from dracpu_agent.file_threads import in_file_thread
from dracpu_api.errors import DriverError

CURRENT: Final = "checkpoint.json"
PREVIOUS: Final = "checkpoint.previous.json"
DAMAGED: Final = "checkpoint.damaged.json"
NEWER: Final = "checkpoint.newer.json"  # in a format that only a newer agent reads
LOCK: Final = "agent.lock"

SAVE_SECONDS: Final = 20.0  # of the kubelet's 45 s for a claim, if the disk hangs
RETRY_SECONDS: Final = 5.0
LAST_SECONDS: Final = 5.0  # of the 30 s that a pod has to terminate

log = structlog.get_logger("statefile")


class StateWriteError(NotReadyError):
    """The checkpoint cannot be written, so that no claim may be prepared."""


class StateLockedError(DriverError):
    """The state directory cannot be locked: another agent uses it, or it cannot be written."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The checkpoint that was read at the start."""

    checkpoint: Checkpoint | None
    damage: str = ""  # why the current copy cannot be used; then `checkpoint` is the previous copy or None
    aside: str = DAMAGED  # the name that the current copy gets if it cannot be used


def load(directory: Path, kinds: Sequence[ClaimKind] = KINDS) -> Loaded:
    """Reads the current copy, or the previous one if the current one is damaged or missing."""
    damage, aside = "", DAMAGED
    for name in (CURRENT, PREVIOUS):
        try:
            return Loaded(checkpoint.decode((directory / name).read_bytes(), kinds), damage, aside)
        except FileNotFoundError:
            if name == CURRENT and (directory / PREVIOUS).exists():
                damage = f"{CURRENT} is missing"
        except (OSError, CheckpointError) as error:
            if name == CURRENT and isinstance(error, NewerCheckpointError):
                aside = NEWER
            damage = damage or f"{name}: {error}"
    return Loaded(None, damage, aside)


class StateFile:
    """Writes checkpoints; `problem` is the cause of the last failure, or "" after a success."""

    def __init__(
        self,
        directory: Path,
        snapshot: Callable[[], Checkpoint],
        on_write: Callable[[float, str], None],
        on_problem: Callable[[], None] = lambda: None,
        kinds: Sequence[ClaimKind] = KINDS,
    ) -> None:
        self._directory = directory
        self._snapshot = snapshot
        self._on_write = on_write  # seconds taken, problem
        self._on_problem = on_problem  # `problem` has changed
        self._kinds = kinds  # of claims
        self._waiting: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._lock: int | None = None
        self._written = b""
        self._stored: frozenset[str] = frozenset()  # UIDs of the claims that a copy on disk may contain
        self._hanging = False
        self.problem = ""

    def lock(self) -> None:
        """Locks the state directory, as two agents on a node would grant the same CPUs; raises StateLockedError."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(self._directory / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateLockedError(
                f"another dracpu-agent runs on this node: it holds {self._directory / LOCK}"
            ) from error
        except OSError as error:
            raise StateLockedError(f"cannot use the state directory {self._directory}: {error}") from error

    def unlock(self) -> None:
        """Releases the lock, so that another agent can start."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def load(self) -> Loaded:
        """Reads the previous agent's checkpoint. A copy that cannot be used is renamed, so that it neither replaces a
        good one nor is overwritten."""
        loaded = load(self._directory, self._kinds)
        if loaded.checkpoint is not None:
            self._stored = loaded.checkpoint.uids
        if loaded.damage and (self._directory / CURRENT).exists():
            (self._directory / CURRENT).replace(self._directory / loaded.aside)
        return loaded

    def may_contain(self, uid: str) -> bool:
        """Whether a restarted agent may find this claim in the checkpoint."""
        return uid in self._stored

    async def save(self) -> None:
        """Returns when the node's present state is on disk; raises StateWriteError."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(written)
        self._wake.set()
        try:
            async with asyncio.timeout(SAVE_SECONDS):
                await written
        except TimeoutError as error:
            self._set_problem(f"the disk has not finished a write for {SAVE_SECONDS:g} s")  # until a write ends
            self._on_write(SAVE_SECONDS, self.problem)
            raise StateWriteError(f"cannot write the checkpoint: {self.problem}") from error

    def save_soon(self) -> None:
        """Requests a write in the background, which is repeated until it succeeds."""
        self._wake.set()

    async def run(self) -> None:
        """Writes until cancelled, and then once more if a write is still requested."""
        try:
            while True:
                await self._wait_for_request()
                await self._write_once()
        finally:
            if self._wake.is_set() or self._waiting:
                self._wake.clear()
                self._write_last()

    async def _wait_for_request(self) -> None:
        if self.problem:  # retries without a request: a full disk may have space again
            try:
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                return
        else:
            await self._wake.wait()

    async def _write_once(self) -> None:
        self._wake.clear()
        waiting, self._waiting = self._waiting, []
        snapshot = self._snapshot()
        data = checkpoint.encode(snapshot)
        if data != self._written:
            started = time.monotonic()
            self._stored |= snapshot.uids  # a write that fails may still have replaced the file
            write = asyncio.create_task(in_file_thread(_write, self._directory, data), name="checkpoint write")
            try:
                problem = await asyncio.shield(write)
            except asyncio.CancelledError:
                # the thread continues: the last write must not begin before this one has ended
                self._hanging = not (await asyncio.wait({write}, timeout=LAST_SECONDS))[0]
                self._waiting = waiting + self._waiting
                self._wake.set()
                raise
            self._set_problem(problem)
            self._written = b"" if problem else data
            if not problem:
                self._stored = snapshot.uids
            self._on_write(time.monotonic() - started, self.problem)
        self._answer(waiting)

    def _write_last(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self._hanging:
            self._set_problem("the disk does not finish the previous write")
        else:
            self._set_problem(_write(self._directory, checkpoint.encode(self._snapshot())))
        self._answer(waiting)

    def _set_problem(self, problem: str) -> None:
        if problem == self.problem:
            return
        if problem and not self.problem:
            log.error("cannot write the checkpoint", error=problem)
        self.problem = problem
        self._on_problem()

    def _answer(self, waiting: list[asyncio.Future[None]]) -> None:
        for written in waiting:
            if written.done():  # the caller has stopped waiting
                continue
            if self.problem:
                written.set_exception(StateWriteError(f"cannot write the checkpoint: {self.problem}"))
            else:
                written.set_result(None)


def _write(directory: Path, data: bytes) -> str:
    """Returns the error's message, or "" after a success."""
    current, previous = directory / CURRENT, directory / PREVIOUS
    temporary, link = directory / f".{CURRENT}", directory / f".{PREVIOUS}"
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if current.exists():
            # a hard link, so that the current copy exists at every moment
            link.unlink(missing_ok=True)
            link.hardlink_to(current)
            link.replace(previous)
        temporary.replace(current)
        _sync_directory(directory)
    except OSError as error:
        return str(error)
    return ""


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
