"""Tests which commands of containers the sandbox simulates."""

import pytest

from dracpu_sandbox.node.programs import FOR_EVER, Program, program_of


@pytest.mark.parametrize(
    "words, program",
    [
        ((), FOR_EVER),
        (("nginx", "-g", "daemon off;"), FOR_EVER),
        (("true",), Program(0)),
        (("/bin/false",), Program(0, 1)),
        (("sleep", "infinity"), FOR_EVER),
        (("sleep", "1.5"), Program(1.5)),
        (("sleep", "2m"), Program(120)),
        (("sh", "-c", "exit 3"), Program(0, 3)),
        (("/bin/sh", "-c", "grep Cpus /proc/self/status; sleep 5"), Program(5)),
        (("sh", "-c", "sleep 1 && false && sleep 9"), Program(1, 1)),
        (("sh", "-c", "false; sleep 2"), Program(2)),
        (("sh", "-c", "sleep 1; exit 0; sleep 9"), Program(1)),
        (("sh", "-c", "while true; do sleep 1; done"), FOR_EVER),
        (("sh", "-c", "echo hello; sleep infinity"), FOR_EVER),
        (("sh", "-c", "echo 'it is; so'"), FOR_EVER),
        (("sh", "-c", ""), Program(0)),
    ],
)
def test_known_commands_end_and_all_others_run_until_they_are_stopped(words: tuple[str, ...], program: Program) -> None:
    assert program_of(words) == program
