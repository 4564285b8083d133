"""The objects of a large cluster, as large as real ones: Nodes, the agents' pods and the statuses of CpuNodes."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from helm_chart import NAMESPACE
from machine_answers import topology_of

from dracpu_agent.report.node_status import topology_of as described
from dracpu_api.conditions import NodeCondition, NodeReason, Phase
from dracpu_api.cpuset import EMPTY
from dracpu_api.names import CAPACITY_CPU, DRIVER
from dracpu_api.resources import Json, JsonObject
from dracpu_sandbox.machines.presets import XEON_SNC2

_MACHINE: Final = topology_of(XEON_SNC2)  # two sockets of 32 cores with two threads each
_RESERVED: Final = _MACHINE.cores[_MACHINE.cpus[0].core]
_DIGEST: Final = "0123456789abcdef" * 4
_IMAGES: Final = 50  # the kubelet reports so many at most
_REASONS: Final[Mapping[NodeCondition, NodeReason]] = {
    NodeCondition.CONFIG_APPLIED: NodeReason.APPLIED,
    NodeCondition.KUBELET_REGISTERED: NodeReason.REGISTERED,
    NodeCondition.RUNTIME_CONNECTED: NodeReason.CONNECTED,
    NodeCondition.SLICES_PUBLISHED: NodeReason.PUBLISHED,
    NodeCondition.STATE_HEALTHY: NodeReason.HEALTHY,
}


def names(count: int) -> list[str]:
    """The names of the nodes."""
    return [f"ip-10-{number >> 8}-{number & 0xFF}.compute.internal" for number in range(count)]


def node(name: str, number: int) -> JsonObject:
    """A Node of some 12 KB."""
    labels = {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": "c7i.metal-24xl",
        "topology.kubernetes.io/region": "eu-central-1",
        "topology.kubernetes.io/zone": f"eu-central-1{'abc'[number % 3]}",
        **{f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{feature}": "true" for feature in range(30)},
    }
    amounts = {"cpu": "128", "memory": "263921184Ki", "ephemeral-storage": "209702892Ki", "pods": "110"}
    image = "registry.example.com/team/some-application"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"volumes.kubernetes.io/managed": "true"}},
        "spec": {"podCIDR": f"10.{number >> 8}.{number & 0xFF}.0/24", "providerID": f"aws:///eu-central-1a/i-{name}"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": node_conditions(),
            "addresses": [{"type": "InternalIP", "address": f"10.0.{number >> 8}.{number & 0xFF}"}],
            "nodeInfo": {
                "machineID": f"{number:032x}",
                "systemUUID": f"{number:032x}",
                "bootID": f"{number:032x}",
                "kernelVersion": "6.12.41-cloud-amd64",
                "osImage": "Debian GNU/Linux 13 (trixie)",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "v1.37.1",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "images": [
                {"names": [f"{image}-{item}@sha256:{_DIGEST}", f"{image}-{item}:1.{item}"], "sizeBytes": 52428800}
                for item in range(_IMAGES)
            ],
        },
    }


def node_conditions() -> list[JsonObject]:
    """The conditions that a kubelet writes at least every five minutes."""
    healthy = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    return [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastHeartbeatTime": now(),
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind in healthy
    ]


def agent_pod(name: str, node_name: str, daemon_set: Json) -> JsonObject:
    """The pod of a node's agent, as the controller of the DaemonSet creates it."""
    template, metadata = daemon_set["spec"]["template"], daemon_set["metadata"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": metadata["name"], "uid": metadata["uid"]}
    labels = {**template["metadata"]["labels"], "controller-revision-hash": "5d4f8c9b7", "pod-template-generation": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": labels,
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        # the priority class exists in real clusters, where another component creates it
        "spec": {**template["spec"], "nodeName": node_name, "priorityClassName": ""},
    }


def pod_status(template: Json) -> JsonObject:
    """The status of an agent's pod that is ready."""
    started = "2026-01-01T00:00:00Z"
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": now(), "lastTransitionTime": started} for kind in kinds
        ],
        "hostIP": "10.0.0.1",
        "podIP": "10.0.0.2",
        "podIPs": [{"ip": "10.0.0.2"}],
        "startTime": started,
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": f"registry.example.com/agent@sha256:{_DIGEST}",
                "containerID": f"containerd://{_DIGEST}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": started}},
            }
            for container in template["spec"]["containers"]
        ],
    }


def daemon_set_status(nodes: int) -> JsonObject:
    """The status of the DaemonSet when all its pods are ready."""
    counted = ("currentNumberScheduled", "desiredNumberScheduled", "numberReady", "numberAvailable")
    return {
        "numberMisscheduled": 0,
        "observedGeneration": 1,
        "updatedNumberScheduled": nodes,
        **dict.fromkeys(counted, nodes),
    }


def settling() -> JsonObject:
    """What an agent changes in its status when its devices are about to be replaced."""
    return {"phase": Phase.SETTLING, "conditions": _conditions({NodeCondition.CONFIG_APPLIED: NodeReason.SETTLING})}


def applied(revision: str) -> JsonObject:
    """The status of an agent that has applied its settings."""
    shared = _MACHINE.online - _RESERVED
    sets = {"reserved": _RESERVED, "exclusive": EMPTY, "shared": shared}
    return {
        "phase": Phase.READY,
        "appliedRevision": revision,
        "agentVersion": "1.0.0",
        "runtime": {"name": "containerd", "version": "2.1.4", "nri": "0.10.0"},
        "topology": described(_MACHINE),
        "cpus": {
            **{name: str(cpus) for name, cpus in sets.items()},
            "counts": {name: len(cpus) for name, cpus in sets.items()},
        },
        "claims": [],
        "claimsTotal": 0,
        "conditions": _conditions({}),
    }


def claim(name: str, namespace: str) -> JsonObject:
    """A claim as it is created from a template for a pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"pod-of-{name}"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"resource.kubernetes.io/pod-claim-name": "cpus"},
            "finalizers": ["resource.kubernetes.io/delete-protection"],
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "cpus",
                        "exactly": {
                            "deviceClassName": DRIVER,
                            "count": 1,
                            "capacity": {"requests": {CAPACITY_CPU: "4"}},
                        },
                    }
                ]
            }
        },
    }


def claim_status(name: str, node_name: str) -> JsonObject:
    """The status of a claim that is allocated, reserved for its pod and prepared."""
    share = {"driver": DRIVER, "pool": node_name, "device": "cpudevnuma000"}
    identity = {"shareID": "8f2c6f0e-4b1c-4f55-9d5c-2f1a6a1c0d11"}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
    return {
        "allocation": {
            "allocationTimestamp": now(),
            "devices": {"results": [{"request": "cpus", **share, **identity, "consumedCapacity": {CAPACITY_CPU: "4"}}]},
            "nodeSelector": {"nodeSelectorTerms": [term]},
        },
        "reservedFor": [{"resource": "pods", "name": name, "uid": f"pod-of-{name}"}],
        "devices": [{**share, **identity, "data": {"cpuset": "2-3,66-67"}}],
    }


def _conditions(false: Mapping[NodeCondition, NodeReason]) -> list[dict[str, Any]]:
    return [
        {
            "type": kind,
            "status": "False" if kind in false else "True",
            "reason": false.get(kind, reason),
            "message": "a sentence of the usual length about what the agent has found there",
            "lastTransitionTime": now(),
        }
        for kind, reason in _REASONS.items()
    ]


def now() -> str:
    """The present time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
