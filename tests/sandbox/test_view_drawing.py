"""Tests the drawing of a node, as text without colours."""

import io

import pytest
from cpu_nodes import cpu_node
from hypothesis import given
from hypothesis import strategies as st
from random_machines import machines
from rich.console import Console

from dracpu_agent.topology.layout import layout
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.machines.presets import EPYC, HYBRID, LAB, PRESETS, XEON
from dracpu_sandbox.view.drawing import draw
from dracpu_sandbox.view.marks import uses_of

WIDE = 120


def text(node: dict[str, object], width: int = WIDE) -> str:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as printed:
        console.print(draw(node))
    return "\n".join(line.rstrip() for line in printed.get().splitlines())


def test_sockets_are_drawn_side_by_side_core_by_core() -> None:
    assert text(cpu_node(LAB, {"web": "2-3", "db": "6"})) == (
        "node-1  grouped by numanode  Ready\n"
        "8 CPUs: 2 reserved, 3 held by 2 claims, 3 shared\n"
        "┌─ socket 0 ──────┐ ┌─ socket 1 ──────┐\n"
        "│ NUMA 0  [## CC] │ │ NUMA 1  [·· G·] │\n"
        "└─────────────────┘ └─────────────────┘\n"
        "C default/web 2-3  G default/db 6"
    )


def test_memory_is_drawn_for_each_numa_node_with_what_is_promised_and_used() -> None:
    node = cpu_node(LAB)
    status = node["status"]
    assert isinstance(status, dict)
    pages = {"kind": "hugepages_2Mi", "total": "64Mi", "reserved": "0"}
    status["memory"] = [
        {"numaNode": 1, "promised": "0", **pages},
        {"numaNode": 0, "kind": "memory", "total": "9Gi", "reserved": "1Gi", "promised": "512Mi", "used": "100663297"},
        {"numaNode": 0, "promised": "16Mi", "used": "2Mi", **pages},
    ]
    assert text(node).splitlines()[5:] == [
        "NUMA 0  memory 512Mi of 8Gi promised, 96Mi used  hugepages_2Mi 16Mi of 64Mi promised, 2Mi used",
        "NUMA 1  hugepages_2Mi 0 of 64Mi promised",
    ]


def test_numa_nodes_are_lines_and_l3_caches_are_brackets() -> None:
    assert "\n".join(text(cpu_node(EPYC, {"web": "1-4,33-36"})).splitlines()[2:]) == (
        "┌─ socket 0 ──────────────────────────┐\n"
        "│ NUMA 0  [## CC CC CC] [CC ·· ·· ··] │\n"
        "│ NUMA 1  [·· ·· ·· ··] [·· ·· ·· ··] │\n"
        "│ NUMA 2  [·· ·· ·· ··] [·· ·· ·· ··] │\n"
        "│ NUMA 3  [·· ·· ·· ··] [·· ·· ·· ··] │\n"
        "└─────────────────────────────────────┘\n"
        "C default/web 1-4,33-36"
    )


def test_types_of_cores_are_named_and_cores_without_l3_cache_have_no_brackets() -> None:
    assert "NUMA 0  lp-e-core · · [p-core ## ·· ·· ·· ·· ·· e-core · · · · · · · ·]" in text(cpu_node(HYBRID))


@pytest.mark.parametrize("machine", PRESETS.values(), ids=lambda machine: machine.name)
@pytest.mark.parametrize("width", [24, 80, 200])
def test_no_line_is_wider_than_the_terminal(machine, width) -> None:
    drawn = text(cpu_node(machine, {"a-claim-with-a-long-name": "1-3"}), width)
    assert all(len(line) <= width for line in drawn.splitlines())


@given(topology=machines(), width=st.integers(24, 160))
def test_every_cpu_of_any_machine_is_drawn_once(topology: Topology, width: int) -> None:
    status = {"topology": {"layout": layout(topology)}, "cpus": {"shared": str(topology.online)}}
    assert text({"metadata": {"name": "n"}, "status": status}, width).count("·") == len(topology.online)


@given(
    free=st.sets(st.integers(1, 31)),
    split=st.lists(st.integers(1, 31), max_size=4, unique=True),
    held=st.integers(1, 31),
)
def test_a_claim_keeps_its_mark_while_others_come_and_go(free: set[int], split: list[int], held: int) -> None:
    others = {f"other-{cpu}": str(cpu) for cpu in split if cpu != held}
    before = cpu_node(XEON, {"mine": str(held)})
    after = cpu_node(XEON, {"mine": str(held)} | others, held=CpuSet(free - set(split) - {held}))

    def mark(node):
        (claim,) = (claim for claim in uses_of(node["status"], range(64)).claims if claim.name == "default/mine")
        return claim.mark

    assert mark(before) == mark(after)


def test_a_claimed_cpu_that_was_reserved_later_has_the_mark_of_its_claim() -> None:
    node = cpu_node(LAB, {"web": "2-3"}, reserved=CpuSet.parse("0-3"))
    assert "[## CC]" in text(node)


def test_held_cpus_of_claims_that_are_not_listed_are_marked() -> None:
    node = cpu_node(LAB, {"web": "2-3"}, held=CpuSet.parse("4-5"), claimsTotal=2)
    assert "[!! ··]" in text(node)
    assert "C default/web 2-3  and 1 claim more" in text(node)


def test_false_conditions_are_shown_with_the_agents_message() -> None:
    condition = {"type": "RuntimeConnected", "status": "False", "reason": "Disconnected", "message": "NRI is off"}
    assert "RuntimeConnected: NRI is off" in text(cpu_node(LAB, conditions=[condition]))


def test_a_node_without_a_status_is_named() -> None:
    assert text({"metadata": {"name": "node-1"}}) == "node-1  Pending\nno CPUs reported yet"


def test_an_invalid_status_does_not_stop_the_view() -> None:
    node = cpu_node(LAB)
    node["status"]["cpus"]["shared"] = "everything"
    assert 'its status cannot be read: "everything"' in text(node)
