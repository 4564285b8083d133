"""NRI's messages <-> the records of placement/. No decisions, no I/O."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import Container, ContainerUpdate, Placement
from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_api.cpuset import EMPTY, CpuSet, CpuSetError
from dracpu_api.names import CDI_ENV_PREFIX

# The kubelet labels every container; where the runtime leaves something out (CRI-O the name, containerd after its own
# restart the pod), they fill the gap. A pod cannot set them.
_LABEL_NAME: Final = "io.kubernetes.container.name"
_LABEL_NAMESPACE: Final = "io.kubernetes.pod.namespace"
_LABEL_POD_NAME: Final = "io.kubernetes.pod.name"
_LABEL_POD_UID: Final = "io.kubernetes.pod.uid"


class _Pod(NamedTuple):
    """A pod's names, taken out of its message: keeping the message would keep the whole request in memory."""

    namespace: str
    name: str
    uid: str


class Inventory:
    """The runtime's complete list of pods and containers, which may come in several parts in any order."""

    def __init__(self) -> None:
        self._pods: dict[str, _Pod] = {}
        self._containers: list[tuple[str, Container]] = []

    def add(self, pods: Iterable[nri.PodSandbox], containers: Iterable[nri.Container]) -> None:
        """One part. Containers that have ended are left out: nothing can be changed about them."""
        self._pods.update((pod.id, _pod(pod)) for pod in pods)
        self._containers += [
            (message.pod_sandbox_id, _by_its_labels(message))
            for message in containers
            if message.state != nri.CONTAINER_STOPPED
        ]

    def containers(self) -> list[Container]:
        """Every container, with the names of its pod."""
        return [_in_pod(known, self._pods.get(pod_id)) for pod_id, known in self._containers]


def container(message: nri.Container, pod: nri.PodSandbox) -> Container:
    """A container as a hook shows it."""
    return _in_pod(_by_its_labels(message), _pod(pod))


def update(wanted: ContainerUpdate) -> nri.ContainerUpdate:
    """An update of a container's CPUs, and of nothing else."""
    message = nri.ContainerUpdate(container_id=wanted.container_id)
    message.linux.resources.cpu.cpus = _text(wanted.cpus, wanted.container_id)
    return message


def create_response(created: Container, placement: Placement) -> nri.CreateContainerResponse:
    """The answer to a container's creation."""
    response = nri.CreateContainerResponse(update=map(update, placement.updates))
    response.adjust.linux.resources.cpu.cpus = _text(placement.cpus, created.id)
    return response


def _pod(message: nri.PodSandbox) -> _Pod:
    return _Pod(message.namespace, message.name, message.uid)


def _by_its_labels(message: nri.Container) -> Container:
    labels = message.labels
    return Container(
        id=message.id,
        name=message.name or labels.get(_LABEL_NAME, ""),
        namespace=labels.get(_LABEL_NAMESPACE, ""),
        pod_name=labels.get(_LABEL_POD_NAME, ""),
        pod_uid=labels.get(_LABEL_POD_UID, ""),
        cdi_devices=tuple(device.name for device in message.CDI_devices),
        env=tuple(entry for entry in message.env if entry.startswith(CDI_ENV_PREFIX)),
        cpus=_cpus(message.linux.resources.cpu.cpus),
    )


def _in_pod(known: Container, pod: _Pod | None) -> Container:
    if pod is None:
        return known
    return replace(
        known,
        namespace=pod.namespace or known.namespace,
        pod_name=pod.name or known.pod_name,
        pod_uid=pod.uid or known.pod_uid,
    )


def _cpus(text: str) -> CpuSet:
    try:
        return CpuSet.parse(text)
    except CpuSetError:
        return EMPTY  # not known: the container is told its CPUs anew


def _text(cpus: CpuSet, container_id: str) -> str:
    if not cpus:  # NRI reads an empty text as "unchanged": the container would keep CPUs that are not its own
        raise PlacementError(f"no CPU is left for container {container_id}")
    return str(cpus)
