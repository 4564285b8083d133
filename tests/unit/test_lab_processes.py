"""The lab stops the processes that it started, and no others."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from lab.paths import Paths
from lab.processes import Identity, identify, names, parse_start, running, stop


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(tmp_path)
    made.pids.mkdir()
    return made


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends only when it is made to."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as made:
        yield made
        made.kill()


def remember(paths: Paths, name: str, identity: Identity | None) -> None:
    assert identity is not None
    (paths.pids / name).write_text(json.dumps(asdict(identity)))


def test_a_remembered_process_is_stopped_and_forgotten(paths: Paths, process: subprocess.Popen[bytes]) -> None:
    remember(paths, "etcd", identify(process.pid))
    assert running(paths, "etcd")
    stop(paths, ["etcd"])
    assert process.wait(10) != 0
    assert names(paths) == []


def test_another_process_under_a_remembered_pid_is_left_alone(paths: Paths, process: subprocess.Popen[bytes]) -> None:
    remember(paths, "etcd", Identity(process.pid, start=1))
    assert not running(paths, "etcd")
    stop(paths, ["etcd"])
    assert process.poll() is None
    assert names(paths) == []


def test_an_ended_process_is_not_running_even_while_nobody_has_reaped_it(
    paths: Paths, process: subprocess.Popen[bytes]
) -> None:
    remember(paths, "etcd", identify(process.pid))
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not running(paths, "etcd")


def test_the_start_time_is_found_behind_any_program_name() -> None:
    fields = ["S", *map(str, range(1, 19)), "4711", "22"]
    assert parse_start(f"12 (a) odd) name) {' '.join(fields)}") == 4711
