"""The lab stops the processes that it has recorded, and no others."""

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
    paths = Paths(tmp_path)
    paths.pids.mkdir()
    return paths


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process that runs until a signal ends it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def record(paths: Paths, name: str, identity: Identity | None) -> None:
    assert identity is not None
    (paths.pids / name).write_text(json.dumps(asdict(identity)))


def test_a_recorded_process_is_stopped_and_its_record_removed(paths: Paths, process: subprocess.Popen[bytes]) -> None:
    record(paths, "etcd", identify(process.pid))
    assert running(paths, "etcd")
    stop(paths, ["etcd"])
    assert process.wait(10) != 0
    assert names(paths) == []


def test_another_process_that_has_a_recorded_pid_is_not_stopped(paths: Paths, process: subprocess.Popen[bytes]) -> None:
    record(paths, "etcd", Identity(process.pid, start=1))
    assert not running(paths, "etcd")
    stop(paths, ["etcd"])
    assert process.poll() is None
    assert names(paths) == []


def test_a_zombie_does_not_count_as_running(paths: Paths, process: subprocess.Popen[bytes]) -> None:
    record(paths, "etcd", identify(process.pid))
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not running(paths, "etcd")


def test_the_start_time_is_read_whatever_the_program_is_called() -> None:
    fields = ["S", *map(str, range(1, 19)), "4711", "22"]
    assert parse_start(f"12 (a) odd) name) {' '.join(fields)}") == 4711
