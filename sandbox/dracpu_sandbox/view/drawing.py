"""A node as a picture: a pure function of its CpuNode, so that it draws any cluster's nodes.

    node-1  grouped by numanode  Ready  16 CPUs: 2 reserved, 4 held by 1 claim, 10 shared
    ┌ socket 0 ──────────────┐ ┌ socket 1 ──────────────┐
    │ NUMA 0  [## CC CC ··]  │ │ NUMA 1  [·· ·· ·· ··]  │
    └────────────────────────┘ └────────────────────────┘
    C default/web 2-5

A character is a CPU, a word is a core, brackets hold what shares an L3 cache. No line is wider than asked for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from rich.text import Text

from dracpu_agent.topology.topology import CORE_TYPES
from dracpu_api.cpuset import CpuSet, CpuSetError
from dracpu_sandbox.resources import JsonObject
from dracpu_sandbox.view.marks import HELD, RESERVED, SHARED, Uses, uses_of

LEAST_WIDTH: Final = 24

_LEGEND: Final = ((RESERVED, "reserved"), (SHARED, "shared"), (HELD, "held, unlisted"))
_PHASES: Final = {"Ready": "green", "Draining": "yellow", "Settling": "yellow", "Failed": "bold red"}
_LABEL: Final = "dim"
_GAP: Final = 2  # between words of a line


@dataclass(frozen=True, slots=True)
class _Group:
    """Cores that share socket, NUMA node and L3 cache: a row of the layout."""

    socket: int
    numa: int
    l3: int
    words: tuple[CpuSet | str, ...]  # cores; before those of a type its name


def draw(node: JsonObject, width: int) -> list[Text]:
    """The node's lines: a heading, its sockets, its claims, and what is wrong with it."""
    width = max(width, LEAST_WIDTH)
    status = node.get("status") or {}
    try:
        groups = _groups(((status.get("topology") or {}).get("layout")) or ())
        uses = uses_of(status, [cpu for group in groups for core in _cores(group) for cpu in core])
    except (CpuSetError, KeyError) as error:
        trouble = Text(f"its status cannot be read: {error}", style="red")
        return [*_wrapped(_heading(node, "", Uses()), width), *_wrapped([trouble], width)]
    total = sum(len(core) for group in groups for core in _cores(group))
    counts = _counts(uses, total) if groups else "no CPUs reported yet"
    sockets = [_socket(list(rows), uses, width) for _, rows in groupby(groups, key=lambda group: group.socket)]
    return [
        *_wrapped(_heading(node, counts, uses), width),
        *_side_by_side(sockets, width),
        *_wrapped(_claims(uses), width),
        *(line for problem in _problems(status) for line in _wrapped(problem, width, gap=1)),
    ]


def legend() -> Text:
    """The meaning of the marks that all nodes share."""
    known = _joined([Text.assemble((mark.character, mark.style), " ", name) for mark, name in _LEGEND])
    return Text.assemble(known, "  letter, digit: a claim  word: a core  []: an L3 cache")


def _groups(layout: Iterable[JsonObject]) -> list[_Group]:
    return [_Group(row["socket"], row["numa"], row["l3"], tuple(_words(row["cores"]))) for row in layout]


def _words(cores: str) -> Iterable[CpuSet | str]:
    for word in cores.split():
        yield word if word in CORE_TYPES else CpuSet.parse(word)


def _cores(group: _Group) -> list[CpuSet]:
    return [word for word in group.words if isinstance(word, CpuSet)]


def _heading(node: JsonObject, counts: str, uses: Uses) -> list[Text]:
    status, settings = node.get("status") or {}, (node.get("spec") or {}).get("settings") or {}
    phase = status.get("phase") or "Pending"
    words = [Text(node["metadata"]["name"], style="bold")]
    if mode := settings.get("mode"):
        words.append(Text(f"grouped by {settings.get('groupBy')}" if mode == "grouped" else mode))
    words.append(Text(phase, style=_PHASES.get(phase, "bold")))
    return words + ([Text(counts)] if counts else [])


def _counts(uses: Uses, total: int) -> str:
    claims = len(uses.claims) + uses.unnamed
    held = f"{len(uses.exclusive)} held by {_count(claims, 'claim')}" if claims else f"{len(uses.exclusive)} held"
    return f"{_count(total, 'CPU')}: {len(uses.reserved)} reserved, {held}, {len(uses.shared)} shared"


def _socket(groups: Sequence[_Group], uses: Uses, width: int) -> list[Text]:
    """A box; a line in it for each NUMA node, more where it is too wide."""
    body: list[Text] = []
    inner = width - 4
    label_width = max(len(f"NUMA {group.numa}") for group in groups)
    for numa, rows in groupby(groups, key=lambda group: group.numa):
        label = Text(f"NUMA {numa}".ljust(label_width), style=_LABEL)
        blocks = [block for row in rows for block in _blocks(row, uses, inner - label_width - _GAP)]
        for number, line in enumerate(_wrapped(blocks, inner - label_width - _GAP, gap=1)):
            body.append(Text.assemble(label if not number else " " * label_width, " " * _GAP, line))
    return _boxed(f"socket {groups[0].socket}", body)


def _blocks(group: _Group, uses: Uses, width: int) -> list[Text]:
    """The cores of one L3 cache in brackets; one block for each line that they need."""
    words = [
        Text.assemble(*((mark.character, mark.style) for mark in map(uses.mark, word)))
        if isinstance(word, CpuSet)
        else Text(word, style=_LABEL)
        for word in group.words
    ]
    lines = _wrapped(words, width - 2, gap=1)
    if group.l3 < 0:  # the kernel reports none
        return lines
    first, last = 0, len(lines) - 1
    return [
        Text.assemble("[" if number == first else " ", line, "]" if number == last else "")
        for number, line in enumerate(lines)
    ]


def _boxed(title: str, body: Sequence[Text]) -> list[Text]:
    inner = max(len(title), *(line.cell_len for line in body))
    rows = [Text.assemble("│ ", line, " " * (inner - line.cell_len), " │") for line in body]
    top = Text(f"┌ {title} {'─' * (inner - len(title))}┐")
    return [top, *rows, Text(f"└{'─' * (inner + 2)}┘")]


def _side_by_side(boxes: Sequence[list[Text]], width: int) -> list[Text]:
    """As many boxes beside each other as the width allows, all of them below the former."""
    lines: list[Text] = []
    row: list[list[Text]] = []
    for box in boxes:
        if row and sum(drawn[0].cell_len + 1 for drawn in row) + box[0].cell_len > width:
            lines.extend(_row(row))
            row = []
        row.append(box)
    return lines + (_row(row) if row else [])


def _row(boxes: Sequence[list[Text]]) -> list[Text]:
    height = max(map(len, boxes))
    padded = [[*box, *[Text(" " * box[0].cell_len)] * (height - len(box))] for box in boxes]
    return [_joined(parts, gap=1) for parts in zip(*padded, strict=True)]


def _claims(uses: Uses) -> list[Text]:
    named = [
        Text.assemble((claim.mark.character, claim.mark.style), f" {claim.name} {claim.cpus}") for claim in uses.claims
    ]
    return named + ([Text(f"and {_count(uses.unnamed, 'claim')} more")] if uses.unnamed else [])


def _problems(status: JsonObject) -> list[list[Text]]:
    """The conditions that are False, in the agent's words."""
    return [
        [
            Text(word, style="red")
            for word in f"{condition['type']}: {condition.get('message') or condition.get('reason')}".split()
        ]
        for condition in status.get("conditions") or ()
        if condition.get("status") == "False"
    ]


def _wrapped(words: Sequence[Text], width: int, gap: int = _GAP) -> list[Text]:
    """The words in as few lines as the width allows; what is wider than a line is cut."""
    lines: list[list[Text]] = []
    room = 0
    for word in words:
        word.truncate(width, overflow="ellipsis")
        if not lines or word.cell_len + gap > room:
            lines.append([word])
            room = width - word.cell_len
        else:
            lines[-1].append(word)
            room -= gap + word.cell_len
    return [_joined(line, gap=gap) for line in lines]


def _joined(words: Sequence[Text], gap: int = _GAP) -> Text:
    return Text(" " * gap).join(words)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
