"""The two objects, CpuDriverConfig and CpuNode.

A docstring below a field is what `kubectl explain` prints. The agent reads specs with dracpu_api/settings.py instead; a
test holds the two descriptions together.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StrictBool, WithJsonSchema

from dracpu_api.conditions import Phase
from dracpu_api.names import DRIVER
from dracpu_api.objects import rules
from dracpu_api.objects.memory import FleetMemories, NodeMemories
from dracpu_api.objects.parts import (
    ApiVersion,
    Budget,
    Conditions,
    Count,
    Int,
    LabelKey,
    LabelValue,
    Metadata,
    Object,
    Settings,
)
from dracpu_api.settings import SETTLE_SECONDS

SettleSeconds = Annotated[Int, Field(ge=0, le=3600)]


class SelectorRequirement(Object):
    """A condition on one label of a node."""

    key: LabelKey
    """The label's key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """In and NotIn compare the label with values; Exists and DoesNotExist check only whether it is there."""
    values: Annotated[
        tuple[LabelValue, ...], Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """The values of In and NotIn; must be empty with Exists and DoesNotExist."""


class NodeSelector(Object):
    """Selects nodes by their labels: all of the given requirements must hold. Empty selects every Linux node."""

    match_labels: Annotated[dict[str, LabelValue], Field(max_length=64), rules.LABEL_KEYS] = Field(default_factory=dict)
    """Labels that a node must have, with exactly these values."""
    match_expressions: Annotated[
        tuple[Annotated[SelectorRequirement, rules.OPERATOR_NEEDS_VALUES, rules.OPERATOR_TAKES_NO_VALUES], ...],
        Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """Conditions on a node's labels, all of which must hold."""


class Rollout(Object):
    """How fast a change reaches the nodes."""

    max_unavailable: Budget = "25%"
    """How many of the selected nodes may be changing or failed at the same time: a number, or a percentage, rounded
    up. A node's first settings do not count."""
    paused: StrictBool = False
    """true stops the rollout: nodes keep the settings that they have."""
    settle_seconds: SettleSeconds = SETTLE_SECONDS
    """How long the old devices stay published, closed to new claims, before a change of mode, groupBy, memory.enabled
    or memory.publish replaces them."""
    removal_seconds: Annotated[Int, Field(ge=0, le=86_400)] | None = None
    """How long a node that no config selects any more keeps its devices: a label may come back, or a mistake may be
    corrected. 60 when absent."""


class CpuDriverConfigSpec(Settings):
    """The settings of the nodes that this config selects. Every field has a default: an empty spec is valid."""

    node_selector: Annotated[NodeSelector, Field(json_schema_extra={"x-kubernetes-map-type": "atomic"})] = (
        NodeSelector()
    )
    """Selects the nodes of this config; empty selects every Linux node."""
    priority: Annotated[Int, Field(ge=-1_000_000_000, le=1_000_000_000, json_schema_extra={"format": "int32"})] = 0
    """Which config a node follows when several select it: the highest priority, then the oldest, then the first by
    name."""
    rollout: Rollout = Rollout()
    """How fast a change of this config reaches the nodes."""


class FleetNodes(Object):
    """How many nodes are in which state."""

    selected: Count = 0
    """Nodes that follow this config."""
    applied: Count = 0
    """Nodes that have applied its present settings."""
    progressing: Count = 0
    """Nodes that neither have applied them nor failed."""
    failed: Count = 0
    """Nodes that could not apply them and keep their last good settings; their CpuNodes say why."""
    without_agent: Count = 0
    """Nodes that the nodeSelector matches and that are to have no agent, because the DaemonSet's nodeSelector, affinity
    or tolerations exclude them. They are not counted as selected."""


class FleetCpus(Object):
    """Sums over the nodes that follow this config."""

    total: Count = 0
    """CPUs that are online."""
    reserved: Count = 0
    """CPUs that are never offered."""
    exclusive: Count = 0
    """CPUs that claims hold."""
    available: Count = 0
    """CPUs that claims can still get."""


class CpuDriverConfigStatus(Object):
    """How far the nodes have applied this config; written by the operator."""

    observed_generation: Count | None = None
    """The generation of the config that this status is about."""
    nodes: FleetNodes | None = None
    """How many nodes follow this config and how far they are."""
    cpus: FleetCpus | None = None
    """The CPUs of these nodes."""
    memory: FleetMemories | None = None
    """The memory and hugepages of these nodes, by kind; absent while no node offers any."""
    conditions: Conditions = ()
    """Accepted, Progressing, Available, Degraded and Conflicted; each message says what to do."""


class CpuDriverConfig(Object):
    """Determines how the nodes that it selects offer their CPUs to claims."""

    api_version: ApiVersion = "dra.cpu/v1alpha1"
    kind: Annotated[Literal["CpuDriverConfig"], WithJsonSchema({"type": "string"})] = "CpuDriverConfig"
    metadata: Metadata = Field(default_factory=dict)
    spec: CpuDriverConfigSpec = CpuDriverConfigSpec()
    """The settings of the nodes that this config selects. Every field has a default: an empty spec is valid."""
    status: CpuDriverConfigStatus | None = None
    """How far the nodes have applied this config; written by the operator."""


class ConfigReference(Object):
    """The config that a node follows."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """The name of the CpuDriverConfig."""
    generation: Int
    """The generation of the config from which the settings were taken."""


class OutstandingDevice(Object):
    """A device, or a share of one, that a claim was given."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The device's name."""
    cpus: Count = 0
    """How many of its CPUs: 1 for a device of individual mode, 0 for a device of memory."""
    driver: Annotated[str, Field(min_length=1, max_length=63)] = DRIVER
    """The driver of the device; dra.cpu when absent."""
    # no quantities: rules for so many of them exceed what the API server lets all rules of a CRD cost
    amounts: Annotated[dict[str, Annotated[Int, Field(ge=1)]], Field(max_length=32)] = Field(default_factory=dict)
    """How much memory the claim was given with the device: bytes, by kind (memory, or hugepages of a size, such as
    hugepages_2Mi)."""


class OutstandingClaim(Object):
    """A claim that the scheduler allocated on this node before the node's devices changed."""

    uid: Annotated[str, Field(min_length=1, max_length=63)]
    """The claim's UID."""
    namespace: Annotated[str, Field(min_length=1, max_length=63)]
    """The claim's namespace."""
    name: Annotated[str, Field(min_length=1, max_length=253)]
    """The claim's name."""
    devices: Annotated[
        tuple[OutstandingDevice, ...], Field(max_length=32, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ]
    """The devices of this node that it was given."""


class CpuNodeSpec(Object):
    """The settings of this node; written by the operator."""

    config: ConfigReference
    """The CpuDriverConfig that this node follows."""
    settings: Settings
    """The settings of that config, without those that are for the operator alone."""
    revision: Annotated[str, Field(min_length=1, max_length=63)]
    """A hash of the settings; the node reports it as status.appliedRevision once it has applied them."""
    outstanding: Annotated[
        tuple[OutstandingClaim, ...],
        Field(
            max_length=8192, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"]}
        ),
    ] = ()
    """Claims allocated on this node, listed while its devices change, so that nothing of theirs is offered twice."""
    settle_seconds: SettleSeconds = SETTLE_SECONDS
    """How long the former devices stay published, closed to new claims, before others replace them."""


class NodeRuntime(Object):
    """The container runtime, as it reported itself."""

    name: str
    """Its name, such as containerd or cri-o."""
    version: str
    """Its version."""
    nri: str = ""
    """Its NRI version; empty when the runtime does not report it."""


class TopologyCounts(Object):
    """How many of each are online."""

    sockets: Count
    """Sockets."""
    numa_nodes: Count
    """NUMA nodes that have CPUs."""
    l3_groups: Count
    """Groups of CPUs that share an L3 cache."""
    cores: Count
    """Physical cores."""
    cpus: Count
    """Logical CPUs."""


class LayoutGroup(Object):
    """Cores that share a socket, a NUMA node and an L3 cache."""

    socket: Int
    """The id of the socket."""
    numa: Int
    """The id of the NUMA node."""
    l3: Int
    """The id of the L3 cache; -1 when the kernel reports none."""
    cores: str
    """Each core as the cpuset of its threads, such as "0,64 1,65". On a machine with several types of cores, the name
    of a type precedes its cores."""


class NodeTopology(Object):
    """The topology of the machine."""

    arch: str
    """The architecture, as uname reports it."""
    smt: StrictBool
    """true when a core has more than one online thread."""
    counts: TopologyCounts
    """How many sockets, NUMA nodes, L3 groups, cores and CPUs there are."""
    layout: Annotated[tuple[LayoutGroup, ...], Field(json_schema_extra={"x-kubernetes-list-type": "atomic"})] = ()
    """The cores by socket, NUMA node and L3 cache."""


class NodeCpuCounts(Object):
    """Sizes of the cpusets."""

    reserved: Count
    """CPUs that are never offered."""
    exclusive: Count
    """CPUs that claims hold."""
    shared: Count
    """CPUs that all other containers run on."""


class NodeCpus(Object):
    """The node's CPUs by use, in the kernel's list format."""

    reserved: str
    """CPUs that are never offered."""
    exclusive: str
    """CPUs that claims hold."""
    shared: str
    """CPUs that all other containers run on."""
    counts: NodeCpuCounts
    """Sizes of these sets."""


class HeldClaim(Object):
    """A claim that holds CPUs or memory of this node."""

    namespace: str
    """The claim's namespace."""
    name: str
    """The claim's name."""
    uid: str
    """The claim's UID."""
    cpus: str
    """Its CPUs, in the kernel's list format; empty for a claim without CPUs."""
    memory: str | None = None
    """Its memory, such as "1Gi of memory on NUMA node 0"; absent for a claim without memory."""


class NodeAgent(Object):
    """The pod of the node's agent."""

    ready: StrictBool
    """Whether it is ready."""
    reason: Annotated[str, Field(max_length=256)] = ""
    """Why it is not ready, as one CamelCase word."""
    message: Annotated[str, Field(max_length=4096)] = ""
    """The message of the kubelet or the scheduler."""
    since: datetime | None = None
    """Since when it has been ready, or not ready."""


class CpuNodeStatus(Object):
    """The state of this node; written by its agent, except for the field agent."""

    applied_revision: str | None = None
    """The revision of the settings that the node has applied."""
    # any text: the agents of a newer version may have other phases while this CRD is there
    phase: Annotated[Phase, WithJsonSchema({"type": "string"})] | None = None
    """Pending: no settings are applied yet. Settling: the former devices are closed to new claims and about to be
    replaced. Draining: the new devices are published, and claims of the former ones still hold CPUs. Ready: all is
    applied. Failed: the settings could not be applied, and the last good ones are in force."""
    ignored_settings: (
        Annotated[tuple[str, ...], Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "atomic"})] | None
    ) = None
    """Settings that the agent does not know, because it is older than they are. It has applied the others."""
    agent: NodeAgent | None = None
    """The pod of the node's agent, as the operator sees it."""
    agent_version: str | None = None
    """The agent's version."""
    runtime: NodeRuntime | None = None
    """The container runtime that the agent is connected to."""
    topology: NodeTopology | None = None
    """The topology of the machine, as the agent discovered it."""
    cpus: NodeCpus | None = None
    """The node's CPUs by use."""
    memory: NodeMemories | None = None
    """The node's memory and hugepages by use; absent while the node does not offer them."""
    claims: Annotated[
        tuple[HeldClaim, ...], Field(max_length=256, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """Claims that hold CPUs or memory of this node, at most 256 of them."""
    claims_total: Count | None = None
    """How many claims hold CPUs or memory of this node."""
    conditions: Conditions = ()
    """ConfigApplied, KubeletRegistered, RuntimeConnected, SlicesPublished, StateHealthy and, where memory is enabled,
    MemoryReady; PagesSharedWithKubelet and NotCounted only while they are true. Each message says what to do."""


class CpuNode(Object):
    """The settings of one node, and its state. A CpuNode has the name of its Node."""

    api_version: ApiVersion = "dra.cpu/v1alpha1"
    kind: Annotated[Literal["CpuNode"], WithJsonSchema({"type": "string"})] = "CpuNode"
    metadata: Metadata = Field(default_factory=dict)
    spec: CpuNodeSpec
    """The settings of this node; written by the operator."""
    status: CpuNodeStatus | None = None
    """The state of this node; written by its agent, except for the field agent."""
