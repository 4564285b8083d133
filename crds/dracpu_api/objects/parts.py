"""Parts of both objects' models: names and checks of fields, scalar types, conditions and a node's settings."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, StrictBool, WithJsonSchema

from dracpu_api.objects import rules
from dracpu_api.settings import GroupBy, Mode, Publish, Strategy

_SPELLINGS = {"cpus": "CPUs", "pcie": "PCIe"}  # how Kubernetes writes abbreviations inside a name


def _kubernetes_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(_SPELLINGS.get(word, word.capitalize()) for word in others)


class Object(BaseModel):
    """Base of all models. Names are in snake_case in Python and as Kubernetes writes them in JSON. Refuses unknown
    fields, so that a typo is reported and not ignored."""

    model_config = ConfigDict(
        alias_generator=_kubernetes_name,
        validate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )


# strict, as the API server: it accepts neither "1" as a number nor "yes" as a boolean
Int = Annotated[int, Strict()]
Count = Annotated[int, Strict(), Field(ge=0)]
NumaNode = Annotated[int, Strict(), Field(ge=0, le=1023)]

CpuSetText = Annotated[
    str,
    Field(max_length=1024, json_schema_extra={"pattern": rules.CPUSET_PATTERN}),  # CEL's cost limit: not 4096
    rules.CPUSET_POSSIBLE,
    rules.CPUSET_NOTATION,
    rules.CPUSET_ASCENDING,
]
Amount = Annotated[str, Field(max_length=32, json_schema_extra={"pattern": rules.AMOUNT_PATTERN}), rules.AMOUNT]
PageSize = Annotated[str, Field(max_length=32, json_schema_extra={"pattern": rules.PAGE_SIZE_PATTERN}), rules.PAGE_SIZE]
LabelKey = Annotated[
    str, Field(max_length=317, json_schema_extra={"pattern": rules.LABEL_KEY_PATTERN}), rules.LABEL_KEY
]
LabelValue = Annotated[
    str, Field(max_length=63, json_schema_extra={"pattern": rules.LABEL_VALUE_PATTERN}), rules.LABEL_VALUE
]
Budget = Annotated[Int | str, WithJsonSchema({"x-kubernetes-int-or-string": True}), rules.BUDGET]
Metadata = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]
ApiVersion = Annotated[Literal["dra.cpu/v1alpha1"], WithJsonSchema({"type": "string"})]


class Condition(Object):
    """One aspect of the object: whether it is as it should be, and why."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """The aspect that this condition is about."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""
    observed_generation: Count | None = None
    """The generation of the object that this condition is about."""
    last_transition_time: datetime
    """When the status of this condition changed last."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """The cause as one CamelCase word, for programs."""
    message: Annotated[str, Field(max_length=32768)]
    """The cause as a sentence, and what to do about it."""


Conditions = Annotated[
    tuple[Condition, ...],
    Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]


class Allocation(Object):
    """Which CPUs a claim gets inside the device that the scheduler gave it."""

    strategy: Strategy = Strategy.PACKED
    """packed keeps a claim's CPUs close together: whole sockets, NUMA nodes, L3 groups and cores first. distributed
    spreads them evenly over L3 groups (groupBy numanode or l3cache) or NUMA nodes (groupBy socket or machine)."""
    full_cores: StrictBool = False
    """true gives only whole physical cores, so that no two claims share the threads of one; amounts are rounded up to
    whole cores."""
    prefer_uncore_cache: StrictBool = True
    """true keeps a claim inside one L3 cache group where that is possible."""


class ReservedMemory(Object):
    """What is never offered on one NUMA node, in bytes as quantities. Where ordinary memory is left out, it has its
    default; where a size of hugepages is left out, nothing of it is reserved."""

    numa_node: NumaNode
    """The number of the NUMA node."""
    memory: Amount | None = None
    """An amount of ordinary memory, such as 1Gi."""
    hugepages_64ki: Annotated[Amount, rules.whole_pages("64Ki")] | None = Field(None, alias="hugepages_64Ki")
    """An amount of hugepages of 64Ki, a multiple of 64Ki, such as 8Mi."""
    hugepages_1mi: Annotated[Amount, rules.whole_pages("1Mi")] | None = Field(None, alias="hugepages_1Mi")
    """An amount of hugepages of 1Mi, a multiple of 1Mi, such as 64Mi."""
    hugepages_2mi: Annotated[Amount, rules.whole_pages("2Mi")] | None = Field(None, alias="hugepages_2Mi")
    """An amount of hugepages of 2Mi, a multiple of 2Mi, such as 64Mi."""
    hugepages_16mi: Annotated[Amount, rules.whole_pages("16Mi")] | None = Field(None, alias="hugepages_16Mi")
    """An amount of hugepages of 16Mi, a multiple of 16Mi, such as 64Mi."""
    hugepages_32mi: Annotated[Amount, rules.whole_pages("32Mi")] | None = Field(None, alias="hugepages_32Mi")
    """An amount of hugepages of 32Mi, a multiple of 32Mi, such as 64Mi."""
    hugepages_512mi: Annotated[Amount, rules.whole_pages("512Mi")] | None = Field(None, alias="hugepages_512Mi")
    """An amount of hugepages of 512Mi, a multiple of 512Mi, such as 1Gi."""
    hugepages_1gi: Annotated[Amount, rules.whole_pages("1Gi")] | None = Field(None, alias="hugepages_1Gi")
    """An amount of hugepages of 1Gi, a multiple of 1Gi, such as 2Gi."""
    hugepages_2gi: Annotated[Amount, rules.whole_pages("2Gi")] | None = Field(None, alias="hugepages_2Gi")
    """An amount of hugepages of 2Gi, a multiple of 2Gi, such as 4Gi."""
    hugepages_16gi: Annotated[Amount, rules.whole_pages("16Gi")] | None = Field(None, alias="hugepages_16Gi")
    """An amount of hugepages of 16Gi, a multiple of 16Gi, such as 32Gi."""


class ProvisionedPages(Object):
    """How many hugepages of one size a NUMA node is to have."""

    numa_node: NumaNode
    """The number of the NUMA node."""
    size: Annotated[PageSize, rules.MADE_AT_RUN_TIME]
    """The size of the pages, such as 2Mi. Pages of 1Gi and larger cannot be made while a machine runs: they belong on
    the kernel's command line."""
    pages: Annotated[Int, Field(ge=1, le=2_147_483_647)]
    """How many pages of this size the NUMA node is to have, those included that it has already."""


class MemorySettings(Object):
    """Whether and how a node offers its memory and hugepages to claims, as the driver dra.memory."""

    enabled: StrictBool = False
    """true offers memory and hugepages. The agents need the chart's value agent.memory.enabled, too."""
    publish: Publish = Publish.DEVICES
    """Devices offers memory by devices of its own, of the driver dra.memory; this is the default. WithCPUs offers it by
    the devices of CPUs, as capacities beside dra.cpu/cpu, so that one request takes CPUs and memory of one NUMA node;
    it means Devices unless mode is grouped and groupBy is numanode."""
    hugepages: (
        Annotated[
            tuple[PageSize, ...],
            Field(max_length=21, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
            rules.PAGE_SIZES_DIFFER,
        ]
        | None
    ) = None
    """The sizes of hugepages to offer, such as 2Mi and 1Gi. Absent: every size of which a node has pages. An empty list
    offers none."""
    reserved: Annotated[
        tuple[Annotated[ReservedMemory, rules.RESERVES_SOMETHING], ...],
        Field(max_length=128, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
        rules.NUMA_NODES_DIFFER,
    ] = ()
    """What is never offered, for the system and for pods without claims, by NUMA node. The default is, of ordinary
    memory, what the kubelet reserves (the node's capacity without its allocatable memory and without its hugepages),
    spread over the NUMA nodes by their size, and at least 5 % of each NUMA node; of hugepages, it is nothing."""
    provision: Annotated[
        tuple[ProvisionedPages, ...],
        Field(max_length=128, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
        rules.PROVISIONED_ONCE,
    ] = ()
    """Hugepages that the agents make while the machine runs, up to what is free beyond what the kubelet keeps free and
    claims were promised. Pages that were there before are never taken away. The kubelet notices new pages only when it
    restarts."""
    cpuless_nodes: StrictBool = False
    """true offers also NUMA nodes without CPUs, which may be HBM, CXL memory, or the memory of a GPU."""


class Settings(Object):
    """How a node offers and allocates its CPUs."""

    mode: Mode = Mode.GROUPED
    """grouped offers one device for each group of CPUs, from which claims take an amount. individual offers each CPU
    as a device of its own, which claims select by its attributes (at most 32 in one claim)."""
    group_by: GroupBy = GroupBy.NUMA_NODE
    """What one device stands for in grouped mode: a NUMA node, a socket, the machine, or the CPUs that share an L3
    cache. It has no effect in individual mode."""
    reserved_cpus: CpuSetText = ""
    """CPUs that are never offered, for the system and for pods without claims, in the kernel's list format: "0-1" or
    "0-3,64-67". Empty: each node withholds its lowest core."""
    allocation: Allocation = Allocation()
    """Which CPUs a claim gets inside the device that the scheduler gave it."""
    expose_pcie_roots: StrictBool = False
    """true publishes the PCIe roots that are local to a device's CPUs, so that a claim can match CPUs with a GPU or a
    network card. Needs the feature gate DRAListTypeAttributes."""
    node_allocatable: StrictBool = False
    """true lets the scheduler subtract claimed CPUs from the node's allocatable CPU. Needs the feature gate
    DRANodeAllocatableResources."""
    memory: MemorySettings = MemorySettings()
    """Whether and how a node offers its memory and hugepages to claims, as the driver dra.memory. It is off by
    default."""
