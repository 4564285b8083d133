"""A node: what the API server knows of it, and from inside its cgroups, processes and daemons through a root shell."""

import secrets
import shlex
from dataclasses import dataclass
from typing import Final

from dracpu_api.cpuset import CpuSet
from harness.kubectl import Kubectl, condition
from harness.manifests import Object
from harness.release import NAMESPACE

CONDITIONS: Final = ("ConfigApplied", "KubeletRegistered", "RuntimeConnected", "SlicesPublished", "StateHealthy")
MANIFESTS: Final = "/etc/kubernetes/manifests"  # the kubelet runs what lies there, API server or not


@dataclass(frozen=True, slots=True)
class Node:
    """One emulated node of 2 sockets, 2 NUMA nodes, 4 cores and 8 CPUs."""

    kubectl: Kubectl
    name: str

    # ---- from outside

    def cpu_node(self) -> Object:
        """The node's CpuNode as it is now."""
        return self.kubectl.get("cpunode", self.name)

    def agent_pod(self) -> Object:
        """The agent's pod on the node."""
        return self.kubectl.pod_of("agent", NAMESPACE, self.name)

    def slices(self) -> list[Object]:
        """The slices of the node."""
        return self.kubectl.list("resourceslices", "", "--field-selector", f"spec.nodeName={self.name}")

    def devices(self) -> dict[str, Object]:
        """Published devices by name."""
        return {device["name"]: device for item in self.slices() for device in item["spec"].get("devices") or []}

    def assert_ready(self) -> None:
        """The agent runs, and the CpuNode says that the node has what it was told."""
        assert condition(self.agent_pod(), "Ready") == "True", f"the agent's pod on {self.name} is not Ready"
        item = self.cpu_node()
        status = item.get("status", {})
        conditions = {kind: condition(item, kind) for kind in CONDITIONS}
        assert set(conditions.values()) == {"True"}, f"{self.name}: {conditions}: {status.get('conditions')}"
        applied, given = status.get("appliedRevision"), item["spec"]["revision"]
        assert applied == given, f"{self.name}: {applied} is applied, not {given}"
        assert status.get("phase") == "Ready", f"{self.name}: the phase is {status.get('phase')}"

    # ---- from inside

    def sh(self, line: str, timeout: float = 60) -> str:
        """Runs a line as root and returns what it printed; raises when it fails."""
        return self.kubectl.lab.sh(self.name, line, timeout)

    def cgroup_cpus(self, container: str) -> tuple[CpuSet, CpuSet]:
        """The CPUs that were written into a container's cgroup, and what the kernel makes of them.

        `container` is the id from the pod's status, like containerd://0123.
        """
        printed = self.sh(f"cd $({_find_cgroup(container)}) && cat cpuset.cpus cpuset.cpus.effective")
        written, effective = printed.splitlines()
        return CpuSet.parse(written), CpuSet.parse(effective)

    def kill_container(self, container: str) -> None:
        """kill -9 of every process of a container, as the kernel does when memory runs out."""
        self.sh(f"kill -9 $(cat $({_find_cgroup(container)})/cgroup.procs)")

    def running_container(self, name: str, pod: str = "") -> str:
        """The id of the one container of this name that runs. Asks the runtime: the API server is not needed."""
        wanted = {"container.name": name, **({"pod.name": pod} if pod else {})}
        label = ",".join(f'labels."io.kubernetes.{key}"=={value}' for key, value in wanted.items())
        known = self._ctr("containers", "list", "--quiet", label).split()
        running = [line.split()[0] for line in self._ctr("tasks", "list").splitlines() if line.endswith("RUNNING")]
        ids = sorted({*known} & {*running})
        assert len(ids) == 1, f"{len(ids)} containers with the name {name} run on {self.name}"
        return ids[0]

    def execute(self, container: str, *words: str) -> str:
        """What a command prints in a container, by its id in the runtime."""
        return self._ctr("tasks", "exec", "--exec-id", secrets.token_hex(8), container, *words)

    def first_line(self, namespace: str, pod: str, instance: int = 0, container: str = "main") -> str:
        """What a container said first when it was started, or for the how manieth time started again."""
        printed = self.sh(f"head -n 1 /var/log/pods/{namespace}_{pod}_*/{container}/{instance}.log")
        assert printed, f"{pod} says nothing yet"
        return printed.split(" ", 3)[3]  # the runtime writes time, stream and tag before each line

    def restart(self) -> None:
        """Pulls the plug and powers the node on again, with the disk that it had."""
        self.kubectl.lab.restart_node(self.name)

    def restart_containerd(self) -> None:
        """Stops containerd; the node starts it again, and it serves."""
        self._restart("containerd")
        self.sh("until ctr version > /dev/null; do sleep 0.2; done")

    def restart_kubelet(self) -> None:
        """Stops the kubelet; the node starts it again."""
        self._restart("kubelet")

    def _ctr(self, *words: str) -> str:
        command = shlex.join(["ctr", "--namespace", "k8s.io", *words])
        return self.sh(f"{command} < /dev/null", timeout=90)  # it would read on where the shell reads

    def _restart(self, daemon: str) -> None:
        """Returns when another process runs under the name."""
        before = f"pid=$(pidof {daemon}) && kill $pid"
        after = f"until new=$(pidof {daemon}) && [ $new != $pid ]; do sleep 0.2; done"
        self.sh(f"{before} && {after}")


def _find_cgroup(container: str) -> str:
    return f"find /sys/fs/cgroup/kubepods -type d -name {container.removeprefix('containerd://')}"
