"""What the operator knows of the cluster: nodes, configs and CpuNodes, reduced to what decisions need.

5,000 nodes are held in memory: a Node object is some 12 KB of JSON, of which three fields matter here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dracpu_api.objects.models import CpuDriverConfigSpec
from dracpu_api.settings import CpuNodeSpec, Settings


class Phase(StrEnum):
    """How a node stands, in the word of its agent."""

    SILENT = ""  # no agent has reported yet
    PENDING = "Pending"
    SETTLING = "Settling"
    DRAINING = "Draining"
    READY = "Ready"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Node:
    """A Node object; one that was deleted and made again has another UID."""

    name: str
    uid: str
    version: int = field(compare=False)  # resourceVersion: of two views of one object, the greater is the newer
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a valid config says."""

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
    wanted: Wanted | None  # None: it cannot be understood
    problems: tuple[str, ...] = ()  # why not
    status: Mapping[str, Any] = field(default_factory=dict, compare=False)  # our own words, no news


@dataclass(frozen=True, slots=True)
class CpuCounts:
    """A node's CPUs by use."""

    total: int = 0
    reserved: int = 0
    exclusive: int = 0
    available: int = 0


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why claims cannot get CPUs of a node, in the words of its agent, or because it has none."""

    since: str  # RFC 3339 in UTC
    words: str


@dataclass(frozen=True, slots=True)
class CpuNode:
    """A CpuNode: what the node was told, and what its agent says."""

    name: str
    uid: str
    version: int = field(compare=False)
    generation: int
    owner: str | None  # UID of the Node that owns it; None: written by somebody else than the operator
    spec: CpuNodeSpec | None  # None: it cannot be understood, and is written anew
    phase: Phase = Phase.SILENT
    applied: str | None = None  # appliedRevision
    cpus: CpuCounts = CpuCounts()
    failure: str = ""  # why settings were refused
    troubles: tuple[Trouble, ...] = ()  # what may pass by itself

    @property
    def given(self) -> str | None:
        """The revision that the node was told to apply."""
        return None if self.spec is None else self.spec.revision

    @property
    def arrived(self) -> bool:
        """True when what the node was told is in force."""
        return self.applied is not None and self.applied == self.given

    @property
    def starting(self) -> bool:
        """True until the node's first settings are in force: nothing was offered before, so nothing is disturbed."""
        return self.applied is None and self.generation <= 1

    @property
    def unavailable(self) -> bool:
        """True while a change is under way, or has failed. A draining node has published: it is available."""
        if self.phase is Phase.SILENT or self.starting:
            return False
        return self.phase in {Phase.SETTLING, Phase.FAILED} or not self.arrived
