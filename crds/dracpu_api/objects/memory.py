"""What the statuses of both objects report about memory. All amounts are exact numbers of bytes, as quantities."""

from typing import Annotated

from pydantic import Field

from dracpu_api.objects.parts import Int, Object


class FleetMemory(Object):
    """One kind of memory: sums over the nodes that follow this config, as quantities."""

    kind: str
    """memory, or hugepages of one size, such as hugepages_2Mi."""
    total: str
    """What the NUMA nodes have."""
    reserved: str
    """What is never offered."""
    promised: str
    """What claims hold."""
    available: str
    """What claims can still get."""


class Provisioned(Object):
    """The hugepages that memory.provision names on a NUMA node."""

    wanted: Int
    """How many pages the NUMA node is to have."""
    got: Int
    """How many of them there are."""


class NodeMemory(Object):
    """One kind of memory on one NUMA node, in bytes as quantities."""

    numa_node: Int
    """The number of the NUMA node."""
    kind: str
    """memory, or hugepages of one size, such as hugepages_2Mi."""
    total: str
    """What the NUMA node has."""
    reserved: str
    """What is never offered."""
    promised: str
    """What claims hold."""
    used: str | None = None
    """What the containers of these claims use; absent when it is not known."""
    provisioned: Provisioned | None = None
    """How many pages memory.provision names, and how many of them there are; absent where it names none."""


FleetMemories = Annotated[
    tuple[FleetMemory, ...],
    Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["kind"]}),
]
NodeMemories = Annotated[
    tuple[NodeMemory, ...],
    Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["numaNode", "kind"]}),
]
