"""Attributes that devices of every mode share."""

from typing import Final

from dracpu_agent.devices.device import AttributeValue
from dracpu_agent.topology.topology import Topology
from dracpu_api import names
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import Settings

_VALUES: Final = 48  # API server: values of all attributes of a device together; each item of a list counts


def pcie_roots(topology: Topology, settings: Settings, cpus: CpuSet, others: int) -> dict[str, AttributeValue]:
    """The PCIe roots that any of the CPUs is close to; none unless the settings ask for them. The device has `others`
    further attribute values, which count against the API server's limit.

    The value is always a list, since a CPU has several roots; it matches a device of another driver at one of them.
    """
    if not settings.expose_pcie_roots:
        return {}
    roots = sorted(root for root, close in topology.pcie_roots.items() if not close.isdisjoint(cpus))
    return {names.ATTRIBUTE_PCIE_ROOT: tuple(roots[: _VALUES - others])} if roots else {}
