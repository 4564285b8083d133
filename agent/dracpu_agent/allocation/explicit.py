"""Requests that name their CPUs: nothing is chosen, everything is checked, and each failure says what is wrong."""

from dracpu_agent.allocation.errors import (
    CpusetCutsCoresError,
    CpusetInUseError,
    CpusetOfflineError,
    CpusetOutsideDeviceError,
    CpusetReservedError,
    CpusetSizeError,
    cpus_text,
    cpuset_text,
)
from dracpu_agent.allocation.machine import Machine
from dracpu_api.cpuset import CpuSet


def check_explicit(
    machine: Machine,
    group: CpuSet,
    available: CpuSet,
    cpus: CpuSet,
    count: int,
    *,
    reserved: CpuSet,
    full_cores: bool,
) -> None:
    """Refuses a cpuset that the claim cannot get, with the most helpful reason.

    The order matters: a CPU that is reserved or offline is neither in the device nor available, and the message
    should name the cause.
    """
    if len(cpus) != count:
        raise CpusetSizeError(
            f"the claim names the cpuset {cpuset_text(cpus)} ({cpus_text(len(cpus))}) but asks for {cpus_text(count)}: "
            "make the two agree"
        )
    online = CpuSet.of_mask(machine.cpus)
    if missing := cpus - online:
        raise CpusetOfflineError(
            _refused(cpus, missing, f"offline or not on this node, which has {cpuset_text(online)}")
        )
    if kept := cpus & reserved:
        raise CpusetReservedError(_refused(cpus, kept, "reserved for the system"))
    if outside := cpus - group:
        raise CpusetOutsideDeviceError(_refused(cpus, outside, f"outside the allocated device, {cpuset_text(group)}"))
    if taken := cpus - available:
        raise CpusetInUseError(_refused(cpus, taken, "in use by another claim or by another request of this one"))
    if full_cores and (cut := machine.cpus_of(machine.cores_of(cpus.mask)) & ~cpus.mask):
        raise CpusetCutsCoresError(
            f"fullCores is set, but the cpuset {cpuset_text(cpus)} leaves out {cpuset_text(CpuSet.of_mask(cut))} "
            "of its cores: add these CPUs, or set fullCores to false"
        )


def _refused(cpus: CpuSet, wrong: CpuSet, reason: str) -> str:
    which = "" if wrong == cpus else f"{cpuset_text(wrong)} of "
    return f"the claim names its CPUs, and {which}the cpuset {cpuset_text(cpus)} is {reason}"
