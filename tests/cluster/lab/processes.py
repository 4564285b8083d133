"""Long-running processes of the lab: started into its network, remembered, and stopped by identity.

A pid alone does not identify a process: after a reboot, or after 32,768 other processes, it is somebody else's. So the
start time is remembered with it, and nothing is ever stopped by its name.
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
from lab.network import inside
from lab.paths import Paths

PATIENCE: Final = 5.0  # the API server would take a minute to leave by itself


@dataclass(frozen=True, slots=True)
class Identity:
    """One process for as long as this machine is up."""

    pid: int
    start: int  # ticks since boot


def parse_start(stat: str) -> int:
    """The start time in /proc/<pid>/stat. The program's name, in brackets, may itself hold blanks and brackets."""
    return int(stat.rpartition(")")[2].split()[19])


def identify(pid: int) -> Identity | None:
    """The process that has this pid now; None when there is none, or only its unreaped remains."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if stat.rpartition(")")[2].split()[0] == "Z":
        return None
    return Identity(pid, parse_start(stat))


def spawn(paths: Paths, name: str, *command: Argument, keep_log: bool = False) -> None:
    """Starts a program in the lab's network that outlives this process; its output goes to the lab's logs."""
    if running(paths, name):
        raise LabError(f"{name} runs already: run `python -m lab down` first")
    paths.logs.mkdir(parents=True, exist_ok=True)
    words = inside(paths, *command)
    with (paths.logs / f"{name}.log").open("ab" if keep_log else "wb") as log, Path(os.devnull).open("rb") as nothing:
        outputs = [(os.POSIX_SPAWN_DUP2, log.fileno(), number) for number in (1, 2)]
        files = [(os.POSIX_SPAWN_DUP2, nothing.fileno(), 0), *outputs]
        # not Popen, which expects its maker to wait for the process
        pid = os.posix_spawnp(words[0], words, os.environ, file_actions=files, setsid=True)
    identity = identify(pid)
    if identity is None:
        raise LabError(f"{name} ended at once: see {paths.logs}/{name}.log")
    write_whole(paths.pids / name, json.dumps(asdict(identity)))


def names(paths: Paths) -> list[str]:
    """Everything that was started and not stopped, whether it still runs or not."""
    return sorted(file.name for file in paths.pids.glob("[!.]*"))


def running(paths: Paths, name: str) -> bool:
    """True when the remembered process is still the one that has its pid."""
    identity = _remembered(paths, name)
    return identity is not None and identify(identity.pid) == identity


def stop(paths: Paths, which: Iterable[str]) -> None:
    """Asks all of them to leave, then makes them."""
    identities = {name: _remembered(paths, name) for name in which}
    alive = [identity for identity in identities.values() if identity and identify(identity.pid) == identity]
    for identity in alive:
        _signal(identity, signal.SIGTERM)
    try:
        wait_until("the lab's end", lambda: not any(map(_alive, alive)), PATIENCE)
    except NotReadyError:
        for identity in alive:
            _signal(identity, signal.SIGKILL)
        wait_until("the lab's end", lambda: not any(map(_alive, alive)), PATIENCE)
    for name in identities:
        (paths.pids / name).unlink(missing_ok=True)


def terminate(process: subprocess.Popen[bytes]) -> None:
    """Ends a child of this process."""
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _remembered(paths: Paths, name: str) -> Identity | None:
    try:
        return Identity(**json.loads((paths.pids / name).read_text()))
    except FileNotFoundError:
        return None


def _alive(identity: Identity) -> bool:
    return identify(identity.pid) == identity


def _signal(identity: Identity, number: signal.Signals) -> None:
    """Through a handle on the process, so that a pid reused between the check and the signal cannot be hit."""
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
