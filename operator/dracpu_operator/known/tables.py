"""Tables of records, fed by lists, watches and the answers to own writes, which arrive in any order.

Of two versions of an object the newer one is kept. An object that is gone stays gone when an older version of it
arrives late, such as the answer to a write that was carried out just before the deletion. An unknown object in a
version that lists and the watch have shown already was deleted since then.

A version of a custom resource may have two contents. When its CRD is replaced, a watch that is open shows objects by
the old schema until the API server ends it: without the fields that are new. Answers to other requests show them.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from dracpu_api.resources import Json, resource_version
from dracpu_operator.decide.records import Agent, AgentPod, Node

_REMEMBERED: Final = 20_000  # objects that are gone: those of one large change, which takes seconds
_NEVER: Final = float("inf")


class Record(Protocol):
    """The fields that all kinds of records have."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def version(self) -> int: ...


_R = TypeVar("_R", bound=Record)


class Table(Generic[_R]):
    """The objects of one kind by name. `changed` is called when a record changes in a field that decisions look at;
    `outdated` is set when the API server shows an older state than before. `is_custom`: the kind has a CRD."""

    def __init__(
        self,
        read: Callable[[Json], _R],
        changed: Callable[[], None],
        outdated: asyncio.Event,
        *,
        is_custom: bool = False,
    ) -> None:
        self.records: dict[str, _R] = {}
        self.complete = False  # a list has shown all objects, and a watch may be behind but misses none
        self._read = read
        self._changed = changed
        self._outdated = outdated
        self._is_custom = is_custom
        self._shown = 0  # lists and the watch have shown everything up to this version
        self._gone: dict[str, float] = {}  # by UID: the version of the deletion

    @property
    def shown(self) -> int:
        """The version up to which everything is known."""
        return self._shown

    def store(self, raw: Json, *, watched: bool = False) -> None:
        """Records an object that exists; `watched`: a watch has shown it. It is decoded only when it is newer than what
        is known, or when it may show more of the same version."""
        metadata = raw["metadata"]
        known, version = self.records.get(metadata["name"]), resource_version(raw)
        if known is not None and known.version > version:  # also when the older one has another UID
            return
        if known is not None and known.version == version and (watched or not self._is_custom):
            return
        is_new = known is None or known.uid != metadata["uid"]
        if is_new and version <= max(self._shown, self._gone.get(metadata["uid"], -1)):
            return
        record = self._read(raw)
        self.records[record.name] = record
        if record != known:
            self._note(known, record)

    def remove(self, name: str, uid: str, version: float = _NEVER) -> None:
        """Removes an object that is gone; `version` is that of its deletion. An object of that name with another UID
        stays."""
        self._gone[uid] = version
        while len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]
        known = self.records.get(name)
        if known is not None and known.uid == uid and known.version <= version:
            del self.records[name]
            self._note(known, None)

    def advance(self, version: int) -> None:
        """Notes that a list or the watch has shown everything up to this version."""
        self._shown = max(self._shown, version)

    def recheck(self, listed: Mapping[str, int], version: int) -> None:
        """Takes over a complete list, which shows this version and has these objects, by UID and with their versions:
        what it lacks is gone, unless it is newer. An object with a version between its own and that of the list has
        gone back in time."""
        for known in list(self.records.values()):
            if known.version > version:
                continue
            if known.uid not in listed:
                self.remove(known.name, known.uid, version)
            elif listed[known.uid] < known.version:
                self._outdated.set()
        if not self.complete:
            self.complete = True
            self._changed()

    def lose(self) -> None:
        """Forgets everything: the API server no longer allows this kind to be followed."""
        if self.complete or self.records:
            self.complete, self._shown = False, 0
            for known in list(self.records.values()):
                del self.records[known.name]
                self._note(known, None)
            self._changed()

    def _note(self, before: _R | None, after: _R | None) -> None:
        """Is called when a record has changed."""
        self._changed()


class NodeTable(Table[Node]):
    """The Nodes by name, and when each was seen last."""

    def __init__(
        self,
        read: Callable[[Json], Node],
        changed: Callable[[], None],
        outdated: asyncio.Event,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(read, changed, outdated)
        self._clock = clock
        self._seen: dict[str, float] = {}

    def store(self, raw: Json, *, watched: bool = False) -> None:
        """Records a Node that exists, and that it was seen."""
        super().store(raw, watched=watched)
        known = self.records.get(raw["metadata"]["name"])
        if known is not None and known.uid == raw["metadata"]["uid"]:
            self._seen[known.name] = self._clock()

    def remove(self, name: str, uid: str, version: float = _NEVER) -> None:
        """Removes a Node that is gone."""
        super().remove(name, uid, version)
        if name not in self.records:
            self._seen.pop(name, None)

    def seconds_since_seen(self, name: str) -> float:
        """How long ago a watch or a list last showed the Node."""
        return self._clock() - self._seen[name]


class AgentPods(Table[AgentPod]):
    """The agents' pods by name. `by_node` has for each node the state of its newest pod that is not about to end."""

    def __init__(self, read: Callable[[Json], AgentPod], changed: Callable[[], None], outdated: asyncio.Event) -> None:
        super().__init__(read, changed, outdated)
        self.by_node: dict[str, Agent] = {}
        self._names: dict[str, tuple[str, ...]] = {}  # of the pods of each node

    def _note(self, before: AgentPod | None, after: AgentPod | None) -> None:
        if before is not None:
            self._names[before.node] = tuple(name for name in self._names[before.node] if name != before.name)
        if after is not None:
            self._names[after.node] = (*self._names.get(after.node, ()), after.name)
        for node in {pod.node for pod in (before, after) if pod is not None and pod.node}:
            self._choose(node)

    def _choose(self, node: str) -> None:
        pods = [self.records[name] for name in self._names[node]]
        before = self.by_node.get(node)
        if not pods:
            del self._names[node]
            self.by_node.pop(node, None)
        else:
            self.by_node[node] = max(pods, key=lambda pod: (not pod.ending, pod.created, pod.version)).agent
        if before != self.by_node.get(node):
            self._changed()
