"""`dracpu-agent topology` and `state` as a person runs them."""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from nodes import node, request, share
from whole_agent import whole_node

from dracpu_agent.checkpoint.statefile import CURRENT
from dracpu_agent.claims import checkpoint
from dracpu_sandbox.machines.description import Memory
from dracpu_sandbox.machines.presets import LAB
from dracpu_sandbox.machines.tree import directory, write_tree


def command(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "dracpu_agent", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, check=False, text=True, timeout=30)


def test_topology_prints_a_table_or_exact_json():
    with directory() as root:
        sysfs, procfs = write_tree(LAB, root)
        roots = ("--sysfs-root", sysfs, "--procfs-root", procfs)
        table = command("topology", *roots)
        printed = json.loads(command("topology", *roots, "-o", "json").stdout)
    assert table.returncode == 0
    assert "2 sockets" in table.stdout
    assert [item["cpu"] for item in printed] == list(range(8))
    assert set(printed[0]) == {"cpu", "core", "socket", "numa", "l3", "type", "siblings"}


def test_memory_prints_a_table_or_exact_json():
    with directory() as root:
        machine = replace(LAB, memory=(Memory(0, 4096, ((2048, 3, 2, 0),), tier=4),))
        sysfs, procfs = write_tree(machine, root)
        roots = ("--sysfs-root", sysfs, "--procfs-root", procfs)
        table = command("memory", *roots).stdout.splitlines()
        printed = json.loads(command("memory", *roots, "-o", "json").stdout)
    assert table[0].split() == ["NUMA", "CPUS", "TIER", "TOTAL", "2Mi"]
    assert printed == [
        {"numa": 0, "cpus": "0-3", "tier": 4, "total": 4194304, "hugepages": {"2Mi": {"pages": 3, "free": 2}}}
    ]


@pytest.mark.parametrize("name", ["topology", "memory"])
def test_a_machine_that_cannot_be_read_is_reported_in_one_line(tmp_path, name):
    refused = command(name, "--sysfs-root", tmp_path, "--procfs-root", tmp_path)
    assert refused.returncode == 1
    assert refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert line.startswith("dracpu-agent: ")
    assert str(tmp_path) in line


def test_state_shows_the_last_checkpoint_when_no_agent_runs(tmp_path):
    state = node()
    state.claims.grant(request(1, share("cpudevnuma001", 2)))
    (tmp_path / CURRENT).write_bytes(checkpoint.encode(state.checkpoint()))
    shown = command("state", "--state-dir", tmp_path)
    assert shown.returncode == 0
    assert "exclusive  4-5" in shown.stdout
    assert "default/claim-1" in shown.stdout
    assert shown.stderr.startswith("dracpu-agent: this is the last checkpoint: no agent serves ")


def test_state_without_agent_and_checkpoint_is_reported_in_one_line(tmp_path):
    refused = command("state", "--state-dir", tmp_path)
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"dracpu-agent: no usable checkpoint in {tmp_path}, and no agent serves ")


def test_topology_marks_the_cpus_of_its_option_as_reserved(tmp_path):
    with directory() as root:
        sysfs, procfs = write_tree(LAB, root)
        roots = ("--sysfs-root", sysfs, "--procfs-root", procfs, "--state-dir", tmp_path)
        marked = command("topology", *roots, "--reserved", "0-1,9").stdout
        unmarked = command("topology", *roots).stdout
        refused = command("topology", *roots, "--reserved", "1-0")
    assert "2 reserved (0-1), marked *" in marked
    assert "0*,1*" in marked
    assert "reserved" not in unmarked
    assert refused.returncode == 1
    assert refused.stderr == 'dracpu-agent: --reserved: "1-0" is reversed: write "0-1"\n'


async def test_topology_marks_the_cpus_that_the_running_agent_reserves():
    with directory() as root:
        sysfs, procfs = write_tree(LAB, root)
        async with whole_node() as running:
            asked = ("topology", "--sysfs-root", sysfs, "--procfs-root", procfs)
            shown = await asyncio.to_thread(command, *asked, "--state-dir", running.root / "state")
    assert "2 reserved (0-1), marked *" in shown.stdout


async def test_state_of_a_running_agent_comes_from_its_socket():
    async with whole_node() as running:
        shown = await asyncio.to_thread(command, "state", "--state-dir", running.root / "state", "-o", "json")
    document = json.loads(shown.stdout)
    assert (document["node"], document["reserved"], document["shared"]) == ("vm1", "0-1", "2-7")
    assert all(condition["status"] for condition in document["conditions"])
