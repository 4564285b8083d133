"""Decides whether the resources of a pod with claims of hugepages can be changed while it runs."""

from collections.abc import Mapping

from dracpu_agent.memory.kinds import Kind
from dracpu_api.quantity import format_binary


def problem_of_resize(untouched: Mapping[int, int] | None) -> str:
    """Why the kubelet must not resize a pod now, "" if it may. `untouched` are the bytes of hugepages that processes of
    the pod have reserved and not touched, by the size of the pages; None: not known.

    The kubelet writes 0 as the limit of the pages with every resize. Pages in use stay, as the kernel refuses a limit
    below what is in use. Pages that are only reserved are not in use, so their process is killed when it touches them
    before the agent has repaired the limit.
    """
    if untouched is None:
        return (
            "the resources of the pod stay as they are: it could not be read in time whether its processes have "
            "reserved hugepages; the kubelet retries"
        )
    sizes = [f"{format_binary(size)} of {Kind(page)}" for page, size in sorted(untouched.items()) if size > 0]
    if not sizes:
        return ""
    return (
        f"the resources of the pod stay as they are: its processes have reserved {' and '.join(sizes)} that they have "
        "not touched, and a resize could end them with SIGBUS: let the program touch these pages (MAP_POPULATE does), "
        "or set the former resources again; the kubelet retries"
    )
