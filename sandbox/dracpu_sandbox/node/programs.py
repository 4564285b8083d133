"""What a container does, as far as the sandbox plays it.

    true            ends well                   false       ends with 1
    sleep N[s|m|h]  ends well after that        exit N      ends with N
    sh -c "..."     the same, one after the other with ; or &&, among commands that take no time (echo, grep, ...)

Everything else, no command at all among it, runs until it is stopped.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

_SHELLS: Final = ("sh", "bash", "ash")
_BRIEF: Final = frozenset({"echo", "printf", "cat", "grep", "nproc", "taskset", "date", "hostname", "env", "ls", ":"})
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smh]?)")


@dataclass(frozen=True, slots=True)
class Program:
    """How long a container runs, and with what it ends."""

    seconds: float | None = None  # None: until it is stopped
    exit_code: int = 0


FOR_EVER: Final = Program()


def program_of(words: Sequence[str]) -> Program:
    """What this command line does; `command` and `args` of a container together."""
    if not words:
        return FOR_EVER
    if PurePosixPath(words[0]).name in _SHELLS and len(words) == 3 and words[1] == "-c":
        return _script(words[2])
    return _command(words) or FOR_EVER


def _script(text: str) -> Program:
    seconds = 0.0
    exit_code = 0
    for line in re.split(r"[;\n]", text):
        for part in line.split("&&"):
            words = _words(part)
            if not words:
                continue
            done = _command(words)
            if done is None or done.seconds is None:  # a loop, a server: not ours to play
                return FOR_EVER
            seconds, exit_code = seconds + done.seconds, done.exit_code
            if words[0] == "exit":
                return Program(seconds, exit_code)
            if exit_code:
                break  # && goes on after success only
    return Program(seconds, exit_code)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quoted separator: more shell than is played here
        return ["?"]


def _command(words: Sequence[str]) -> Program | None:
    """None: not known."""
    match PurePosixPath(words[0]).name, *words[1:]:
        case ("true",):
            return Program(0)
        case ("false",):
            return Program(0, 1)
        case ("exit", code) if code.isdecimal():
            return Program(0, int(code) % 256)
        case ("sleep", duration) if found := _DURATION.fullmatch(duration):
            return Program(float(found[1]) * _UNITS[found[2]])
        case (name, *_) if name in _BRIEF:
            return Program(0)
    return None
