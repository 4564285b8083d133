"""Converts between NRI's messages and the records of placement/. No decisions, no I/O."""

import os
import posixpath
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import AtCreation, Container, ContainerUpdate, Limits, Placement, Resources
from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_api.cpuset import EMPTY, CpuSet, CpuSetError
from dracpu_api.names import VARIABLES

_MEMS: Final = "cpuset.mems"  # has a field of its own in NRI; `unified` has all other files of a cgroup
_MEMORY: Final = "memory.max"
_USER_NAMESPACE: Final = "user"
_HUGETLB: Final = re.compile(r"hugetlb\.(?P<size>[0-9]+[KMG]B)\.max")

# The kubelet sets these labels on every container. They replace what the runtime leaves out: CRI-O the container's
# name, containerd the pod after a restart of containerd. A pod cannot set them.
_LABEL_NAME: Final = "io.kubernetes.container.name"
_LABEL_NAMESPACE: Final = "io.kubernetes.pod.namespace"
_LABEL_POD_NAME: Final = "io.kubernetes.pod.name"
_LABEL_POD_UID: Final = "io.kubernetes.pod.uid"


def prefers_many(release: str) -> bool:
    """Whether a kernel can prefer several NUMA nodes: Linux 5.15 and later. Older ones refuse the policy, and the
    container would not start."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return found is None or (int(found[1]), int(found[2])) >= (5, 15)


_PREFERS_MANY: Final = prefers_many(os.uname().release)  # the kernel stays the same while the agent runs


class _Pod(NamedTuple):
    """A pod's names, copied from its message: keeping the message would keep the whole request in memory."""

    namespace: str
    name: str
    uid: str


class Inventory:
    """The runtime's complete list of pods and containers, which may come in several parts in any order."""

    def __init__(self) -> None:
        self._pods: dict[str, _Pod] = {}
        self._containers: list[tuple[str, Container]] = []

    def add(self, pods: Iterable[nri.PodSandbox], containers: Iterable[nri.Container]) -> None:
        """Adds one part of the list, without the containers that have ended: those cannot be updated."""
        self._pods.update((pod.id, _pod(pod)) for pod in pods)
        self._containers += [
            (message.pod_sandbox_id, _from_labels(message))
            for message in containers
            if message.state != nri.CONTAINER_STOPPED
        ]

    def containers(self) -> list[Container]:
        """Every container, with the names of its pod."""
        return [_in_pod(container, self._pods.get(pod_id)) for pod_id, container in self._containers]


def container(message: nri.Container, pod: nri.PodSandbox) -> Container:
    """The container that a hook is about."""
    return _in_pod(_from_labels(message), _pod(pod))


def with_details(known: Container, details: nri.CreationDetails) -> Container:
    """The container that is about to be created, with what only the driver of memory needs."""
    namespaces = [*details.pod.linux.namespaces, *details.container.linux.namespaces]
    return replace(
        known,
        mounted=frozenset(posixpath.normpath(mount.destination) for mount in details.container.mounts),
        in_user_namespace=any(namespace.type == _USER_NAMESPACE for namespace in namespaces),
    )


def with_changes(known: Container, changes: nri.LinuxResources) -> Container:
    """The container as the kubelet is about to change it."""
    limit = _memory_limit(changes)
    return known if limit is None else replace(known, memory_limit=limit)


def update(change: ContainerUpdate) -> nri.ContainerUpdate:
    """An update of a container's CPUs and limits, and of nothing else."""
    message = nri.ContainerUpdate(container_id=change.container_id)
    _fill(message.linux.resources, change.resources, change.container_id)
    return message


def create_response(created: Container, placement: Placement) -> nri.CreateContainerResponse:
    """The answer to a container's creation."""
    response = nri.CreateContainerResponse(update=map(update, placement.updates))
    resources = response.adjust.linux.resources
    _fill(resources, Resources(placement.cpus, placement.limits), created.id)
    _give(response.adjust, placement.at_creation)
    for file, content in placement.limits:
        # where the runtime writes the limits of the container's spec with each update, it has to begin with these
        if pages := _HUGETLB.fullmatch(file):
            resources.hugepage_limits.add(page_size=pages["size"], limit=int(content))
    return response


def _give(message: nri.ContainerAdjustment, given: AtCreation) -> None:
    for mount in given.mounts:
        message.mounts.add(
            destination=mount.destination, type=mount.type, source=mount.source, options=list(mount.options)
        )
    if nodes := given.preferred_nodes:
        nodes = nodes if _PREFERS_MANY else nodes[:1]
        policy = message.linux.memory_policy
        policy.mode = nri.MPOL_PREFERRED if len(nodes) == 1 else nri.MPOL_PREFERRED_MANY
        policy.nodes = str(CpuSet(nodes))  # the kernel's lists of nodes have the format of those of CPUs


def _pod(message: nri.PodSandbox) -> _Pod:
    return _Pod(message.namespace, message.name, message.uid)


def _from_labels(message: nri.Container) -> Container:
    labels, resources = message.labels, message.linux.resources
    return Container(
        id=message.id,
        name=message.name or labels.get(_LABEL_NAME, ""),
        namespace=labels.get(_LABEL_NAMESPACE, ""),
        pod_name=labels.get(_LABEL_POD_NAME, ""),
        pod_uid=labels.get(_LABEL_POD_UID, ""),
        cdi_devices=tuple(device.name for device in message.CDI_devices),
        env=tuple(entry for entry in message.env if entry.startswith(VARIABLES)),
        cpus=_cpus(resources.cpu.cpus),
        memory_limit=_memory_limit(resources),
        oom_score_adj=message.linux.oom_score_adj.value if message.linux.HasField("oom_score_adj") else None,
        recorded=_recorded(resources),
        started=message.state != nri.CONTAINER_CREATED,
    )


def _in_pod(labelled: Container, pod: _Pod | None) -> Container:
    if pod is None:
        return labelled
    return replace(
        labelled,
        namespace=pod.namespace or labelled.namespace,
        pod_name=pod.name or labelled.pod_name,
        pod_uid=pod.uid or labelled.pod_uid,
    )


def _cpus(text: str) -> CpuSet:
    try:
        return CpuSet.parse(text)
    except CpuSetError:
        return EMPTY  # unknown, so the container's CPUs are sent again


def _memory_limit(resources: nri.LinuxResources) -> int | None:
    limit = resources.memory.limit.value  # 0 where the field is absent
    return limit if limit > 0 else None


def _recorded(resources: nri.LinuxResources) -> Limits:
    found = {file: content for file, content in resources.unified.items() if file == _MEMORY or _HUGETLB.match(file)}
    return tuple(sorted({**found, **({_MEMS: resources.cpu.mems} if resources.cpu.mems else {})}.items()))


def _fill(message: nri.LinuxResources, resources: Resources, container_id: str) -> None:
    if not resources.cpus:  # NRI: an empty text means "unchanged", and the container would keep CPUs of others
        raise PlacementError(f"no CPU is left for container {container_id}")
    message.cpu.cpus = str(resources.cpus)
    for file, content in resources.limits:
        if file == _MEMS:
            message.cpu.mems = content
        else:
            message.unified[file] = content
