"""How much memory the kubelet keeps for the system, and which hugepages it offers, from the Node object."""

from collections.abc import Mapping
from typing import Any, Final

from dracpu_api.quantity import whole_number

_HUGEPAGES: Final = "hugepages-"


def pages_for_pods(node: Mapping[str, Any]) -> dict[int, int]:
    """The hugepages that the kubelet offers to pods, which request them in their spec: size of a page -> bytes."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    sizes = (
        (whole_number(name.removeprefix(_HUGEPAGES)), whole_number(size))
        for name, size in allocatable.items()
        if name.startswith(_HUGEPAGES)
    )
    return {page: size for page, size in sizes if page and size}


def reserved_for_system(node: Mapping[str, Any]) -> int | None:
    """Capacity - allocatable - hugepages of a Node, in bytes: system-reserved, kube-reserved and the threshold of
    eviction. None while the kubelet has not reported its memory."""
    status = node.get("status") or {}
    capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
    there, left = (whole_number(resources.get("memory") or "") for resources in (capacity, allocatable))
    if there is None or left is None:
        return None
    # the kubelet subtracts hugepages from allocatable memory, and not from the capacity
    pages = sum(whole_number(size) or 0 for name, size in capacity.items() if name.startswith(_HUGEPAGES))
    return max(0, there - left - pages)
