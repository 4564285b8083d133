"""Reads the log of the sampler: the containers and claims of a node, and the node's state after each change."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dracpu_api.cpuset import EMPTY, CpuSet, union
from dracpu_api.quantity import whole_number
from harness.release import NAMESPACE

Variables = Mapping[str, CpuSet]  # the driver's environment variables, one for each request of a claim
Promises = Mapping[tuple[str, int], int]  # kind of memory and NUMA node -> bytes

ORDINARY: Final = "memory"
PAGES: Final = "hugepages_2Mi"
_MEMORY: Final = "DRAMEMORY_"  # the beginning of the names of variables of the driver of memory
_KIND: Final = re.compile(f"_({ORDINARY}|hugepages_[0-9]+[KMG]i)$")
_PART: Final = re.compile("numanode:([0-9]+),size:([^,;]+)")


class SampleLogError(Exception):
    """A log that the sampler did not write, or not to its end."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container, as its OCI spec describes it."""

    id: str
    kind: str
    namespace: str
    pod: str
    name: str
    variables: Variables
    promises: Promises  # what its claims of memory have

    def __str__(self) -> str:
        return f"{self.pod}/{self.name} ({self.id[:8]})"

    @property
    def is_agent(self) -> bool:
        """True for the container of this project's agent."""
        return (self.namespace, self.name) == (NAMESPACE, "agent")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limit of hugepages of 2 MiB in a cgroup; None without a limit."""

    used: int | None = None  # hugetlb.2MB.max
    reserved: int | None = None  # hugetlb.2MB.rsvd.max


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a container, as its cgroup and that of its pod describe it."""

    mems: CpuSet = EMPTY  # cpuset.mems: numbers of NUMA nodes; none: not bound
    limit: int | None = None  # memory.max
    pages: Limits = Limits()
    pages_of_pod: Limits = Limits()
    pages_on: tuple[tuple[int, int], ...] = ()  # NUMA node and bytes of its pages in use, of nodes with some


@dataclass(frozen=True, slots=True)
class State:
    """The CPUs and the memory of a container."""

    cpus: CpuSet = EMPTY  # cpuset.cpus
    effective: CpuSet = EMPTY  # cpuset.cpus.effective
    allowed: CpuSet = EMPTY  # the CPUs that at least one thread of its program may use
    running: bool = False  # its program has a thread
    preparing: bool = False  # runc has a process in its cgroup, which has not started the program yet
    memory: Memory = Memory()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a node at a moment; it lasts until the next snapshot."""

    at: float
    states: Mapping[str, State]  # container -> its state; without the pods' sandboxes
    claims: Mapping[str, Variables]  # the UID of each prepared claim -> the variables in its CDI file
    promises: Mapping[str, Promises] = field(default_factory=dict)  # likewise for claims of memory


@dataclass(slots=True)
class SampleLog:
    """Everything that a sampler has recorded on one node. Times are the node's clock, in seconds."""

    containers: dict[str, Container] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=list)
    end: float = 0
    complete: bool = False  # the sampler was not killed
    readings: int = 0
    slowest: float = 0  # the longest time between two readings, in seconds

    @property
    def start(self) -> float:
        """The time of the first snapshot."""
        return self.snapshots[0].at

    def last_state(self, container: str) -> State:
        """Returns the latest state of a container, which is given by its id."""
        return self.snapshots[-1].states[container]

    @property
    def claimed(self) -> list[Container]:
        """The containers with a claim."""
        return [container for container in self.containers.values() if container.variables]

    @property
    def claims(self) -> frozenset[str]:
        """The UIDs of all claims that were ever prepared."""
        return frozenset(uid for snapshot in self.snapshots for uid in snapshot.claims)


def parse(text: str) -> SampleLog:
    """Reads a log. All lines with the same time describe one change of the node."""
    log = SampleLog()
    for line in map(json.loads, text.splitlines()):
        if not log.snapshots:
            log.snapshots.append(Snapshot(line["at"], {}, {}))
        match line:
            case {"readings": int(readings), "slowest": slowest}:
                log.readings += readings
                log.slowest = max(log.slowest, slowest)
                log.end, log.complete = line["at"], "end" in line
            case {"found": found}:
                container = _container(found)
                if container.kind == "container":
                    log.containers[container.id] = container
            case _:
                former = log.snapshots.pop() if log.snapshots[-1].at == line["at"] else log.snapshots[-1]
                log.snapshots.append(_after(line, former, log.containers))
    if not log.snapshots:
        raise SampleLogError("the sampler has not observed anything")
    return log


def _after(line: Mapping[str, Any], former: Snapshot, containers: Collection[str]) -> Snapshot:
    """Returns the snapshot after a change."""
    states, claims, promises = dict(former.states), dict(former.claims), dict(former.promises)
    match line:
        case {"container": str(uid), "state": state}:
            if uid in containers:
                states[uid] = _state(state)
        case {"gone": str(uid)}:
            states.pop(uid, None)
        case {"claim": str(uid), "driver": "memory", "env": env}:
            promises[uid] = _promises(env)
        case {"released": str(uid), "driver": "memory"}:
            del promises[uid]
        case {"claim": str(uid), "env": env}:
            claims[uid] = _variables(env)
        case {"released": str(uid)}:
            del claims[uid]
        case _:
            raise SampleLogError(f"the sampler does not write lines like {line}")
    return Snapshot(line["at"], states, claims, promises)


def _container(found: Mapping[str, Any]) -> Container:
    names = {name: found[name] for name in ("id", "kind", "namespace", "pod", "name")}
    own = [line for line in found["env"] if not line.startswith(_MEMORY)]
    return Container(**names, variables=_variables(own), promises=_promises(found["env"]))


def _state(found: Mapping[str, Any]) -> State:
    return State(
        cpus=CpuSet.parse(found["cpus"]),
        effective=CpuSet.parse(found["effective"]),
        allowed=CpuSet.parse(found["allowed"]),
        running=found["running"],
        preparing=found["preparing"],
        memory=_memory(*found["memory"]) if found.get("memory") else Memory(),
    )


def _memory(
    mems: str, limit: str, used: str, reserved: str, stat: str, used_by_pod: str, reserved_of_pod: str
) -> Memory:
    """Reads the contents of the files; those that do not exist are empty."""
    found = re.findall(" N([0-9]+)=([0-9]+)", stat.partition("\n")[0])
    return Memory(
        CpuSet.parse(mems),
        _limit(limit),
        Limits(_limit(used), _limit(reserved)),
        Limits(_limit(used_by_pod), _limit(reserved_of_pod)),
        tuple((int(numa), int(size)) for numa, size in found if int(size)),
    )


def _limit(text: str) -> int | None:
    return int(text) if text not in ("", "max") else None


def _promises(env: Iterable[str]) -> Promises:
    """Reads the variables of the driver of memory, such as DRAMEMORY_<claim>_memory=numanode:0,size:64Mi."""
    found: Counter[tuple[str, int]] = Counter()
    for name, value in (line.split("=", 1) for line in env):
        kind = _KIND.search(name)
        if name.startswith(_MEMORY) and kind:
            for numa, size in _PART.findall(value):
                found[kind[1], int(numa)] += whole_number(size) or 0
    return found


def _variables(env: Iterable[str]) -> Variables:
    pairs = (line.split("=", 1) for line in env)
    return {name: CpuSet.parse(value) for name, value in pairs}


def cpus_of(variables: Variables) -> CpuSet:
    """Returns all CPUs in these variables."""
    return union(variables.values())
