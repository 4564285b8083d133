"""Containers as the runtime describes them, and the resources that it is sent for them."""

from dataclasses import dataclass

from dracpu_api.cpuset import EMPTY, CpuSet

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
    recorded: Limits = ()  # the limits of drivers that the runtime's record of it has
    started: bool = True  # False: the runtime lists it as created
    placed: bool = False  # this agent has answered its creation

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
class Placement:
    """The answer to a container's creation: its own resources, and the updates of others."""

    cpus: CpuSet
    updates: tuple[ContainerUpdate, ...] = ()
    limits: Limits = ()
