"""What is known of the cluster, fed by watches and by lists, and the flag that says that something is new.

Watches may miss a deletion (after a 410 they start over with a list), so lists find what is gone. Watches and answers
to own writes may arrive in any order: of two views of one object the newer one stays.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from dracpu_api.resources import Json
from dracpu_operator.decide.records import Config, CpuNode, Node
from dracpu_operator.known.read import read_config, read_cpu_node, read_node


class Record(Protocol):
    """What the tables have in common."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def version(self) -> int: ...


_R = TypeVar("_R", bound=Record)


class Fleet:
    """Three tables by name. `changed` is set when a record changes in what decisions look at."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.nodes: dict[str, Node] = {}
        self.configs: dict[str, Config] = {}
        self.cpu_nodes: dict[str, CpuNode] = {}
        self.unsure: set[str] = set()  # CpuNodes to read again: a write may or may not have been carried out
        self.changed = asyncio.Event()
        self._clock = clock
        self._seen: dict[str, float] = {}

    def see_node(self, raw: Json) -> None:
        """A Node exists."""
        node = read_node(raw)
        self._seen[node.name] = self._clock()
        self._see(self.nodes, node)

    def see_config(self, raw: Json) -> None:
        """A CpuDriverConfig exists."""
        self._see(self.configs, read_config(raw))

    def see_cpu_node(self, raw: Json) -> None:
        """A CpuNode exists."""
        self._see(self.cpu_nodes, read_cpu_node(raw))

    def lose_node(self, name: str, uid: str) -> None:
        """A Node is gone; one of that name with another UID may be there."""
        self._lose(self.nodes, name, uid)

    def lose_config(self, name: str, uid: str) -> None:
        """A CpuDriverConfig is gone."""
        self._lose(self.configs, name, uid)

    def lose_cpu_node(self, name: str, uid: str) -> None:
        """A CpuNode is gone."""
        self._lose(self.cpu_nodes, name, uid)

    def seconds_since_seen(self, node: str) -> float:
        """How long ago something told that the Node exists, with the UID that is known."""
        return self._clock() - self._seen[node]

    def recheck_nodes(self, known: Iterable[Node], listed: Iterable[Json]) -> None:
        """`listed` is complete: what was `known` before the list was asked for, and is not in it, is gone."""
        self._recheck(self.nodes, known, listed, self.see_node)
        self._seen = {name: at for name, at in self._seen.items() if name in self.nodes}

    def recheck_configs(self, known: Iterable[Config], listed: Iterable[Json]) -> None:
        """Likewise for configs."""
        self._recheck(self.configs, known, listed, self.see_config)

    def recheck_cpu_nodes(self, known: Iterable[CpuNode], listed: Iterable[Json]) -> None:
        """Likewise for CpuNodes; of these only the metadata is listed, so what is new is read one by one."""
        self._recheck(self.cpu_nodes, known, listed, self._compare_cpu_node)

    def _compare_cpu_node(self, raw: Json) -> None:
        metadata = raw["metadata"]
        there = self.cpu_nodes.get(metadata["name"])
        if there is None or there.uid != metadata["uid"] or there.generation < metadata.get("generation", 0):
            self.unsure.add(metadata["name"])

    def _recheck(
        self, table: dict[str, _R], known: Iterable[_R], listed: Iterable[Json], see: Callable[[Json], None]
    ) -> None:
        before = {record.uid: record for record in known}
        for raw in listed:
            name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
            there = table.get(name)
            # a list shows a moment in the past: what was lost since is not found again
            if before.pop(uid, None) is None or (there is not None and there.uid == uid):
                see(raw)
        for gone in before.values():
            self._lose(table, gone.name, gone.uid)

    def _see(self, table: dict[str, _R], record: _R) -> None:
        known = table.get(record.name)
        if known is not None and known.version > record.version:  # also of an object of that name that is gone
            return
        table[record.name] = record
        if record != known:
            self.changed.set()

    def _lose(self, table: dict[str, _R], name: str, uid: str) -> None:
        known = table.get(name)
        if known is not None and known.uid == uid:
            del table[name]
            self.changed.set()
