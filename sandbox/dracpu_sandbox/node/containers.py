"""Pods and containers as the runtime stores them and as NRI describes them."""

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_sandbox.node.programs import FOR_EVER, Program

MEMS: Final = "cpuset.mems"  # has a field of its own in NRI; `unified` has all other files of a cgroup

_PREFERENCES: Final = (nri.MPOL_PREFERRED, nri.MPOL_PREFERRED_MANY)
KILLED: Final = 137  # the exit code of a container that was ended by SIGKILL
PERIOD: Final = 100_000  # microseconds in which a container may use its quota of CPU time

_ids = itertools.count(1)


def next_container_id() -> str:
    """Returns an id that is unique in this process."""
    return f"container-{next(_ids)}"


@dataclass(frozen=True, slots=True)
class Given:
    """The resources that the kubelet or a plugin gives a container; what is empty or absent stays as it is."""

    cpus: str = ""
    limits: Mapping[str, str] = field(default_factory=dict)  # files of its cgroup v2
    memory: int = 0  # its limit in bytes; -1: none
    score: int | None = None  # oom_score_adj, when it is created
    preferred: CpuSet = EMPTY  # NUMA nodes from which it takes memory while they have some, set when it is created
    mounts: Sequence[nri.Mount] = ()  # added when it is created
    hugepages: Mapping[str, int] = field(default_factory=dict)  # only shown to plugins
    shares: int = 0  # as are those of CPU time
    quota: int = 0

    @staticmethod
    def of(message: nri.LinuxResources) -> "Given":
        """Reads NRI's message. containerd: its limits of hugepages have no effect in the default configuration."""
        mems = {MEMS: message.cpu.mems} if message.cpu.mems else {}
        return Given(message.cpu.cpus, {**message.unified, **mems}, message.memory.limit.value)

    @staticmethod
    def at_creation(adjustment: nri.ContainerAdjustment, *, policies: bool) -> "Given":
        """Reads the answer to a creation. runc: of several nodes, MPOL_PREFERRED takes the first. A runtime without
        `policies` ignores those, as it does not know the field."""
        linux, policy = adjustment.linux, adjustment.linux.memory_policy
        nodes = CpuSet.parse(policy.nodes) if policies and policy.mode in _PREFERENCES else EMPTY
        return replace(
            Given.of(linux.resources),
            score=linux.oom_score_adj.value if linux.HasField("oom_score_adj") else None,
            preferred=CpuSet((nodes.lowest,)) if nodes and policy.mode == nri.MPOL_PREFERRED else nodes,
            mounts=tuple(adjustment.mounts),
        )

    def over(self, other: "Given") -> "Given":
        """Returns both together, where these resources win."""
        return Given(self.cpus or other.cpus, {**other.limits, **self.limits}, self.memory or other.memory)

    def message(self) -> nri.LinuxResources:
        """Returns NRI's message."""
        message = nri.LinuxResources(
            hugepage_limits=[nri.HugepageLimit(page_size=page, limit=size) for page, size in self.hugepages.items()],
            unified={file: text for file, text in self.limits.items() if file != MEMS},
        )
        message.cpu.cpus, message.cpu.mems = self.cpus, self.limits.get(MEMS, "")
        if self.memory:
            message.memory.limit.value = self.memory
        if self.shares:
            message.cpu.shares.value, message.cpu.quota.value = self.shares, self.quota
            message.cpu.period.value = PERIOD
        return message


NOTHING: Final = Given()


@dataclass(frozen=True)
class PodSandbox:
    """A pod sandbox."""

    name: str
    namespace: str = "default"
    uid: str = ""
    cgroup: str = ""  # its path below the root of the cgroup tree
    user_namespace: bool = False  # whether its users are not those of the machine
    id: str = field(default_factory=lambda: f"sandbox-{next(_ids)}")

    def message(self) -> nri.PodSandbox:
        """Returns the NRI message that describes the pod."""
        message = nri.PodSandbox(
            id=self.id, name=self.name, namespace=self.namespace, uid=self.uid or f"uid-{self.name}"
        )
        if self.cgroup:
            message.linux.cgroup_parent = f"/{self.cgroup}"
        return message


@dataclass
class Container:
    """A container, from its creation to its removal."""

    id: str
    pod: PodSandbox
    name: str
    env: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    spec_cpus: str = ""  # in the runtime's record; "": all CPUs
    cgroup_cpus: str | None = None  # the cpuset of its cgroup; None before the cgroup is written, at the start
    spec_memory: int = 0  # its limit in the runtime's record, as in Given
    spec_limits: dict[str, str] = field(default_factory=dict)  # other files of its cgroup, in the runtime's record
    cgroup_limits: dict[str, str] = field(default_factory=dict)  # those files, once its cgroup is written
    state: "nri.ContainerState.ValueType" = nri.CONTAINER_UNKNOWN  # as the runtime reports it
    stored: bool = False  # False while it is being created: updates do not find it
    process: bool = False  # whether its program runs: the runtime reports this later
    ballast: int = 0  # bytes of environment, to make messages large
    program: Program = FOR_EVER
    score: int = 0  # oom_score_adj
    volumes: tuple[str, ...] = ()  # where its volumes are mounted
    preferred: CpuSet = EMPTY  # as in Given
    mounts: tuple[nri.Mount, ...] = ()  # of plugins
    exit_code: int = 0
    end_reason: str = ""  # why it ended; "": by itself
    log: list[str] = field(default_factory=list)
    ending: "asyncio.Task[None] | None" = None  # waits until the program ends, if it ends by itself

    @property
    def cpus(self) -> str:
        """The CPUs on which it runs, or will run by the runtime's record."""
        return self.spec_cpus if self.cgroup_cpus is None else self.cgroup_cpus

    @property
    def cgroup(self) -> str:
        """The path of its cgroup."""
        return f"{self.pod.cgroup}/{self.id}"

    @property
    def record(self) -> Given:
        """Its resources in the runtime's record."""
        return Given(self.spec_cpus, self.spec_limits, self.spec_memory)

    @property
    def started(self) -> bool:
        """Whether the container was started, and may have ended since."""
        return self.state in (nri.CONTAINER_RUNNING, nri.CONTAINER_STOPPED)

    @property
    def running(self) -> bool:
        """Whether the container is running."""
        return self.state == nri.CONTAINER_RUNNING

    def details(self) -> nri.CreationDetails:
        """Returns what else the request to create it has."""
        details = nri.CreationDetails()
        details.container.mounts.extend(nri.Mount(destination=path) for path in ("/proc", "/dev", *self.volumes))
        kinds = ("pid", "mount", *(("user",) if self.pod.user_namespace else ()))
        details.container.linux.namespaces.extend(nri.LinuxNamespace(type=kind) for kind in kinds)
        return details

    def message(self, *, with_cdi: bool = True) -> nri.Container:
        """Returns the NRI message that describes the container."""
        pod = self.pod.message()
        message = nri.Container(
            id=self.id,
            pod_sandbox_id=pod.id,
            name=self.name,
            state=self.state,
            labels={
                "io.kubernetes.container.name": self.name,
                "io.kubernetes.pod.name": pod.name,
                "io.kubernetes.pod.namespace": pod.namespace,
                "io.kubernetes.pod.uid": pod.uid,
            },
            env=["PATH=/bin", *self.env, *(["BALLAST=" + "x" * self.ballast] if self.ballast else [])],
            CDI_devices=[nri.CDIDevice(name=name) for name in self.cdi_devices] if with_cdi else [],
        )
        message.linux.resources.CopyFrom(self.record.message())
        if self.pod.cgroup:
            message.linux.cgroups_path = f"/{self.cgroup}"
            message.linux.oom_score_adj.value = self.score
        return message


def files_of(given: Given) -> Iterator[tuple[str, str]]:
    """Yields the files of a container's cgroup in the order in which runc writes them: those that have a field of their
    own come first, so that the others win."""
    if given.memory:
        yield "memory.max", "max" if given.memory < 0 else str(given.memory)
    if given.cpus:
        yield "cpuset.cpus", given.cpus
    yield from ((file, text) for file, text in given.limits.items() if file == MEMS)
    yield from ((file, text) for file, text in given.limits.items() if file != MEMS)
