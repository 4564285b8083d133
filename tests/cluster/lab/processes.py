"""Starts the lab's long-running processes in its network, records them in files, and stops exactly these processes.

A pid alone does not identify a process: after a reboot, or when the pids have wrapped around, another process has it.
So the start time is recorded with the pid, and no process is ever stopped by its name.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from lab.errors import LabError, NotReadyError
from lab.host import Argument, wait_until, write_whole
from lab.network import network_command
from lab.paths import Paths

GRACE_SECONDS: Final = 5.0  # then the process is killed; the API server alone would take a minute to end


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies one process until the host reboots."""

    pid: int
    start: int  # ticks since boot


def parse_start(stat: str) -> int:
    """Reads the start time from /proc/<pid>/stat. The program's name, in brackets, may contain blanks and brackets."""
    return int(stat.rpartition(")")[2].split()[19])


def identify(pid: int) -> Identity | None:
    """Returns the process that has this pid now; None when no process or only a zombie has it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if stat.rpartition(")")[2].split()[0] == "Z":
        return None
    return Identity(pid, parse_start(stat))


def spawn(paths: Paths, name: str, *command: Argument, keep_log: bool = False) -> None:
    """Starts a program that keeps running after this process, in the lab's network; its output goes to the logs."""
    if running(paths, name):
        raise LabError(f"{name} is already running: run `python -m lab down` first")
    paths.logs.mkdir(parents=True, exist_ok=True)
    words = network_command(paths, *command)
    with (paths.logs / f"{name}.log").open("ab" if keep_log else "wb") as log, Path(os.devnull).open("rb") as nothing:
        outputs = [(os.POSIX_SPAWN_DUP2, log.fileno(), number) for number in (1, 2)]
        files = [(os.POSIX_SPAWN_DUP2, nothing.fileno(), 0), *outputs]
        # Popen warns when nobody waits for the process
        pid = os.posix_spawnp(words[0], words, os.environ, file_actions=files, setsid=True)
    identity = identify(pid)
    if identity is None:
        raise LabError(f"{name} exited immediately: see {paths.logs}/{name}.log")
    write_whole(paths.pids / name, json.dumps(asdict(identity)))


def names(paths: Paths) -> list[str]:
    """Returns the names of all processes that were started and not stopped, whether they still run or not."""
    return sorted(file.name for file in paths.pids.glob("[!.]*"))


def running(paths: Paths, name: str) -> bool:
    """Returns True when the recorded process still runs."""
    identity = _recorded(paths, name)
    return identity is not None and _alive(identity)


def stop(paths: Paths, which: Iterable[str]) -> None:
    """Sends SIGTERM to the processes, and SIGKILL if some still run after the grace period; returns when all ended."""
    identities = {name: _recorded(paths, name) for name in which}
    alive = [identity for identity in identities.values() if identity and _alive(identity)]
    what = f"the end of {', '.join(identities)}"

    def ended() -> bool:
        return not any(map(_alive, alive))

    for identity in alive:
        _signal(identity, signal.SIGTERM)
    try:
        wait_until(what, ended, GRACE_SECONDS)
    except NotReadyError:
        for identity in alive:
            _signal(identity, signal.SIGKILL)
        wait_until(what, ended, GRACE_SECONDS, look=f"their pids in {paths.pids}")
    for name in identities:
        (paths.pids / name).unlink(missing_ok=True)


def terminate(process: subprocess.Popen[bytes]) -> None:
    """Ends a child of this process and waits until it has ended."""
    process.terminate()
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _recorded(paths: Paths, name: str) -> Identity | None:
    try:
        return Identity(**json.loads((paths.pids / name).read_text()))
    except FileNotFoundError:
        return None


def _alive(identity: Identity) -> bool:
    return identify(identity.pid) == identity


def _signal(identity: Identity, number: signal.Signals) -> None:
    """Sends a signal through a pidfd, so that it cannot reach another process that gets the pid after the check."""
    try:
        handle = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    try:
        if _alive(identity):
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)
