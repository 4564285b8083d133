"""Errors of the allocator. Each message names the request, the CPUs that there are, and a remedy where there is one."""

from typing import Final

from dracpu_agent.errors import ClaimError
from dracpu_api.cpuset import CpuSet

_SHOWN: Final = 80  # characters of a cpuset in a message: that of a fragmented machine with 512 CPUs has two thousand


class AllocationError(ClaimError):
    """A request that gets no CPUs."""


class InvalidCountError(AllocationError):
    """The request is not for a positive whole number of CPUs."""


class NotEnoughCpusError(AllocationError):
    """The request is for more CPUs than are free."""


class NotEnoughCoresError(AllocationError):
    """The whole free cores are too few, or do not add up to the number."""


class CpusetRefusedError(AllocationError):
    """The claim names a cpuset that it cannot get."""


class CpusetSizeError(CpusetRefusedError):
    """The cpuset has more or fewer CPUs than the request asks for."""


class CpusetOfflineError(CpusetRefusedError):
    """The cpuset names CPUs that are offline or do not exist."""


class CpusetReservedError(CpusetRefusedError):
    """The cpuset names CPUs that this node reserves for the system."""


class CpusetOutsideDeviceError(CpusetRefusedError):
    """The cpuset names CPUs outside the device that the scheduler allocated."""


class CpusetInUseError(CpusetRefusedError):
    """The cpuset names CPUs that another claim or request holds."""


class CpusetCutsCoresError(CpusetRefusedError):
    """The cpuset contains only some threads of a core, while fullCores is set."""


def cpus_text(count: int) -> str:
    """A number of CPUs in words: "1 CPU", "4 CPUs"."""
    return "1 CPU" if count == 1 else f"{count} CPUs"


def cpuset_text(cpus: CpuSet) -> str:
    """The cpuset, shortened if it is long, because messages appear in pod events."""
    text = str(cpus) or "none"
    if len(text) <= _SHOWN:
        return text
    return f"{text[:_SHOWN].rpartition(',')[0]},... ({cpus_text(len(cpus))})"
