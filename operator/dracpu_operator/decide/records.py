"""The records that decisions work on: nodes, configs and CpuNodes, reduced to the fields that matter.

5,000 nodes are held in memory: a Node object is some 12 KB of JSON, of which three fields matter here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from dracpu_api.conditions import Phase
from dracpu_api.objects.models import CpuDriverConfigSpec
from dracpu_api.settings import CpuNodeSpec, Settings


@dataclass(frozen=True, slots=True)
class Node:
    """A Node object. One that was deleted and created again has another UID."""

    name: str
    uid: str
    version: int = field(compare=False)  # resourceVersion: the greater one of the same object is newer
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The contents of a valid config."""

    spec: CpuDriverConfigSpec
    settings: Settings
    revision: str


@dataclass(frozen=True, slots=True)
class Config:
    """A CpuDriverConfig."""

    name: str
    uid: str
    version: int = field(compare=False)
    generation: int
    created: str  # RFC 3339 in UTC, which sorts as text
    wanted: Wanted | None  # None: the spec is not valid
    problems: tuple[str, ...] = ()  # why it is not
    status: Mapping[str, Any] = field(default_factory=dict, compare=False)  # only the operator itself writes it


@dataclass(frozen=True, slots=True)
class CpuCounts:
    """A node's CPUs by use."""

    total: int = 0
    reserved: int = 0
    exclusive: int = 0
    available: int = 0


class MemoryBytes(NamedTuple):
    """A node's memory of one kind by use, in bytes. A tuple: 15,000 nodes may have several of them."""

    kind: str
    total: int
    reserved: int
    promised: int
    available: int


def sums_by_kind(memory: Iterable[MemoryBytes]) -> tuple[MemoryBytes, ...]:
    """One record of each kind. Adds column by column, as there may be 50,000 records."""
    by_kind: dict[str, list[MemoryBytes]] = {}
    for found in memory:
        by_kind.setdefault(found.kind, []).append(found)
    columns = {kind: islice(zip(*found, strict=True), 1, None) for kind, found in by_kind.items()}
    return tuple(MemoryBytes(kind, *map(sum, amounts)) for kind, amounts in columns.items())


@dataclass(frozen=True, slots=True)
class Trouble:
    """A reason why claims cannot get CPUs, or memory, of a node."""

    since: str  # RFC 3339 in UTC
    message: str


@dataclass(frozen=True, slots=True)
class Agent:
    """What the pod of a node's agent shows."""

    name: str  # of the node
    uid: str  # of the pod
    version: int = field(compare=False)
    ready: bool
    running: bool  # a process of the agent runs, ready or not
    reason: str  # one CamelCase word why it is not ready
    message: str  # the kubelet's or the scheduler's words about it
    since: str  # RFC 3339 in UTC: since when the agent has been ready, or not ready


@dataclass(frozen=True, slots=True)
class AgentPod:
    """A pod of the agents. A node has several while one replaces another."""

    name: str
    uid: str
    version: int = field(compare=False)
    node: str  # where it runs or is to run; "": that is not known
    created: str  # RFC 3339 in UTC
    ending: bool  # it is being deleted, or has ended for good
    agent: Agent


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """The DaemonSet of the agents."""

    name: str
    uid: str
    version: int = field(compare=False)
    desired: int | None  # nodes that are to have an agent; None: its controller has not counted them yet


@dataclass(frozen=True, slots=True)
class CpuNode:
    """A CpuNode: the settings that the operator gave to a node, and what its agent reports."""

    name: str
    uid: str
    version: int = field(compare=False)
    generation: int
    owner: str | None  # UID of the Node that owns it; None: the operator did not create this CpuNode
    spec: CpuNodeSpec | None  # None: it cannot be decoded
    unreadable: str = ""  # why it cannot be decoded
    config_name: str = ""  # the config that the spec names, also when the rest of the spec cannot be decoded
    phase: Phase | None = None  # None: no agent has reported yet
    applied: str | None = None  # appliedRevision
    cpus: CpuCounts = CpuCounts()
    memory: tuple[MemoryBytes, ...] = ()  # one of each kind; none while the node does not offer memory
    failure: str = ""  # why settings were refused
    troubles: tuple[Trouble, ...] = ()  # why claims cannot get CPUs; they may pass by themselves
    memory_troubles: tuple[Trouble, ...] = ()  # why claims of memory alone are not served; likewise
    ignored: tuple[str, ...] = ()  # settings that the agent does not know, because it is older than the operator
    given_at: str = ""  # when the operator gave these settings, RFC 3339 in UTC
    devices_changed_at: str = ""  # when it last gave settings that may replace the node's devices
    was_ready: bool | None = None  # whether the agent was ready at that time; None: that is not recorded
    remove_after: str = ""  # the time after which the CpuNode is deleted, unless a config selects the node again
    reported_agent: Mapping[str, Any] = field(default_factory=dict)  # status.agent, which the operator writes

    @property
    def given(self) -> str | None:
        """The revision that the operator gave to the node."""
        return None if self.spec is None else self.spec.revision

    @property
    def arrived(self) -> bool:
        """True when the node has applied the settings that it was given."""
        return self.applied is not None and self.applied == self.given

    @property
    def starting(self) -> bool:
        """True until the node has applied its first settings: it offers nothing yet, so a change disturbs nothing."""
        return self.applied is None and self.generation <= 1

    @property
    def unavailable(self) -> bool:
        """True while a change is under way, or has failed. A draining node has published its devices: it is
        available."""
        if self.phase is None or self.starting:
            return False
        if self.unreadable:  # it is not known whether the node has applied what it was given
            return self.phase in {Phase.SETTLING, Phase.FAILED}
        return self.phase in {Phase.SETTLING, Phase.FAILED} or not self.arrived
