"""Requests of memory and hugepages, and the program that takes them inside of containers."""

import base64
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lab.host import run

from harness.manifests import Object
from harness.node import Node
from harness.workspace import Workspace

MI: Final = 1024**2
GI: Final = 1024**3
SOURCE: Final = Path(__file__).with_name("taker.go")
TOOLS: Final = "/run/tools"  # on the node, and in containers
CLASSES: Final[Mapping[str, str]] = {"memory": "dra.memory", "2Mi": "dra.hugepages-2m", "1Gi": "dra.hugepages-1g"}
SIZES: Final[Mapping[str, int]] = {"2Mi": 2 * MI, "1Gi": GI}


def amount(kind: str, size: str, request: str = "", selector: str = "") -> Object:
    """Builds a request for an amount of "memory", or of hugepages of the size "2Mi" or "1Gi"."""
    exactly: Object = {"deviceClassName": CLASSES[kind], "capacity": {"requests": {"size": size}}}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": request or f"{'pages-' if kind in SIZES else ''}{kind.lower()}", "exactly": exactly}


def on_one_numa_node(claim: Object) -> Object:
    """Adds the constraint that all devices of a claim are on the same NUMA node."""
    constraint = {"matchAttribute": "resource.kubernetes.io/numaNode"}
    devices = {**claim["spec"]["devices"], "constraints": [constraint]}
    return {**claim, "spec": {**claim["spec"], "devices": devices}}


def with_tools(pod: Object) -> Object:
    """Mounts the folder with the program into all containers of a pod."""
    mount = {"name": "tools", "mountPath": TOOLS, "readOnly": True}
    spec = dict(pod["spec"])
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [{**container, "volumeMounts": [mount]} for container in spec[field]]
    volume = {"name": "tools", "hostPath": {"path": TOOLS}}
    return {**pod, "spec": {**spec, "volumes": [volume]}}


def install_tools(node: Node) -> None:
    """Puts the program onto a node."""
    target = node.kubectl.lab.paths.machine / "taker"
    target.parent.mkdir(parents=True, exist_ok=True)
    run("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", target, SOURCE, env={"CGO_ENABLED": "0"})
    encoded = base64.encodebytes(gzip.compress(target.read_bytes())).decode()
    program = f"{TOOLS}/taker"
    node.sh(f"mkdir -p {TOOLS}\nbase64 -d << end | gunzip > {program}.new\n{encoded}end\nchmod +x {program}.new")
    node.sh(f"mv {program}.new {program}")


def command(kind: str, size: int, *options: str) -> list[str]:
    """The words that take memory of this kind."""
    what = ["pages", str(SIZES[kind])] if kind in SIZES else ["memory"]
    return [f"{TOOLS}/taker", *options, *what, str(size)]


def take(workspace: Workspace, pod: str, kind: str, size: int, container: str = "main") -> Any:
    """Takes memory inside of a container and gives it back; returns the bytes by NUMA node, or the error's name."""
    shown = json.loads(workspace.execute(pod, container, *command(kind, size)))
    return shown.get("error") or {int(node): taken for node, taken in shown["nodes"].items()}


def pod_folder(workspace: Workspace, pod: str) -> str:
    """Returns the folder of a pod's cgroup."""
    uid = workspace.pod(pod)["metadata"]["uid"]
    names = f"-name pod{uid} -o -name '*-pod{uid.replace('-', '_')}.slice'"
    return workspace.node.sh(f"find /sys/fs/cgroup -type d \\( {names} \\) | head -n 1").strip()


def pod_limits(workspace: Workspace, pod: str) -> dict[str, str]:
    """Returns the limits of hugepages in the cgroup of a pod, by the names of the files."""
    printed = workspace.node.sh(
        f"cd {pod_folder(workspace, pod)} && "
        "grep . hugetlb.2MB.max hugetlb.2MB.rsvd.max hugetlb.1GB.max hugetlb.1GB.rsvd.max"
    )
    return dict(line.split(":", 1) for line in printed.splitlines())


def container_file(workspace: Workspace, pod: str, file: str, container: str = "main") -> str:
    """Returns the text of a file in the cgroup of a container."""
    return workspace.node.cgroup_file(workspace.container_id(pod, container), file)


def resize(space: Workspace, **resources: dict[str, str]) -> None:
    """Changes the resources of the container of the pod `user` in place."""
    patch = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    words = ("patch", "pod", "user", "--subresource=resize", "--patch", json.dumps(patch))
    space.kubectl.run(*words, "--namespace", space.namespace)


def assert_resized(space: Workspace) -> None:
    """Asserts that the container of the pod `user` has the resources in the pod's spec."""
    found = space.pod("user")
    wanted = found["spec"]["containers"][0]["resources"]
    actual = space.container_status("user")["resources"]
    kinds = ("requests", "limits")
    assert {kind: wanted.get(kind) for kind in kinds} == {kind: actual.get(kind) for kind in kinds}
    _assert_none_resizing(found)


def assert_resize_done(space: Workspace) -> None:
    """Asserts that the kubelet has carried out all resizes of the pod `user`. The status of a container whose claim is
    smaller than its limit shows the claim instead of the limit."""
    found = space.pod("user")
    assert found["status"].get("observedGeneration") == found["metadata"]["generation"]
    _assert_none_resizing(found)


def _assert_none_resizing(found: Object) -> None:
    resizing = [item for item in found["status"]["conditions"] if item["type"].startswith("PodResize")]
    assert not resizing, resizing
