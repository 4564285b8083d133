"""Reads and operates a node, through its objects in the API and through a root shell on it."""

import secrets
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lab.disk import Init
from newer_agent import body_of, rewritten

from dracpu_api.cpuset import CpuSet
from harness.kubectl import Kubectl, condition
from harness.manifests import Object
from harness.release import NAMESPACE

CONDITIONS: Final = ("ConfigApplied", "KubeletRegistered", "RuntimeConnected", "SlicesPublished", "StateHealthy")
CHECKPOINT: Final = "/var/lib/dracpu/checkpoint.json"
MANIFESTS: Final = "/etc/kubernetes/manifests"  # static pods, which the kubelet runs even without the API server


@dataclass(frozen=True, slots=True)
class Node:
    """One emulated node of 2 sockets, 2 NUMA nodes, 4 cores and 8 CPUs."""

    kubectl: Kubectl
    name: str

    # ---- through the API

    def cpu_node(self) -> Object:
        """Returns the current state of the node's CpuNode."""
        return self.kubectl.get("cpunode", self.name)

    def agent_pod(self) -> Object:
        """Returns the agent's pod on the node."""
        return self.kubectl.pod_of("agent", NAMESPACE, self.name)

    def slices(self) -> list[Object]:
        """Returns the ResourceSlices of the node."""
        return self.kubectl.list("resourceslices", "", "--field-selector", f"spec.nodeName={self.name}")

    def devices(self) -> dict[str, Object]:
        """Returns the published devices by name."""
        return {device["name"]: device for item in self.slices() for device in item["spec"].get("devices") or []}

    def assert_ready(self) -> None:
        """Asserts that the agent is Ready and that the CpuNode reports the current revision as applied."""
        assert condition(self.agent_pod(), "Ready") == "True", f"the agent's pod on {self.name} is not Ready"
        item = self.cpu_node()
        status = item.get("status", {})
        conditions = {kind: condition(item, kind) for kind in CONDITIONS}
        assert set(conditions.values()) == {"True"}, f"{self.name}: {conditions}: {status.get('conditions')}"
        applied, revision = status.get("appliedRevision"), item["spec"]["revision"]
        assert applied == revision, f"{self.name}: revision {applied!r} is applied, not {revision!r}"
        assert status.get("phase") == "Ready", f"{self.name}: the phase is {status.get('phase')}"

    # ---- through the root shell

    def sh(self, line: str, timeout: float = 60) -> str:
        """Runs a line as root and returns its output; raises a CommandFailedError when it fails."""
        return self.kubectl.lab.sh(self.name, line, timeout)

    def all_cpus(self, container: str) -> set[CpuSet]:
        """Returns the CPUs in both files of a container's cgroup and those of each of its threads: all should agree."""
        files = "cpuset.cpus cpuset.cpus.effective"
        threads = "$(sed 's#.*#/proc/&/status#' cgroup.threads)"
        printed = self.sh(f"cd $({_find_cgroup(container)}) && cat {files} && grep -h Cpus_allowed_list {threads}")
        return {CpuSet.parse(line.rpartition(":")[2]) for line in printed.splitlines()}

    def cgroup_cpus(self, container: str) -> tuple[CpuSet, CpuSet]:
        """Returns the CPUs that were written to a container's cgroup, and those that the kernel lets it use.

        `container` is the id from the pod's status, like containerd://0123.
        """
        printed = self.sh(f"cd $({_find_cgroup(container)}) && cat cpuset.cpus cpuset.cpus.effective")
        written, effective = printed.splitlines()
        return CpuSet.parse(written), CpuSet.parse(effective)

    def cgroup_file(self, container: str, file: str) -> str:
        """Returns the text of a file in a container's cgroup."""
        return self.sh(f"cat $({_find_cgroup(container)})/{file}").strip()

    def write_cgroup(self, container: str, file: str, text: str) -> None:
        """Writes a file of a container's cgroup, as nobody but the runtime should."""
        self.sh(f"echo {text} > $({_find_cgroup(container)})/{file}")

    def kill_container(self, container: str) -> None:
        """Kills every process of a container with SIGKILL, as the kernel does when memory runs out."""
        self.sh(f"kill -9 $(cat $({_find_cgroup(container)})/cgroup.procs)")

    def replace_agent_by_older(self, change: Callable[[Object], None]) -> None:
        """Changes the agent's checkpoint, as if a newer agent had written it, and kills the agent.

        The kubelet starts it again. The file is replaced at once after the kill, before another agent can read it.
        """
        (agent,) = self.agent_pod()["status"]["containerStatuses"]
        edited = f"{CHECKPOINT}.edited"
        written = rewritten(self.sh(f"cat {CHECKPOINT}").encode(), change).decode()
        processes = f"$(cat $({_find_cgroup(agent['containerID'])})/cgroup.procs)"
        self.sh(f"printf %s {shlex.quote(written)} > {edited}\nkill -9 {processes} && mv {edited} {CHECKPOINT}")

    def checkpoint(self) -> Object:
        """Returns the content of the agent's checkpoint."""
        return body_of(self.sh(f"cat {CHECKPOINT}").encode())

    def running_container(self, name: str, pod: str = "") -> str:
        """Returns the id of the only running container with this name. Reads it from the runtime, not from the API."""
        wanted = {"container.name": name, **({"pod.name": pod} if pod else {})}
        label = ",".join(f'labels."io.kubernetes.{key}"=={value}' for key, value in wanted.items())
        with_name = self._ctr("containers", "list", "--quiet", label).split()
        running = [line.split()[0] for line in self._ctr("tasks", "list").splitlines() if line.endswith("RUNNING")]
        ids = sorted({*with_name} & {*running})
        assert len(ids) == 1, f"{len(ids)} containers with the name {name} run on {self.name}, not one"
        return ids[0]

    def execute(self, container: str, *words: str) -> str:
        """Runs a command in a container, which is given by its id in the runtime, and returns its output."""
        return self._ctr("tasks", "exec", "--exec-id", secrets.token_hex(8), container, *words)

    def first_line(self, namespace: str, pod: str, instance: int = 0, container: str = "main") -> str:
        """Returns the first line of a container's log after its start, or after its restart number `instance`."""
        printed = self.sh(f"head -n 1 /var/log/pods/{namespace}_{pod}_*/{container}/{instance}.log")
        assert printed, f"the log of {pod}/{container} is still empty"
        return printed.split(" ", 3)[3]  # the runtime writes time, stream and tag before each line

    def restart(self) -> None:
        """Cuts the node's power and boots it again from its disk."""
        self.kubectl.lab.restart_node(self.name)

    @property
    def has_systemd(self) -> bool:
        """Returns whether systemd is the node's first process; otherwise a shell script of the lab is."""
        return self.kubectl.lab.init(self.name) is Init.SYSTEMD

    def restart_containerd(self) -> None:
        """Restarts containerd and returns when it serves."""
        self._restart("containerd")
        self.sh("until ctr version > /dev/null; do sleep 0.2; done")

    def restart_kubelet(self) -> None:
        """Restarts the kubelet and returns when its new process runs."""
        self._restart("kubelet")

    def _ctr(self, *words: str) -> str:
        command = shlex.join(["ctr", "--namespace", "k8s.io", *words])
        return self.sh(f"{command} < /dev/null", timeout=90)  # otherwise ctr reads the shell's remaining input

    def _restart(self, daemon: str) -> None:
        """Restarts a daemon as an administrator would, and returns when a new process with its name runs."""
        if self.has_systemd:
            self.sh(f"systemctl restart {daemon}")
            return
        before = f"pid=$(pidof {daemon}) && kill $pid"  # the node starts it again
        after = f"until new=$(pidof {daemon}) && [ $new != $pid ]; do sleep 0.2; done"
        self.sh(f"{before} && {after}")


def _find_cgroup(container: str) -> str:
    """Returns the command that prints the folder of a container's cgroup, with either cgroup driver of the kubelet.

    Its errors are dropped: they name folders of other containers, which ended meanwhile.
    """
    name = container.removeprefix("containerd://")
    names = rf"\( -name {name} -o -name cri-containerd-{name}.scope \)"
    return f"find /sys/fs/cgroup/kubepods* -type d {names} 2> /dev/null"
