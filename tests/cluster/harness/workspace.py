"""A namespace of one test, with methods to create and read its pods and claims."""

from dataclasses import dataclass, replace

from dracpu_api.cpuset import CpuSet, union
from dracpu_api.names import DRIVER
from harness.kubectl import Kubectl
from harness.manifests import Object
from harness.node import Node
from harness.waiting import eventually


@dataclass(frozen=True, slots=True)
class Workspace:
    """One namespace whose pods run on one node."""

    kubectl: Kubectl
    node: Node
    namespace: str

    def using_node(self, node: Node) -> "Workspace":
        """Returns a workspace with this namespace whose pods run on another node."""
        return replace(self, node=node)

    def apply(self, *objects: Object) -> None:
        """Creates or changes objects in the namespace; pods without a node selector run on the workspace's node."""
        self.kubectl.apply(*map(self._placed, objects), namespace=self.namespace)

    def run(self, *pods: Object) -> None:
        """Creates pods and waits until they are Ready."""
        self.apply(*pods)
        for pod in pods:
            self.kubectl.wait("condition=Ready", f"pod/{pod['metadata']['name']}", self.namespace, timeout=120)

    def pod(self, name: str) -> Object:
        """Returns the current state of a pod."""
        return self.kubectl.get("pod", name, self.namespace)

    def claim(self, name: str) -> Object:
        """Returns the current state of a ResourceClaim."""
        return self.kubectl.get("resourceclaim", name, self.namespace)

    def delete_pods(self, *names: str) -> None:
        """Deletes pods and waits until they are gone; by then the kubelet has unprepared their claims, too."""
        self.kubectl.delete("pod", *names, namespace=self.namespace)

    def execute(self, pod: str, container: str, *words: str) -> str:
        """Runs a command in a container and returns its output."""
        return self.kubectl.run("exec", pod, "--namespace", self.namespace, "--container", container, "--", *words)

    def cpus(self, pod: str, container: str = "main") -> CpuSet:
        """Returns the CPUs that a container runs on; asserts that process 1, a new process and the cgroup agree."""
        status = self.execute(pod, container, "grep", "-h", "Cpus_allowed_list", "/proc/1/status", "/proc/self/status")
        first, new = (CpuSet.parse(line.split(":")[1]) for line in status.splitlines())
        written, effective = self.node.cgroup_cpus(self.container_id(pod, container))
        assert first == new == written == effective, (
            f"the CPUs of {pod}/{container} differ: process 1 may run on {first}, a new process on {new}, "
            f"its cgroup has cpuset.cpus {str(written) or 'empty'} and cpuset.cpus.effective {effective}"
        )
        return first

    def cpus_at_start(self, pod: str, container: str = "main") -> CpuSet:
        """Returns the CPUs that the container's first process had at its start, from the container's log."""
        log = self.kubectl.run("logs", pod, "--namespace", self.namespace, "--container", container)
        return CpuSet.parse(log.splitlines()[0].split(":")[1])

    def cpus_at_first(self, pod: str, instance: int) -> CpuSet:
        """Returns the CPUs of a pod's main container at the start of restart number `instance`, without the API."""
        return CpuSet.parse(self.node.first_line(self.namespace, pod, instance).split(":")[1])

    def environment(self, pod: str, container: str = "main") -> dict[str, str]:
        """Returns a container's environment. It uses no shell, which would drop names with a dash like the driver's."""
        lines = self.execute(pod, container, "env").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def container_id(self, pod: str, container: str = "main") -> str:
        """Returns the id of the running container."""
        return str(self.container_status(pod, container)["containerID"])

    def container_status(self, pod: str, container: str = "main") -> Object:
        """Returns the status of a container, which the kubelet reports in the pod."""
        statuses: list[Object] = self.pod(pod)["status"].get("containerStatuses", [])
        matching = [status for status in statuses if status["name"] == container]
        assert matching, f"the kubelet has not reported a status of {pod}/{container} yet"
        return matching[0]

    def allocated_devices(self, claim: str) -> list[tuple[str, str]]:
        """Returns request and device of each result of this driver in the claim's allocation."""
        results = self.claim(claim)["status"]["allocation"]["devices"]["results"]
        return [(result["request"], result["device"]) for result in results if result["driver"] == DRIVER]

    def published_cpus(self, claim: str) -> CpuSet:
        """Returns the CPUs in the claim's device status, which the agent writes soon after Prepare."""

        def published() -> CpuSet:
            status = self.claim(claim)["status"]
            entries = [device for device in status.get("devices", []) if device["driver"] == DRIVER]
            assert len(entries) == len(self.allocated_devices(claim)), f"{claim} has the device status {entries}"
            return union(CpuSet.parse(entry["data"]["cpuset"]) for entry in entries)

        return eventually(published, within=30)

    def _placed(self, item: Object) -> Object:
        """Adds a nodeSelector to a pod. It does not set nodeName, because a pod with claims needs the scheduler."""
        if item["kind"] != "Pod" or "nodeSelector" in item["spec"]:
            return item
        return {**item, "spec": {**item["spec"], "nodeSelector": {"kubernetes.io/hostname": self.node.name}}}
