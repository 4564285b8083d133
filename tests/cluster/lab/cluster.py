"""The operations of the lab for people and tests: build it, start a cluster, use the cluster, stop it."""

import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from lab import processes
from lab.controlplane import API_SERVER, helm, kubectl, kubectl_command, start_api_server, start_control_plane
from lab.disk import Init, disk_recipe, make_disks
from lab.errors import LabError, NotBuiltError
from lab.host import file_lock, report, run, timed, wait_until, write_whole
from lab.images import base_image, build_image, busybox_archive
from lab.kernel import fetch_kernel, make_initrd
from lab.network import make_network, network_command, remove_network
from lab.nodes import Machine, node_shell, start_node
from lab.paths import Paths
from lab.pki import MAX_NODES, make_pki
from lab.processes import running
from lab.programs import build_programs
from lab.setup import check_machine, install_packages
from lab.systemd import fetch_systemd
from lab.versions import Versions

CONTROL_PLANE: Final = ("etcd", API_SERVER, "controllers", "scheduler")


@dataclass(frozen=True, slots=True)
class Lab:
    """One lab. A lock lets only one command at a time change it."""

    paths: Paths

    @classmethod
    def of_cluster(cls, paths: Paths) -> "Lab":
        """Returns the lab with the versions of the cluster that was started last, if there was one."""
        file = _versions_file(paths)
        if not file.exists():
            return cls(paths)
        return cls(replace(paths, versions=Versions(**json.loads(file.read_text()))))

    def build(self) -> None:
        """Builds everything that is missing or outdated; takes seconds when nothing is."""
        check_machine()
        with file_lock(self._lock):
            with timed("packages"):
                install_packages()
            with timed("programs"):
                build_programs(self.paths)
            with timed("kernel, certificates, systemd, base image"):
                fetch_kernel(self.paths)
                make_pki(self.paths)
                self.paths.machine.mkdir(exist_ok=True)
                make_initrd(self.paths)
                fetch_systemd(self.paths)
                base_image(self.paths)

    def image(self, dockerfile: Path, tag: str, archive: Path, context: Path, arguments: dict[str, str]) -> str:
        """Builds a Dockerfile into an archive; returns the image's id."""
        with file_lock(self._lock):
            return build_image(self.paths, dockerfile, tag, archive, context, arguments)

    def up(self, nodes: int, machine: Machine, images: Sequence[Path] = ()) -> None:
        """Starts a cluster with an empty etcd and new nodes that have these images; returns when they are Ready."""
        if not 1 <= nodes <= MAX_NODES:
            raise LabError(f"the lab can run 1 to {MAX_NODES} nodes, not {nodes}: choose a number in this range")
        if not self.paths.bin.exists():
            raise NotBuiltError(f"{self.paths.bin} is missing: run `python -m lab build` with the same versions")
        contents = [busybox_archive(self.paths), *images]
        with file_lock(self._lock):
            if processes.names(self.paths):
                raise LabError("the previous cluster of this lab was not stopped: run `python -m lab down` first")
            names = [f"vm{number}" for number in range(1, nodes + 1)]
            inits = [machine.init(name) for name in names]
            with timed("the nodes' disks"):
                make_disks(self.paths, sorted(set(inits)), contents)
            self._disk_file.unlink(missing_ok=True)
            try:
                make_network(self.paths, nodes)
                start_control_plane(self.paths, machine.feature_gates)
                write_whole(self._machine_file, json.dumps(asdict(machine)))
                write_whole(_versions_file(self.paths), json.dumps(asdict(self.paths.versions)))
                for name in names:
                    start_node(self.paths, name, machine, fresh_disk=True)
                look = f"{self.paths.logs} and `python -m lab sh vm1 tail /var/log/kubelet.log`"
                wait_until(f"{nodes} Ready node(s)", lambda: self._ready_nodes() == nodes, 120 + 60 * nodes, look=look)
            except BaseException:
                if not os.environ.get("LAB_KEEP"):
                    self._stop()
                raise
            write_whole(self._disk_file, self._recipes(inits, contents))

    def down(self) -> None:
        """Stops all processes that this lab started and removes its network."""
        with file_lock(self._lock):
            self._stop()

    def is_up(self) -> bool:
        """Returns True when every component of the control plane is running."""
        return all(running(self.paths, name) for name in CONTROL_PLANE)

    def is_up_with(self, images: Sequence[Path]) -> bool:
        """Returns True when a cluster is running and a new one with these images would boot from equal disks."""
        if not (self.is_up() and self._disk_file.exists()):
            return False
        inits = [self.init(node) for node in self.nodes()]
        return self._disk_file.read_text() == self._recipes(inits, [busybox_archive(self.paths), *images])

    def nodes(self) -> list[str]:
        """Returns the names of the nodes that were started."""
        return [name for name in processes.names(self.paths) if name.startswith("vm")]

    def init(self, node: str) -> Init:
        """Returns the init system of a node that was started."""
        return self._machine().init(node)

    def kubectl(self, *arguments: str, text: str | None = None, timeout: float = 60) -> str:
        """Runs kubectl as the administrator."""
        return kubectl(self.paths, *arguments, text=text, timeout=timeout)

    def kubectl_command(self, *arguments: str) -> list[str]:
        """Returns the command line of a kubectl that keeps running, like a watch; the caller starts and ends it."""
        return kubectl_command(self.paths, *arguments)

    def helm(self, *arguments: str, timeout: float = 60) -> str:
        """Runs helm as the administrator."""
        return helm(self.paths, *arguments, timeout=timeout)

    def sh(self, node: str, line: str, timeout: float = 60) -> str:
        """Runs a line in a node's root shell."""
        return node_shell(self.paths, node, line, timeout)

    def restart_node(self, node: str) -> None:
        """Cuts a node's power and boots it again from its disk."""
        with file_lock(self._lock):
            if node not in self.nodes():
                started = ", ".join(self.nodes())
                remedy = f"choose from {started}" if started else "start a cluster with `python -m lab up`"
                raise LabError(f"there is no node {node}: {remedy}")
            processes.stop(self.paths, [node])
            start_node(self.paths, node, self._machine(), fresh_disk=False)

    def stop_api_server(self) -> None:
        """Stops the API server; connections to its address are refused from then on."""
        with file_lock(self._lock):
            processes.stop(self.paths, [API_SERVER])

    def start_api_server(self) -> None:
        """Starts the API server again on the etcd that kept running; returns when it serves."""
        with file_lock(self._lock):
            start_api_server(self.paths, self._machine().feature_gates, again=True)

    def run(self, command: Sequence[str]) -> int:
        """Runs a command in the lab's network with KUBECONFIG set and the lab's programs on PATH; returns its code."""
        if not self.paths.kubeconfig.exists():
            raise NotBuiltError("the lab is not built: run `python -m lab build`")
        environment = {**os.environ, **self._environment(self.paths.kubeconfig)}
        return subprocess.run(network_command(self.paths, *command), env=environment, check=False).returncode

    def script(self, lines: str, directory: Path, kubeconfig: Path) -> str:
        """Runs lines of shell in the lab's network, with its programs on PATH; returns what they print."""
        environment = (f"{name}={value}" for name, value in self._environment(kubeconfig).items())
        words = ("env", f"--chdir={directory}", *environment, "bash", "-euc", lines)
        return run(*network_command(self.paths, *words), timeout=300)

    def _environment(self, kubeconfig: Path) -> dict[str, str]:
        return {"KUBECONFIG": str(kubeconfig), "PATH": f"{self.paths.bin}:{os.environ['PATH']}"}

    def _machine(self) -> Machine:
        return Machine.decode(json.loads(self._machine_file.read_text()))

    def _recipes(self, inits: Iterable[Init], images: Sequence[Path]) -> str:
        return "\n".join(disk_recipe(self.paths, init, images) for init in inits)

    def _ready_nodes(self) -> int:
        condition = "{.items[*].status.conditions[?(@.type=='Ready')].status}"
        return self.kubectl("get", "nodes", "-o", f"jsonpath={condition}").split().count("True")

    def _stop(self) -> None:
        names = processes.names(self.paths)
        if names:
            report(f"stopping {' '.join(names)}")
        processes.stop(self.paths, names)
        remove_network(self.paths)

    @property
    def _lock(self) -> Path:
        return self.paths.root / "lock"

    @property
    def _disk_file(self) -> Path:
        return self.paths.root / "disk-of-cluster"

    @property
    def _machine_file(self) -> Path:
        return self.paths.root / "machine.json"


def _versions_file(paths: Paths) -> Path:
    return paths.root / "versions.json"
