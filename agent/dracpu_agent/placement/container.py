"""Containers as the runtime describes them, and the resources that it is sent for them."""

from dataclasses import dataclass

from dracpu_api.cpuset import EMPTY, CpuSet, CpuSetError

Limits = tuple[tuple[str, str], ...]  # files of a container's cgroup v2 and their content, in the order of the names


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """The runtime's name and versions, and what it is able to do."""

    name: str = ""
    version: str = ""
    nri: str = ""  # "" before NRI 0.12, which does not report it
    passes_cdi_devices: bool = False  # containers carry the kubelet's CDI devices, which a pod cannot forge
    unsolicited_updates: bool = False  # UpdateContainers cannot deadlock this runtime (NRI >= 0.12.1)
    lists_completely: bool = False  # it creates and starts nothing while it lists its containers for a plugin
    memory_policies: bool = False  # containers can prefer NUMA nodes (NRI >= 0.12)
    reports_resizes: bool = False  # it asks plugins before the kubelet changes the resources of a pod (NRI >= 0.10)


@dataclass(frozen=True, slots=True)
class Container:
    """A container that the runtime created or is about to create."""

    id: str
    name: str
    namespace: str
    pod_name: str
    pod_uid: str
    cdi_devices: tuple[str, ...] = ()  # fully qualified: vendor/class=name
    env: tuple[str, ...] = ()  # "NAME=value"; only names that begin as the drivers' variables are kept
    cpus: CpuSet = EMPTY  # what its cgroup allows, by the runtime's record; empty: not limited
    memory_limit: int | None = None  # bytes, of its spec; None: not limited
    oom_score_adj: int | None = None  # None: not known
    recorded: Limits = ()  # the limits of drivers that the runtime's record of it has
    started: bool = True  # False: the runtime lists it as created
    placed: bool = False  # this agent has answered its creation
    is_new: bool = False  # the runtime is about to create it: it can be given any limits
    mounted: frozenset[str] = frozenset()  # paths in it at which something is mounted; only known when it is created
    in_user_namespace: bool = False  # likewise

    @property
    def bound_nodes(self) -> CpuSet:
        """The NUMA nodes that its memory is bound to, by the runtime's record; none: not bound."""
        try:
            return CpuSet.parse(dict(self.recorded).get("cpuset.mems", ""))  # a list of nodes looks like one of CPUs
        except CpuSetError:
            return EMPTY

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod_name}/{self.name}"


@dataclass(frozen=True, slots=True)
class Resources:
    """What a container may use: its CPUs, and what its claims limit or bind besides."""

    cpus: CpuSet = EMPTY
    limits: Limits = ()


@dataclass(frozen=True, slots=True)
class ContainerUpdate:
    """What a container may use from now on; its CPUs are never empty."""

    container_id: str
    cpus: CpuSet
    limits: Limits = ()

    @property
    def resources(self) -> Resources:
        """Without the container."""
        return Resources(self.cpus, self.limits)


@dataclass(frozen=True, slots=True)
class Mount:
    """A file system that is mounted in a container."""

    destination: str
    type: str
    source: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AtCreation:
    """The settings that a container gets when it is created, and that nothing changes later."""

    preferred_nodes: tuple[int, ...] = ()  # NUMA nodes from which it takes memory while they have some; none: any
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """The answer to a container's creation: its own resources, and the updates of others."""

    cpus: CpuSet
    updates: tuple[ContainerUpdate, ...] = ()
    limits: Limits = ()
    at_creation: AtCreation = AtCreation()
