"""The names of devices: `cpudev007` is CPU 7, `cpudevnuma001` NUMA node 1, `cpudevmachine` the whole machine;
`memory-numa001` is the ordinary memory of NUMA node 1, `hugepages-2mi-numa001` are its hugepages of 2Mi.

A name alone shows which settings publish such a device, on any machine and whether or not its CPUs are online.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, assert_never

from dracpu_api.memory_kinds import KINDS
from dracpu_api.names import DRIVER, DRIVER_MEMORY
from dracpu_api.settings import GroupBy, Mode, OutstandingDevice, Publish, Settings


@dataclass(frozen=True, slots=True)
class DeviceName:
    """The meaning of a device's name."""

    group_by: GroupBy | None  # None: a single CPU, as individual mode publishes it
    number: int = 0  # of the CPU or of the group; the whole machine is group 0

    def __str__(self) -> str:
        number = "" if self.group_by is GroupBy.MACHINE else f"{self.number:03d}"
        return f"{_PREFIX}{_word(self.group_by)}{number}"


def cpu_device(cpu: int) -> str:
    """The device of a CPU. It is named by the CPU's id, so that a change of reserved CPUs renames no device."""
    return str(DeviceName(None, cpu))


def group_device(group_by: GroupBy, number: int) -> str:
    """The device of a group of CPUs."""
    return str(DeviceName(group_by, number))


@lru_cache(maxsize=2048)  # every status of a node reads the names of the devices of all its claims
def parse_device(name: str) -> DeviceName | None:
    """The inverse of `str`; None for a text that is not the name of any device."""
    match = _NAME.fullmatch(name)
    if match is None or match["word"] not in _WORDS:
        return None
    parsed = DeviceName(_WORDS[match["word"]], int(match["number"] or 0))
    return parsed if str(parsed) == name else None


def belongs_to(device: str, settings: Settings) -> bool:
    """True when nodes with these settings publish devices with names of this kind."""
    parsed = parse_device(device)
    return parsed is not None and parsed.group_by is (settings.group_by if settings.mode is Mode.GROUPED else None)


def memory_device(kind: str, numa_node: int) -> str:
    """The device of one kind of memory on a NUMA node."""
    return f"{_memory_word(kind)}-numa{numa_node:03d}"


@lru_cache(maxsize=2048)
def parse_memory_device(name: str) -> tuple[str, int] | None:
    """The kind of memory and the NUMA node; None for a text that is not the name of any device of memory."""
    match = _MEMORY_NAME.fullmatch(name)
    if match is None or match["word"] not in _MEMORY_WORDS:
        return None
    kind, numa_node = _MEMORY_WORDS[match["word"]], int(match["numa_node"])
    return (kind, numa_node) if memory_device(kind, numa_node) == name else None


def is_published(device: OutstandingDevice, settings: Settings) -> bool:
    """True when nodes with these settings publish all of a device that a claim was given, so that schedulers count the
    claim."""
    if device.driver == DRIVER_MEMORY:
        return settings.memory_representation is Publish.DEVICES
    if device.driver != DRIVER:  # of a newer version: nothing is known about it
        return True
    is_whole = not device.amounts or settings.memory_representation is Publish.WITH_CPUS
    return is_whole and belongs_to(device.name, settings)


def _word(group_by: GroupBy | None) -> str:
    match group_by:
        case None:
            return ""
        case GroupBy.NUMA_NODE:
            return "numa"
        case GroupBy.SOCKET:
            return "socket"
        case GroupBy.MACHINE:
            return "machine"
        case GroupBy.L3_CACHE:
            return "l3cache"
        case _:
            assert_never(group_by)


def _memory_word(kind: str) -> str:
    return kind.replace("_", "-").lower()


_MEMORY_WORDS: Final = {_memory_word(kind): kind for kind in KINDS}
_MEMORY_NAME: Final = re.compile("(?P<word>[a-z0-9-]+)-numa(?P<numa_node>[0-9]{3,9})")
_PREFIX: Final = "cpudev"
_WORDS: Final = {_word(group_by): group_by for group_by in (None, *GroupBy)}
_NAME: Final = re.compile(_PREFIX + "(?P<word>([a-z0-9]*[a-z])?)(?P<number>([0-9]{3,9})?)")
