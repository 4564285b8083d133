"""Pods and containers as the runtime stores them and as NRI describes them."""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_sandbox.node.programs import FOR_EVER, Program

_ids = itertools.count(1)


def next_container_id() -> str:
    """Returns an id that is unique in this process."""
    return f"container-{next(_ids)}"


@dataclass(frozen=True, slots=True)
class Given:
    """The resources that a plugin gives a container; what is empty or absent stays as it is."""

    cpus: str = ""
    limits: Mapping[str, str] = field(default_factory=dict)  # files of its cgroup v2

    @staticmethod
    def of(message: nri.LinuxResources) -> "Given":
        """Reads NRI's message."""
        mems = {"cpuset.mems": message.cpu.mems} if message.cpu.mems else {}
        return Given(message.cpu.cpus, {**message.unified, **mems})


@dataclass(frozen=True)
class PodSandbox:
    """A pod sandbox."""

    name: str
    namespace: str = "default"
    uid: str = ""
    id: str = field(default_factory=lambda: f"sandbox-{next(_ids)}")

    def message(self) -> nri.PodSandbox:
        """Returns the NRI message that describes the pod."""
        return nri.PodSandbox(id=self.id, name=self.name, namespace=self.namespace, uid=self.uid or f"uid-{self.name}")


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
    spec_limits: dict[str, str] = field(default_factory=dict)  # other files of its cgroup, in the runtime's record
    cgroup_limits: dict[str, str] = field(default_factory=dict)  # those files, once its cgroup is written
    state: "nri.ContainerState.ValueType" = nri.CONTAINER_UNKNOWN  # as the runtime reports it
    stored: bool = False  # False while it is being created: updates do not find it
    process: bool = False  # whether its program runs: the runtime reports this later
    ballast: int = 0  # bytes of environment, to make messages large
    program: Program = FOR_EVER
    exit_code: int = 0
    log: list[str] = field(default_factory=list)
    ending: "asyncio.Task[None] | None" = None  # waits until the program ends, if it ends by itself

    @property
    def cpus(self) -> str:
        """The CPUs on which it runs, or will run by the runtime's record."""
        return self.spec_cpus if self.cgroup_cpus is None else self.cgroup_cpus

    @property
    def started(self) -> bool:
        """Whether the container was started, and may have ended since."""
        return self.state in (nri.CONTAINER_RUNNING, nri.CONTAINER_STOPPED)

    @property
    def running(self) -> bool:
        """Whether the container is running."""
        return self.state == nri.CONTAINER_RUNNING

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
        message.linux.resources.cpu.cpus = self.spec_cpus
        return message
