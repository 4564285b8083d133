"""A namespace of one test, with the questions that tests ask about its pods and claims."""

from dataclasses import dataclass, replace

from dracpu_api.cpuset import CpuSet, union
from dracpu_api.names import DRIVER
from harness.kubectl import Kubectl
from harness.manifests import Object
from harness.node import Node
from harness.waiting import eventually


@dataclass(frozen=True, slots=True)
class Workspace:
    """One namespace, whose pods run on one node."""

    kubectl: Kubectl
    node: Node
    namespace: str

    def on(self, node: Node) -> "Workspace":
        """The same namespace, for pods on another node."""
        return replace(self, node=node)

    def apply(self, *objects: Object) -> None:
        """Creates or changes objects in the namespace; pods that do not say where to run run on the node."""
        self.kubectl.apply(*map(self._placed, objects), namespace=self.namespace)

    def run(self, *pods: Object) -> None:
        """Creates pods and waits until all their containers run."""
        self.apply(*pods)
        for pod in pods:
            self.kubectl.wait("condition=Ready", f"pod/{pod['metadata']['name']}", self.namespace, timeout=120)

    def pod(self, name: str) -> Object:
        """A pod as it is now."""
        return self.kubectl.get("pod", name, self.namespace)

    def claim(self, name: str) -> Object:
        """A ResourceClaim as it is now."""
        return self.kubectl.get("resourceclaim", name, self.namespace)

    def delete_pods(self, *names: str) -> None:
        """Deletes pods and waits until they are gone: then their claims are unprepared, too."""
        self.kubectl.delete("pod", *names, namespace=self.namespace)

    def execute(self, pod: str, container: str, *words: str) -> str:
        """What a command prints in a container."""
        return self.kubectl.run("exec", pod, "--namespace", self.namespace, "--container", container, "--", *words)

    def cpus(self, pod: str, container: str = "main") -> CpuSet:
        """The CPUs that a container runs on: its process, a new process in it and its cgroup must agree."""
        status = self.execute(pod, container, "grep", "-h", "Cpus_allowed_list", "/proc/1/status", "/proc/self/status")
        first, new = (CpuSet.parse(line.split(":")[1]) for line in status.splitlines())
        written, effective = self.node.cgroup_cpus(self.container_id(pod, container))
        assert first == new == written == effective, (
            f"{pod}/{container} is not of one mind: process 1 may run on {first}, a new process on {new}, "
            f"its cgroup says {written or 'nothing'} and the kernel makes {effective} of it"
        )
        return first

    def cpus_at_start(self, pod: str, container: str = "main") -> CpuSet:
        """The CPUs that the container's first process had when it began, from its log."""
        log = self.kubectl.run("logs", pod, "--namespace", self.namespace, "--container", container)
        return CpuSet.parse(log.splitlines()[0].split(":")[1])

    def cpus_at_first(self, pod: str, instance: int) -> CpuSet:
        """The same of a pod's main container that was started again `instance` times, without the API server."""
        return CpuSet.parse(self.node.first_line(self.namespace, pod, instance).split(":")[1])

    def environment(self, pod: str, container: str = "main") -> dict[str, str]:
        """The environment of a container, not seen through a shell: that leaves out names with a dash, as ours have."""
        lines = self.execute(pod, container, "env").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def container_id(self, pod: str, container: str = "main") -> str:
        """The id of the container that runs now."""
        return str(self.container_status(pod, container)["containerID"])

    def container_status(self, pod: str, container: str = "main") -> Object:
        """What the kubelet says of a container."""
        statuses: list[Object] = self.pod(pod)["status"].get("containerStatuses", [])
        found = [status for status in statuses if status["name"] == container]
        assert found, f"the kubelet says nothing of {pod}/{container} yet"
        return found[0]

    def allocated_devices(self, claim: str) -> list[tuple[str, str]]:
        """Request and device of each result of our driver, as the scheduler decided."""
        results = self.claim(claim)["status"]["allocation"]["devices"]["results"]
        return [(result["request"], result["device"]) for result in results if result["driver"] == DRIVER]

    def published_cpus(self, claim: str) -> CpuSet:
        """The CPUs in the claim's device status, which owners of applications read. Written soon after Prepare."""

        def published() -> CpuSet:
            status = self.claim(claim)["status"]
            entries = [device for device in status.get("devices", []) if device["driver"] == DRIVER]
            assert len(entries) == len(self.allocated_devices(claim)), f"{claim} has the device status {entries}"
            return union(CpuSet.parse(entry["data"]["cpuset"]) for entry in entries)

        return eventually(published, within=30)

    def _placed(self, item: Object) -> Object:
        """By a nodeSelector: a pod with claims has to pass through the scheduler."""
        if item["kind"] != "Pod" or "nodeSelector" in item["spec"]:
            return item
        return {**item, "spec": {**item["spec"], "nodeSelector": {"kubernetes.io/hostname": self.node.name}}}
