"""`dracpu-sandbox top`: draws the nodes of a cluster, again after each change."""

import asyncio
import contextlib
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from dracpu_sandbox.client import KubeClient, KubeError, Mirror, NotFoundError, UnreachableError
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.resources import CPU_NODES, NAMESPACES, JsonObject
from dracpu_sandbox.view.drawing import draw, legend

_LEAST_SECONDS: Final = 0.1  # between two drawings
_ALIVE_SECONDS: Final = 2.0  # interval of checks whether the API server still answers


@dataclass(frozen=True, slots=True)
class Watched:
    """The nodes to draw and their cluster; no name means all nodes."""

    kubeconfig: Path
    names: tuple[str, ...] = ()


async def print_once(watched: Watched, console: Console) -> None:
    """Prints the nodes in their current state."""
    async with KubeClient.from_kubeconfig(watched.kubeconfig) as client:
        try:
            listed = await client.list(CPU_NODES)
        except NotFoundError as error:
            raise SandboxError("this cluster does not serve CpuNodes: is dra-cpu-operator installed?") from error
    nodes = {item["metadata"]["name"]: item for item in listed}
    missing = [name for name in watched.names if name not in nodes]
    if missing:
        raise SandboxError(f'there is no CpuNode "{missing[0]}"; the cluster has: {", ".join(sorted(nodes)) or "none"}')
    for node in _chosen(nodes, watched.names):
        console.print(draw(node), "")
    console.print(legend())


async def follow(watched: Watched, console: Console) -> None:
    """Draws the nodes until cancelled."""
    redraw = asyncio.Event()
    async with KubeClient.from_kubeconfig(watched.kubeconfig) as client, asyncio.TaskGroup() as group:
        mirror = Mirror(client, CPU_NODES, on_change=lambda event: redraw.set())
        with Live(console=console, screen=True, auto_refresh=False) as live, _on_resize(redraw):
            group.create_task(mirror.run(), name="nodes")
            while True:
                trouble = await _trouble(client)
                nodes = {name: node for (_, name), node in mirror.items.items()}
                live.update(screen(nodes, watched.names, console, trouble), refresh=True)
                await asyncio.sleep(_LEAST_SECONDS)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ALIVE_SECONDS):
                        await redraw.wait()
                redraw.clear()


async def _trouble(client: KubeClient) -> str:
    """Returns why the drawing may be outdated: a watch stays silent when the API server does not answer."""
    try:
        await client.get(NAMESPACES, "default")
    except KubeError:
        return ""  # an error is an answer, too
    except UnreachableError:
        return f"{client.server} does not answer: the drawing may be outdated"
    return ""


def screen(nodes: Mapping[str, JsonObject], names: Sequence[str], console: Console, trouble: str = "") -> Group:
    """Returns the content that fits on the screen: the legend, whole nodes, and a line about the others."""

    def height(part: RenderableType) -> int:
        return len(console.render_lines(part))

    parts: list[RenderableType] = [*([Text(trouble, style="bold red")] if trouble else []), legend()]
    chosen, room = _chosen(nodes, names), console.height - sum(map(height, parts))
    for number, node in enumerate(chosen):
        drawn, left = draw(node), len(chosen) - number
        if number and height(drawn) > room - (left > 1):
            parts.append(Text(f"and {left} more: make the window larger, or name the nodes", style="dim"))
            break
        parts += [drawn, ""]
        room -= height(drawn) + 1
    return Group(*parts, *([] if chosen else ["no CpuNode yet"]))


@contextlib.contextmanager
def _on_resize(redraw: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, redraw.set)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


def _chosen(nodes: Mapping[str, JsonObject], names: Sequence[str]) -> list[JsonObject]:
    """Returns nodes in the order of `names`, or in natural order, with node-2 before node-10."""
    if names:
        return [nodes[name] for name in names if name in nodes]
    return [nodes[name] for name in sorted(nodes, key=_natural)]


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part]
