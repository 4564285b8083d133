"""Tests which parts of the nodes' drawings are on the screen."""

import asyncio
import io

import pytest
from cpu_nodes import cpu_node
from rich.console import Console
from rich.text import Text

from dracpu_sandbox.cluster import Sandbox
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.machines.presets import LAB
from dracpu_sandbox.stories.story import Story
from dracpu_sandbox.view.top import Watched, follow, print_once, screen

NODE_LINES = 6  # two lines of heading, three of sockets, one empty


def shown(count: int, height: int, *names: str, trouble: str = "") -> list[str]:
    nodes = {f"node-{number}": cpu_node(LAB, name=f"node-{number}") for number in range(1, count + 1)}
    console = Console(file=io.StringIO(), width=100, height=height)
    with console.capture() as printed:
        console.print(screen(nodes, names, console, trouble))
    return [line.rstrip() for line in printed.get().splitlines()]


def headings(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if line.startswith("node-")]


def test_the_legend_is_above_all_nodes() -> None:
    lines = shown(2, 40)
    assert lines[0].startswith("# reserved  · shared")
    assert headings(lines) == ["node-1", "node-2"]


def test_nodes_are_sorted_by_number() -> None:
    assert headings(shown(11, 100))[-3:] == ["node-9", "node-10", "node-11"]


def test_only_the_named_nodes_are_drawn_in_their_order() -> None:
    assert headings(shown(3, 40, "node-3", "node-1")) == ["node-3", "node-1"]


def test_nodes_that_do_not_fit_are_counted() -> None:
    lines = shown(9, 2 + 2 * NODE_LINES + 1)
    assert headings(lines) == ["node-1", "node-2"]
    assert lines[-1] == "and 7 more: make the window larger, or name the nodes"


def test_a_problem_with_the_api_server_is_shown_first() -> None:
    assert shown(1, 20, trouble="the server does not answer")[0] == "the server does not answer"


async def test_the_nodes_of_a_cluster_are_printed_once(cluster: Sandbox) -> None:
    console = Console(file=io.StringIO(), width=100)
    await print_once(Watched(cluster.kubeconfig), console)
    assert "│ NUMA 0  [## ··] │ │ NUMA 1  [·· ··] │" in printed(console)


async def test_an_unknown_node_is_reported_with_the_known_ones(cluster: Sandbox) -> None:
    with pytest.raises(SandboxError, match='there is no CpuNode "node-7"; the cluster has: node-1'):
        await print_once(Watched(cluster.kubeconfig, ("node-7",)), Console(file=io.StringIO()))


async def test_changes_are_drawn(cluster: Sandbox, story: Story) -> None:
    console = Console(file=io.StringIO(), width=100, height=20, force_terminal=True)
    view = asyncio.create_task(follow(Watched(cluster.kubeconfig), console))
    try:
        await story.until("the node is drawn", lambda: "[## ··]" in printed(console))
        await story.pod("web", cpus=2)
        await story.until("its claim is drawn", lambda: "[## CC]" in printed(console), lambda: printed(console)[-900:])
    finally:
        view.cancel()
        await asyncio.wait({view})
    assert view.cancelled()


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return Text.from_ansi(console.file.getvalue()).plain
