"""The records of everything that the operator knows, fed by watches and by lists, and an event that is set when one has
changed.

A watch may miss a deletion (after a 410 it starts again with a list), so lists find what is gone. Watches and answers
to own writes may arrive in any order: of two versions of an object, the newer one is kept. When the API server's data
was restored from a backup, versions begin again below those that were seen, and watches from a version of before may
stay silent for days: then nothing here can be trusted, and `outdated` is set.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from dracpu_api.resources import Json, resource_version
from dracpu_operator.decide.records import Agent, Config, CpuNode, DaemonSet, Node
from dracpu_operator.known.read import read_config, read_cpu_node, read_node


class Record(Protocol):
    """The fields that all kinds of records have."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def version(self) -> int: ...


_R = TypeVar("_R", bound=Record)


class Fleet:
    """Three tables by name. `changed` is set when a record changes in a field that decisions look at, `outdated` when
    everything has to be listed by a new process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.nodes: dict[str, Node] = {}
        self.configs: dict[str, Config] = {}
        self.cpu_nodes: dict[str, CpuNode] = {}
        self.agents: dict[str, Agent] = {}  # by the node's name
        self.daemon_sets: dict[str, DaemonSet] = {}  # of the agents
        self.to_read_again: set[str] = set()  # CpuNodes to read again: it is not known whether a write was carried out
        self.changed = asyncio.Event()
        self.outdated = asyncio.Event()
        self.version = 0  # the highest version that a watch or a list of Nodes has shown
        self._clock = clock
        self._seen: dict[str, float] = {}

    def store_node(self, raw: Json) -> None:
        """Records a Node that exists."""
        node = read_node(raw)
        self._seen[node.name] = self._clock()
        self._store(self.nodes, node)

    def store_config(self, raw: Json) -> None:
        """Records a CpuDriverConfig that exists."""
        self._store(self.configs, read_config(raw))

    def store_cpu_node(self, raw: Json) -> None:
        """Records a CpuNode that exists."""
        self._store(self.cpu_nodes, read_cpu_node(raw))

    def remove_node(self, name: str, uid: str) -> None:
        """Removes a Node that is gone. A Node of that name with another UID stays."""
        self._remove(self.nodes, name, uid)

    def remove_config(self, name: str, uid: str) -> None:
        """Removes a CpuDriverConfig that is gone."""
        self._remove(self.configs, name, uid)

    def remove_cpu_node(self, name: str, uid: str) -> None:
        """Removes a CpuNode that is gone."""
        self._remove(self.cpu_nodes, name, uid)

    def note_version(self, version: int, *, known: int) -> None:
        """Records a version of Nodes; `known` is a version that was seen before this one was requested."""
        self.compare(version, known)
        self.version = max(self.version, version)

    def compare(self, version: int, known: int) -> None:
        """Compares a version in an answer with one that was seen before the request."""
        if version < known:
            self.outdated.set()

    def seconds_since_seen(self, node: str) -> float:
        """How long ago a watch or a list last showed the Node."""
        return self._clock() - self._seen[node]

    def recheck_nodes(self, known: Iterable[Node], listed: Iterable[Json]) -> None:
        """Takes over a complete list: a Node that was `known` before the list was requested, and is not listed, is
        gone."""
        self._recheck(self.nodes, known, listed, self.store_node)
        self._seen = {name: at for name, at in self._seen.items() if name in self.nodes}

    def recheck_configs(self, known: Iterable[Config], listed: Iterable[Json]) -> None:
        """Takes over a complete list of configs."""
        self._recheck(self.configs, known, listed, self.store_config)

    def recheck_cpu_nodes(self, known: Iterable[CpuNode], listed: Iterable[Json]) -> None:
        """Takes over a complete list of CpuNodes. It has their metadata alone, so those that have changed are marked to
        be read again."""
        self._recheck(self.cpu_nodes, known, listed, self._compare_cpu_node)

    def _compare_cpu_node(self, raw: Json) -> None:
        metadata = raw["metadata"]
        present = self.cpu_nodes.get(metadata["name"])
        if present is None or present.uid != metadata["uid"] or present.generation < metadata.get("generation", 0):
            self.to_read_again.add(metadata["name"])

    def _recheck(
        self, table: dict[str, _R], known: Iterable[_R], listed: Iterable[Json], store: Callable[[Json], None]
    ) -> None:
        missing = {record.uid: record for record in known}
        for raw in listed:
            name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
            present, before = table.get(name), missing.pop(uid, None)
            if before is not None:
                self.compare(resource_version(raw), before.version)
            # the list shows a moment in the past: an object that was deleted since then stays deleted
            if before is None or (present is not None and present.uid == uid):
                store(raw)
        for gone in missing.values():
            self._remove(table, gone.name, gone.uid)

    def _store(self, table: dict[str, _R], record: _R) -> None:
        known = table.get(record.name)
        if known is not None and known.version > record.version:  # also when the older one has another UID
            return
        table[record.name] = record
        if record != known:
            self.changed.set()

    def _remove(self, table: dict[str, _R], name: str, uid: str) -> None:
        known = table.get(name)
        if known is not None and known.uid == uid:
            del table[name]
            self.changed.set()
