"""Draws a node as text, from its CpuNode only, so that it works for every cluster.

    node-1  grouped by numanode  Ready
    16 CPUs: 2 reserved, 4 held by 1 claim, 10 shared
    ┌─ socket 0 ─────────────┐ ┌─ socket 1 ─────────────┐
    │ NUMA 0  [## CC CC ··]  │ │ NUMA 1  [·· ·· ·· ··]  │
    └────────────────────────┘ └────────────────────────┘
    NUMA 0  memory 512Mi of 8Gi promised, 96Mi used  hugepages_2Mi 0 of 64Mi promised
    C default/web 2-5

A character is a CPU, a word is a core, and brackets enclose the CPUs that share an L3 cache. The lines with memory
exist where the node offers some.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from rich.box import SQUARE
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dracpu_agent.topology.topology import CORE_TYPES
from dracpu_api.conditions import REMARKS
from dracpu_api.cpuset import CpuSet, CpuSetError
from dracpu_api.quantity import format_binary, whole_number
from dracpu_sandbox.resources import JsonObject, conditions_of
from dracpu_sandbox.view.marks import HELD, RESERVED, SHARED, Uses, uses_of

_LEGEND: Final = ((RESERVED, "reserved"), (SHARED, "shared"), (HELD, "held, unlisted"))
_PHASES: Final = {"Ready": "green", "Draining": "yellow", "Settling": "yellow", "Failed": "bold red"}
_LABEL: Final = "dim"
_MIB: Final = 1024**2
_GAP: Final = Text("  ")  # between the words of a line


@dataclass(frozen=True, slots=True)
class _Group:
    """Cores that share socket, NUMA node and L3 cache: a row of the layout."""

    socket: int
    numa: int
    l3: int
    words: tuple[CpuSet | str, ...]  # cores; the name of a core type precedes its cores


def draw(node: JsonObject) -> RenderableType:
    """Draws a heading, the node's sockets, its claims, and its conditions that are False."""
    status = node.get("status") or {}
    try:
        groups = _groups(((status.get("topology") or {}).get("layout")) or ())
        uses = uses_of(status, [cpu for group in groups for core in _cores(group) for cpu in core])
    except (CpuSetError, KeyError) as error:
        return Group(_heading(node), Text(f"its status cannot be read: {error}", style="red"))
    if not groups:
        return Group(_heading(node), "no CPUs reported yet")
    sockets = [_socket(list(rows), uses) for _, rows in groupby(groups, key=lambda group: group.socket)]
    parts: list[RenderableType] = [_heading(node), _counts(uses, groups), Columns(sockets, padding=(0, 1))]
    parts += _memory(status.get("memory") or ())
    if claims := _claims(uses):
        parts.append(Columns(claims, padding=(0, 2)))
    return Group(*parts, *_problems(node))


def legend() -> Text:
    """Explains the marks that all nodes share."""
    known = _GAP.join(Text.assemble((mark.character, mark.style), " ", name) for mark, name in _LEGEND)
    return Text.assemble(known, "  letter, digit: a claim  word: a core  []: an L3 cache")


def _groups(layout: Iterable[JsonObject]) -> list[_Group]:
    return [_Group(row["socket"], row["numa"], row["l3"], tuple(_words(row["cores"]))) for row in layout]


def _words(cores: str) -> Iterable[CpuSet | str]:
    for word in cores.split():
        yield word if word in CORE_TYPES else CpuSet.parse(word)


def _cores(group: _Group) -> list[CpuSet]:
    return [word for word in group.words if isinstance(word, CpuSet)]


def _heading(node: JsonObject) -> Text:
    status, settings = node.get("status") or {}, (node.get("spec") or {}).get("settings") or {}
    phase = status.get("phase") or "Pending"
    words = [Text(node["metadata"]["name"], style="bold")]
    if mode := settings.get("mode"):
        words.append(Text(f"grouped by {settings.get('groupBy')}" if mode == "grouped" else mode))
    return _GAP.join([*words, Text(phase, style=_PHASES.get(phase, "bold"))])


def _counts(uses: Uses, groups: Iterable[_Group]) -> str:
    total = sum(len(core) for group in groups for core in _cores(group))
    claims = len(uses.claims) + uses.unnamed
    held = f"{len(uses.exclusive)} held by {_count(claims, 'claim')}" if claims else f"{len(uses.exclusive)} held"
    return f"{_count(total, 'CPU')}: {len(uses.reserved)} reserved, {held}, {len(uses.shared)} shared"


def _socket(groups: Sequence[_Group], uses: Uses) -> Panel:
    """Draws a box with a row for each NUMA node."""
    table = Table.grid(padding=(0, 2))
    for numa, rows in groupby(groups, key=lambda group: group.numa):
        table.add_row(Text(f"NUMA {numa}", style=_LABEL), Text(" ").join(_block(row, uses) for row in rows))
    return Panel(table, title=f"socket {groups[0].socket}", title_align="left", box=SQUARE, expand=False)


def _block(group: _Group, uses: Uses) -> Text:
    """Draws the cores of an L3 cache in brackets, or without brackets if the kernel reports no cache."""
    words = [
        Text.assemble(*((mark.character, mark.style) for mark in map(uses.mark, word)))
        if isinstance(word, CpuSet)
        else Text(word, style=_LABEL)
        for word in group.words
    ]
    cores = Text(" ").join(words)
    return cores if group.l3 < 0 else Text.assemble("[", cores, "]")


def _memory(entries: Sequence[JsonObject]) -> list[Text]:
    """Draws a line for each NUMA node that has memory for claims."""
    ordered = sorted(entries, key=lambda entry: entry["numaNode"])
    return [
        _GAP.join([Text(f"NUMA {numa}", style=_LABEL), *(Text(_kind(entry)) for entry in kinds)])
        for numa, kinds in groupby(ordered, key=lambda entry: entry["numaNode"])
    ]


def _kind(entry: JsonObject) -> str:
    offered = (whole_number(entry["total"]) or 0) - (whole_number(entry["reserved"]) or 0)
    used = f", {_rounded(entry['used'])} used" if "used" in entry else ""
    return f"{entry['kind']} {_rounded(entry['promised'])} of {_rounded(str(offered))} promised{used}"


def _rounded(quantity: str) -> str:
    """Returns a quantity in whole MiB, which is exact enough to look at."""
    return format_binary((whole_number(quantity) or 0) // _MIB * _MIB)


def _claims(uses: Uses) -> list[Text]:
    named = [
        Text.assemble((claim.mark.character, claim.mark.style), f" {claim.name} {claim.cpus}") for claim in uses.claims
    ]
    return named + ([Text(f"and {_count(uses.unnamed, 'claim')} more")] if uses.unnamed else [])


def _problems(node: JsonObject) -> list[Text]:
    """Returns the conditions that are False and the remarks that are True, with the agent's messages."""
    return [
        Text(f"{kind}: {condition.get('message') or condition.get('reason')}", style=style)
        for kind, condition in conditions_of(node).items()
        for status, style in [("True", "yellow") if kind in REMARKS else ("False", "red")]
        if condition.get("status") == status
    ]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
