"""Reads the log of the sampler: the containers and claims of a node, and the node's state after each change."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dracpu_api.cpuset import EMPTY, CpuSet, union
from harness.release import NAMESPACE

Variables = Mapping[str, CpuSet]  # the driver's environment variables, one for each request of a claim


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

    def __str__(self) -> str:
        return f"{self.pod}/{self.name} ({self.id[:8]})"

    @property
    def is_agent(self) -> bool:
        """True for the container of this project's agent."""
        return (self.namespace, self.name) == (NAMESPACE, "agent")


@dataclass(frozen=True, slots=True)
class State:
    """The CPUs of a container."""

    cpus: CpuSet = EMPTY  # cpuset.cpus
    effective: CpuSet = EMPTY  # cpuset.cpus.effective
    allowed: CpuSet = EMPTY  # the CPUs that at least one thread of its program may use
    running: bool = False  # its program has a thread
    preparing: bool = False  # runc has a process in its cgroup, which has not started the program yet


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a node at a moment; it lasts until the next snapshot."""

    at: float
    states: Mapping[str, State]  # container -> its state; without the pods' sandboxes
    claims: Mapping[str, Variables]  # the UID of each prepared claim -> the variables in its CDI file


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
    states, claims = dict(former.states), dict(former.claims)
    match line:
        case {"container": str(uid), "state": state}:
            if uid in containers:
                states[uid] = _state(state)
        case {"gone": str(uid)}:
            states.pop(uid, None)
        case {"claim": str(uid), "env": env}:
            claims[uid] = _variables(env)
        case {"released": str(uid)}:
            del claims[uid]
        case _:
            raise SampleLogError(f"the sampler does not write lines like {line}")
    return Snapshot(line["at"], states, claims)


def _container(found: Mapping[str, Any]) -> Container:
    names = {name: found[name] for name in ("id", "kind", "namespace", "pod", "name")}
    return Container(**names, variables=_variables(found["env"]))


def _state(found: Mapping[str, Any]) -> State:
    return State(
        cpus=CpuSet.parse(found["cpus"]),
        effective=CpuSet.parse(found["effective"]),
        allowed=CpuSet.parse(found["allowed"]),
        running=found["running"],
        preparing=found["preparing"],
    )


def _variables(env: Iterable[str]) -> Variables:
    pairs = (line.split("=", 1) for line in env)
    return {name: CpuSet.parse(value) for name, value in pairs}


def cpus_of(variables: Variables) -> CpuSet:
    """Returns all CPUs in these variables."""
    return union(variables.values())
