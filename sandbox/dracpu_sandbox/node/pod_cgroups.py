"""The cgroups that the kubelet keeps: of all pods, of the classes of quality of service, and of each pod."""

from collections.abc import Mapping
from typing import Final

from dracpu_api.quantity import format_binary
from dracpu_sandbox.amounts import HUGEPAGES, quality_of_service, requested
from dracpu_sandbox.node.cgroups import PODS, CgroupTree, limit_files, page_name
from dracpu_sandbox.node.containers import PodSandbox
from dracpu_sandbox.node.pod_resources import RESIZABLE, pod_files
from dracpu_sandbox.resources import JsonObject

_CLASSES: Final = (f"{PODS}/burstable", f"{PODS}/besteffort")  # guaranteed pods are directly below PODS
_NO_LIMIT_OF_PAGES: Final = str(1 << 62)


class PodCgroups:
    """The kubelet's part of a node's cgroup tree."""

    def __init__(self, tree: CgroupTree) -> None:
        self._tree = tree

    @property
    def pages(self) -> list[str]:
        """The sizes of hugepages, as the runtime names them."""
        return [page_name(page) for page in self._tree.ram.pages]

    def start(self) -> None:
        """Makes the cgroups of all pods, or sets them right, as the kubelet does at its start."""
        self._tree.make("")
        limit = {"memory.max": str(memory)} if (memory := self._tree.ram.total(self._tree.ram.nodes)) else {}
        self._write(PODS, {**limit, "memory.min": "0", "memory.low": "0"})
        for cgroup, reset in zip(_CLASSES, ({"memory.low": "0"}, {}), strict=True):
            self._write(cgroup, reset)

    def _write(self, cgroup: str, files: Mapping[str, str]) -> None:
        self._tree.make(cgroup)
        pages = {file: _NO_LIMIT_OF_PAGES for page in self._tree.ram.pages for file in limit_files(page)}
        for file, text in {**pages, **files}.items():
            self._tree.write(cgroup, file, text)

    def path_of(self, pod: JsonObject) -> str:
        """Returns the path of a pod's cgroup."""
        quality = quality_of_service(pod["spec"])
        parent = PODS if quality == "Guaranteed" else f"{PODS}/{quality.lower()}"
        return f"{parent}/pod{pod['metadata']['uid']}"

    def make(self, pod: JsonObject) -> str:
        """Makes the cgroup of a pod, whose limits of hugepages are what its spec requests, or 0; returns its path."""
        path = self.path_of(pod)
        if (self._tree.root / path).is_dir():
            return path
        self._tree.make(path)
        wanted = requested(pod)
        files = {file: text for resource in RESIZABLE for file, text in pod_files(pod, resource).items()}
        for page in self._tree.ram.pages:
            limit = str(int(wanted.get(f"{HUGEPAGES}{format_binary(page)}", 0)))
            files |= dict.fromkeys(limit_files(page), limit)
        for file, text in files.items():
            self._tree.write(path, file, text)
        return path

    def resize(self, sandbox: PodSandbox, pod: JsonObject, resource: str) -> None:
        """Writes the cgroup of a pod for a resize; raises CgroupError.

        kubelet: this sets the limits of all hugepages to 0, also those that the spec requests, and fails while pages
        are in use. A retry finds that memory or CPU time are right, and leaves the rest as it is.
        """
        files = pod_files(pod, resource)
        for file, text in files.items():
            self._tree.write(sandbox.cgroup, file, text)
        for page in self._tree.ram.pages:
            for file in limit_files(page):
                self._tree.write(sandbox.cgroup, file, "0")

    def is_resized(self, sandbox: PodSandbox, pod: JsonObject, resource: str) -> bool:
        """Whether the cgroup of a pod has its memory, or its CPU time."""
        return all(self._tree.read(sandbox.cgroup, file) == text for file, text in pod_files(pod, resource).items())

    def remove(self, pod: JsonObject) -> None:
        """Removes the cgroup of a pod that has ended."""
        self._tree.remove(self.path_of(pod))
