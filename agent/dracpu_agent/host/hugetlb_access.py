"""Finds out why limits of hugepages, and of memory, cannot be set. The texts name what a person should do."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from dracpu_agent.host.beneath import Directory
from dracpu_agent.host.cgroup_errors import CgroupError, refusal
from dracpu_agent.host.cgroups import qos_cgroups
from dracpu_agent.host.hugetlb import CONTROLLER, limit_file, pages_limited

CONTROLLERS: Final = "cgroup.controllers"  # those that a cgroup has
_PASSED_ON: Final = "cgroup.subtree_control"  # those that a cgroup's children have
_MEMORY: Final = "memory"  # a controller
_MOUNT_IT: Final = "mount the node's cgroup v2 tree there, writable"


def problem_of(mount: Path, pods: Path | None) -> str:
    """Why no limit can be written in the cgroup of all pods, below the mount of the tree; "" if limits can be."""
    try:
        tree = Directory.at(mount)
    except OSError as error:
        return f"{mount}: {error.strerror}: {_MOUNT_IT}"
    with tree:
        try:
            return _problem_in(tree, pods)
        except OSError as error:
            return str(refusal(error, mount, mount))
        except CgroupError as error:
            return str(error)


def memory_problem_of(mount: Path) -> str:
    """Why the kernel limits no memory in the tree that is mounted here; "" if it does, and where nothing is mounted:
    the runtime writes limits of ordinary memory, and does not need the agent's mount."""
    try:
        with Directory.at(mount) as tree:
            controllers = tree.read(CONTROLLERS)
    except (OSError, CgroupError):
        return ""
    if controllers is None:
        return (
            f"{mount} is no cgroup v2 tree, and only cgroup v2 has the limits that claims need: start the node with"
            " cgroup v2 (systemd.unified_cgroup_hierarchy=1 on the kernel's command line), or, if it has, mount its"
            " tree there"
        )
    if _MEMORY not in controllers.split():
        return (
            f"the cgroup v2 tree at {mount} has no {_MEMORY} controller: start the kernel without"
            f" cgroup_disable={_MEMORY}, and mount no cgroup v1 tree that has this controller"
        )
    return ""


def _problem_in(tree: Directory, pods: Path | None) -> str:
    if tree.read(CONTROLLERS) is None:
        return f"{tree.path} is no cgroup v2 tree: {_MOUNT_IT}"
    if pods is None:
        return (
            f"{tree.path} has no cgroup of pods: the kubelet creates it when it starts; if it has started and its"
            " configuration has a cgroupRoot of several levels, set the agent's --cgroup-root to it"
        )
    return next(_without_controller(tree, pods), "") or _not_writable(tree, pods)


def not_passed_on(parent: Path) -> str:
    """The text for a cgroup whose children lack the controller, with a remedy."""
    return (
        f"{parent} does not pass the {CONTROLLER} controller on to the cgroups in it: write +{CONTROLLER} to"
        f" {parent / _PASSED_ON} on the node, or restart the kubelet, which normally does that when it starts"
    )


def _without_controller(tree: Directory, pods: Path) -> Iterator[str]:
    """A problem for each cgroup, from the root of the tree to the parents of pods, that lacks the controller."""
    if CONTROLLER not in _words(tree, tree.path, CONTROLLERS, CONTROLLER):
        yield (
            f"the cgroup v2 tree at {tree.path} has no {CONTROLLER} controller: use a kernel with"
            f" CONFIG_CGROUP_HUGETLB, start it without cgroup_disable={CONTROLLER}, and mount no cgroup v1 tree that"
            " has this controller"
        )
    above = [parent for parent in pods.parents if parent.is_relative_to(tree.path)]
    for parent, inner in pairwise([*reversed(above), pods]):
        if CONTROLLER not in _words(tree, inner, CONTROLLERS, CONTROLLER):
            yield not_passed_on(parent)
    # cgroups within a QoS class are not looked at: the kubelet passes the controller on with the first pod in it
    for qos in qos_cgroups(pods)[1:]:
        if CONTROLLER not in _words(tree, qos, CONTROLLERS, CONTROLLER):
            yield not_passed_on(pods)


def _not_writable(tree: Directory, pods: Path) -> str:
    """Why the limits in the cgroup of all pods, on which the agent depends for those of pods, cannot be opened."""
    cgroup = tree.beneath(pods.relative_to(tree.path).parts)
    if cgroup is None:
        return ""  # it was removed just now; the next look finds that out
    with cgroup:
        for page in pages_limited(cgroup.names()):
            try:
                cgroup.check_writable(limit_file(page))
            except OSError as error:
                return str(refusal(error, pods, tree.path))
    return ""


def _words(tree: Directory, cgroup: Path, name: str, absent: str) -> list[str]:
    """The words of a file; `absent` without it: a QoS class has no cgroup yet, or nothing is known."""
    place = tree.beneath(cgroup.relative_to(tree.path).parts)
    if place is None:
        return [absent]
    with place:
        text = place.read(name)
    return [absent] if text is None else text.split()
