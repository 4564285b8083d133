"""The emulated nodes: starting one, and a root shell in it."""

from dataclasses import dataclass
from typing import Final

from lab.disk import disk_image
from lab.errors import CommandFailedError, LabError, NotBuiltError
from lab.host import run
from lab.kernel import BUSYBOX, initrd, kernel_image
from lab.network import inside, node_address, node_number, pod_range
from lab.paths import Paths
from lab.pki import HOST_ADDRESS
from lab.processes import spawn

SHELL_PORT: Final = "2323"
_END: Final = "__end_of_output__"


@dataclass(frozen=True, slots=True)
class Machine:
    """What a node looks like to its kernel."""

    sockets: int = 2
    cores: int = 2  # of a socket
    threads: int = 2  # of a core
    numa_nodes: int = 2
    memory_mib: int = 3072
    append: str = ""  # added to the kernel's command line
    feature_gates: str = ""  # of the kubelet

    @property
    def cpus(self) -> int:
        """All logical CPUs."""
        return self.sockets * self.cores * self.threads

    def validate(self) -> None:
        """Refuses what QEMU would refuse in a log file."""
        if min(self.sockets, self.cores, self.threads, self.numa_nodes) < 1 or self.cpus % self.numa_nodes:
            raise LabError(f"{self.cpus} CPUs cannot be spread over {self.numa_nodes} NUMA nodes evenly")

    def options(self) -> list[str]:
        """QEMU's description of it: NUMA node n has the n-th share of the CPUs, in their order."""
        share, memory = self.cpus // self.numa_nodes, self.memory_mib // self.numa_nodes
        shape = f"{self.cpus},sockets={self.sockets},cores={self.cores},threads={self.threads}"
        options = ["-smp", shape, "-m", f"{memory * self.numa_nodes}M"]
        for number in range(self.numa_nodes):
            cpus = f"{number * share}-{(number + 1) * share - 1}"
            options += ["-object", f"memory-backend-ram,id=memory{number},size={memory}M"]
            options += ["-numa", f"node,nodeid={number},cpus={cpus},memdev=memory{number}"]
        return options


def start_node(paths: Paths, node: str, machine: Machine, *, fresh_disk: bool) -> None:
    """Powers a node on, with a new disk or with the one that it had."""
    machine.validate()
    disk = paths.machine / f"{node}.img"
    if fresh_disk:
        if not disk_image(paths).exists():
            raise NotBuiltError("the nodes have no disk: run `python -m lab build`")
        run("cp", "--sparse=always", disk_image(paths), disk)
    number = node_number(node)
    words = {
        "console": "ttyS0",
        "panic": "-1",
        "mitigations": "off",  # emulation is slow enough
        "node": node,
        "address": node_address(number),
        "gateway": HOST_ADDRESS,
        "pods": pod_range(number),
    }
    if machine.feature_gates:
        words["gates"] = machine.feature_gates
    line = " ".join([*(f"{name}={value}" for name, value in words.items()), "quiet", machine.append]).strip()
    network = f"tap,id=net,ifname=tap{number},script=no,downscript=no"
    spawn(
        paths,
        node,
        *("qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "Skylake-Server"),
        *machine.options(),
        *("-kernel", kernel_image(paths), "-initrd", initrd(paths), "-append", line),
        *("-drive", f"file={disk},if=virtio,format=raw,cache=unsafe"),
        *("-netdev", network, "-device", f"virtio-net-pci,netdev=net,mac=52:54:00:00:00:1{number}"),
        *("-display", "none", "-serial", f"file:{paths.logs}/{node}.console", "-monitor", "none", "-no-reboot"),
    )


def node_shell(paths: Paths, node: str, line: str, timeout: float = 60) -> str:
    """Runs a line in the node's root shell and returns what it printed to both its outputs."""
    script = f"exec 2>&1\n{line}\necho {_END}$?\nexit\n"
    command = inside(paths, BUSYBOX, "nc", node_address(node_number(node)), SHELL_PORT)
    printed, mark, code = run(*command, text=script, timeout=timeout).rpartition(_END)
    if not mark:
        raise LabError(f"{node} did not finish `{line}`: it printed {code!r}")
    if int(code):
        raise CommandFailedError(f"{node}: {line}", int(code), printed)
    return printed
