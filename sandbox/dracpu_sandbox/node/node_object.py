"""Builds the Node object that a simulated kubelet registers, without I/O."""

import zlib
from typing import Final

from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.resources import NODES, JsonObject

KUBELET_VERSION: Final = "v1.37.1"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def address_of(node_name: str, host: int) -> str:
    """Returns an address in this node's network; nothing listens on it."""
    number = zlib.crc32(node_name.encode())
    return f"10.{number >> 8 & 0xFF}.{number & 0xFF}.{host % 254 + 1}"


def node_of(name: str, machine: Machine) -> JsonObject:
    """Returns the Node that the kubelet creates."""
    arch = _ARCHITECTURES.get(machine.arch, machine.arch)
    labels = {"kubernetes.io/arch": arch, "kubernetes.io/os": "linux", "kubernetes.io/hostname": name}
    return {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "metadata": {"name": name, "labels": labels},
        "spec": {},
    }


def node_status(name: str, machine: Machine, runtime_version: str, boot_id: str, now: str) -> JsonObject:
    """Returns the status that the kubelet reports."""
    resources = {"cpu": str(len(machine.online)), "memory": "64Gi", "pods": "110"}
    healthy = ("MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = [
        _condition(kind, "False", f"KubeletHasNo{kind}", "the simulated node has enough", now) for kind in healthy
    ]
    conditions.append(_condition("Ready", "True", "KubeletReady", "the simulated kubelet is posting ready status", now))
    return {
        "capacity": resources,
        "allocatable": resources,
        "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": address_of(name, 0)},
            {"type": "Hostname", "address": name},
        ],
        "nodeInfo": {
            "machineID": name,
            "systemUUID": name,
            "bootID": boot_id,
            "kernelVersion": "6.12.0-sandbox",
            "osImage": "simulated by dracpu-sandbox",
            "containerRuntimeVersion": runtime_version,
            "kubeletVersion": KUBELET_VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": _ARCHITECTURES.get(machine.arch, machine.arch),
        },
    }


def _condition(kind: str, status: str, reason: str, message: str, now: str) -> JsonObject:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
