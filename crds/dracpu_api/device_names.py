"""The names of devices: `cpudev007` is CPU 7, `cpudevnuma001` NUMA node 1, `cpudevmachine` the whole machine.

A name alone shows which settings publish such a device, on any machine and whether or not its CPUs are online.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, assert_never

from dracpu_api.settings import GroupBy, Mode, Settings


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


_PREFIX: Final = "cpudev"
_WORDS: Final = {_word(group_by): group_by for group_by in (None, *GroupBy)}
_NAME: Final = re.compile(_PREFIX + "(?P<word>([a-z0-9]*[a-z])?)(?P<number>([0-9]{3,9})?)")
