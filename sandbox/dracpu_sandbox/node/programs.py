"""Parses the commands of containers that the sandbox simulates.

    true            succeeds                    false       exits with 1
    sleep N[s|m|h]  succeeds after that time    exit N      exits with N
    sh -c "..."     runs these commands, separated by ; or &&, and commands that take no time (echo, grep, ...)

Every other command runs until it is stopped, and so does a container without a command.
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
    """How long a container runs, and its exit code."""

    seconds: float | None = None  # None: it runs until it is stopped
    exit_code: int = 0


FOR_EVER: Final = Program()


def program_of(words: Sequence[str]) -> Program:
    """Parses a command line, which is `command` and `args` of a container together."""
    if len(words) == 3 and PurePosixPath(words[0]).name in _SHELLS and words[1] == "-c":
        return _script(words[2])
    return _command(words)


def _script(text: str) -> Program:
    seconds, exit_code = 0.0, 0
    for line in re.split(r"[;\n]", text):
        for part in line.split("&&"):
            try:
                words = shlex.split(part)
            except ValueError:  # a quoted separator: such scripts are not simulated
                return FOR_EVER
            done = _command(words) if words else Program(0, exit_code)
            if done.seconds is None:
                return FOR_EVER
            seconds, exit_code = seconds + done.seconds, done.exit_code
            if words[:1] == ["exit"]:
                return Program(seconds, exit_code)
            if exit_code:
                break  # && continues after success only
    return Program(seconds, exit_code)


def _command(words: Sequence[str]) -> Program:
    match list(words):
        case ["true" | "/bin/true"]:
            return Program(0)
        case ["false" | "/bin/false"]:
            return Program(0, 1)
        case ["exit", code] if code.isdecimal():
            return Program(0, int(code) % 256)
        case ["sleep" | "/bin/sleep", duration] if found := _DURATION.fullmatch(duration):
            return Program(float(found[1]) * _UNITS[found[2]])
        case [name, *_] if PurePosixPath(name).name in _BRIEF:
            return Program(0)
    return FOR_EVER
