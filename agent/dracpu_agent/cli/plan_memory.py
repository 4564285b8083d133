"""The memory in the questions of `dracpu-agent plan`: which NUMA node has all that a claim requests.

A claim gets its CPUs and its memory from one NUMA node when it matches them by the attribute numaNode. The scheduler
chooses that node; here the NUMA nodes are tried in ascending order.
"""

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dracpu_agent.cli.options import InputError
from dracpu_agent.host.memory import read_memory
from dracpu_agent.memory.described import memory_described
from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.memory.room import SMALLEST, OfferSettings, room
from dracpu_agent.topology.topology import TopologyError
from dracpu_api.memory_kinds import PAGE_SIZES
from dracpu_api.quantity import format_binary, whole_number


@dataclass(frozen=True, slots=True)
class MemoryQuestion:
    """The amounts that one claim requests on one NUMA node."""

    amounts: Mapping[Kind, int]  # bytes
    inventory: Inventory
    numa: int | None  # the only NUMA node to try; None: each of them

    def candidates(self) -> tuple[int, ...]:
        """The NUMA nodes to try."""
        if self.numa is None:
            return tuple(self.inventory.by_numa)
        if self.numa not in self.inventory.by_numa:
            known = ", ".join(map(str, self.inventory.by_numa))
            raise InputError(f"--numa {self.numa}: this machine has memory on the NUMA nodes {known}")
        return (self.numa,)

    def lacking(self, numa: int) -> str:
        """Names the memory that this NUMA node lacks; "" if it has all."""
        there = room(self.inventory, OfferSettings(cpuless=True))
        lacks = [
            f"{format_binary(there.get(Place(numa, kind), 0))} of {kind} instead of {format_binary(amount)}"
            for kind, amount in self.amounts.items()
            if amount > there.get(Place(numa, kind), 0)
        ]
        return " and ".join(lacks)

    def answer(self, numa: int) -> dict[str, object]:
        """The part of an answer that is about memory."""
        return {"numaNode": numa, **{kind.name: format_binary(amount) for kind, amount in self.amounts.items()}}


def memory_question(parsed: Namespace) -> MemoryQuestion | None:
    """The question that the options describe; None if they request no memory. Raises InputError and TopologyError."""
    amounts: dict[Kind, int] = {}
    if parsed.memory is not None:
        amounts[MEMORY] = _amount("--memory", parsed.memory, least=SMALLEST)
    for text in parsed.hugepages or ():
        size, _, amount = text.partition("=")
        page = whole_number(size)
        if page not in PAGE_SIZES:
            raise InputError(f'--hugepages {text}: write a size and an amount, such as "2Mi=1Gi"')
        amounts[Kind(page)] = _pages(f"--hugepages {text}:", amount, page)
    if not amounts:
        if parsed.numa is not None or parsed.memory_of is not None:
            raise InputError("--numa and --memory-of need --memory or --hugepages")
        return None
    return MemoryQuestion(amounts, _inventory(parsed), parsed.numa)


def _inventory(parsed: Namespace) -> Inventory:
    if parsed.memory_of is not None:
        try:
            return memory_described(Path(parsed.memory_of).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, TopologyError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"--memory-of {parsed.memory_of}: {reason}") from error
    if parsed.topology is not None:
        raise InputError("--topology describes no memory: write that of the same machine with --memory-of")
    return read_memory(Path(parsed.sysfs_root), Path(parsed.procfs_root))


def _pages(option: str, text: str, page: int) -> int:
    """Whole pages: the scheduler rounds up, too."""
    return -(-_amount(option, text) // page) * page


def _amount(option: str, text: str, least: int = 1) -> int:
    amount = whole_number(text)
    if amount is None:
        raise InputError(f'{option} must be an amount such as "512Mi", got {text!r}')
    return max(amount, least)
