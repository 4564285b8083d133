"""Why a request gets no CPUs. Each message says what was asked, what there is, and where it helps what to do."""

from typing import Final

from dracpu_agent.errors import ClaimError
from dracpu_api.cpuset import CpuSet

_SHOWN: Final = 80  # characters of a cpuset in a message: a fragmented 512-CPU machine has two thousand


class AllocationError(ClaimError):
    """A request that cannot be given CPUs."""


class InvalidCountError(AllocationError):
    """What is asked for is not a whole positive number of CPUs."""


class NotEnoughCpusError(AllocationError):
    """More CPUs are asked for than are free."""


class NotEnoughCoresError(AllocationError):
    """The free CPUs suffice, the whole free cores do not, or cannot add up to the number."""


class CpusetRefusedError(AllocationError):
    """The claim names its CPUs itself, and they cannot be given to it."""


class CpusetSizeError(CpusetRefusedError):
    """The cpuset has not as many CPUs as the request asks for."""


class CpusetOfflineError(CpusetRefusedError):
    """The cpuset names CPUs that the machine does not have or that are switched off."""


class CpusetReservedError(CpusetRefusedError):
    """The cpuset names CPUs that this node keeps for the system."""


class CpusetOutsideDeviceError(CpusetRefusedError):
    """The cpuset names CPUs of another device than the scheduler gave to the claim."""


class CpusetInUseError(CpusetRefusedError):
    """The cpuset names CPUs that are given to a claim already."""


class CpusetCutsCoresError(CpusetRefusedError):
    """The cpuset takes some threads of a core where only whole cores are given."""


def cpus_text(count: int) -> str:
    """A number of CPUs in words: "1 CPU", "4 CPUs"."""
    return "1 CPU" if count == 1 else f"{count} CPUs"


def cpuset_text(cpus: CpuSet) -> str:
    """The cpuset, shortened when it is long: messages end up in pod events."""
    text = str(cpus) or "none"
    if len(text) <= _SHOWN:
        return text
    return f"{text[:_SHOWN].rpartition(',')[0]},... ({cpus_text(len(cpus))})"
