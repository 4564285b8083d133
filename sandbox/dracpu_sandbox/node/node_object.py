"""Builds the Node object that a simulated kubelet registers, without I/O."""

import zlib
from collections import Counter
from typing import Final

from dracpu_api.quantity import format_binary
from dracpu_sandbox.amounts import HUGEPAGES
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.resources import NODES, JsonObject

KUBELET_VERSION: Final = "v1.37.1"
MOST_PODS: Final = 110
EVICTION_BYTES: Final = 100 << 20  # kubelet: memory.available<100Mi, which allocatable memory leaves out
_UNDESCRIBED_BYTES: Final = 64 << 30  # the memory of a machine whose description has none
_KIB: Final = 1024
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


def capacity_of(machine: Machine) -> dict[str, str]:
    """Returns what the kubelet finds on the machine when it starts."""
    memory = sum(bank.kib for bank in machine.memory) * _KIB or _UNDESCRIBED_BYTES
    return {
        "cpu": str(len(machine.online)),
        "memory": f"{memory // _KIB}Ki",
        "pods": str(MOST_PODS),
        **{name: format_binary(size) for name, size in _hugepages(machine).items()},
    }


def allocatable_of(machine: Machine) -> dict[str, str]:
    """Returns what pods may request: hugepages are their own resource, so they are no memory."""
    capacity = capacity_of(machine)
    memory = int(capacity["memory"].removesuffix("Ki")) * _KIB
    rest = max(0, memory - EVICTION_BYTES - sum(_hugepages(machine).values()))
    return {**capacity, "memory": f"{rest // _KIB}Ki"}


def _hugepages(machine: Machine) -> Counter[str]:
    """Returns the bytes of hugepages of each size, by resource; a size without pages is a resource of 0."""
    found: Counter[str] = Counter()
    for bank in machine.memory:
        for kib, count, _, _ in bank.pages:
            found[f"{HUGEPAGES}{format_binary(kib * _KIB)}"] += kib * count * _KIB
    return found


def node_status(name: str, machine: Machine, runtime_version: str, boot_id: str, now: str) -> JsonObject:
    """Returns the status that the kubelet reports."""
    healthy = ("MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = [
        _condition(kind, "False", f"KubeletHasNo{kind}", "the simulated node has enough", now) for kind in healthy
    ]
    conditions.append(_condition("Ready", "True", "KubeletReady", "the simulated kubelet is posting ready status", now))
    return {
        "capacity": capacity_of(machine),
        "allocatable": allocatable_of(machine),
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
