"""Starts emulated nodes and runs commands in their root shells."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lab.disk import Init, disk_image
from lab.errors import CommandFailedError, LabError, NotBuiltError
from lab.host import run
from lab.kernel import BUSYBOX, initrd, kernel_image
from lab.network import network_command, node_address, node_number, pod_range
from lab.paths import Paths
from lab.pki import HOST_ADDRESS
from lab.processes import spawn

SHELL_PORT: Final = "2323"
_END: Final = "__end_of_output__"


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware of a node as its kernel sees it, its init system, and options of its kernel and kubelet."""

    sockets: int = 2
    cores: int = 2  # in each socket
    threads: int = 2  # in each core
    numa_nodes: int = 2
    memory_mib: int = 3072
    append: str = ""  # added to the kernel's command line
    feature_gates: str = ""  # of the kubelet
    inits: tuple[Init, ...] = (Init.SYSTEMD, Init.BUSYBOX)  # of vm1, vm2, ...; nodes after the last have the last one

    @classmethod
    def decode(cls, stored: Mapping[str, Any]) -> "Machine":
        """Reads a machine that `asdict` has stored."""
        return cls(**{**stored, "inits": tuple(map(Init, stored["inits"]))})

    def init(self, node: str) -> Init:
        """Returns the init system of a node."""
        return self.inits[min(node_number(node), len(self.inits)) - 1]

    @property
    def cpus(self) -> int:
        """The number of logical CPUs."""
        return self.sockets * self.cores * self.threads

    def validate(self) -> None:
        """Refuses a machine that QEMU would refuse too, but only with a line in a log file."""
        if min(self.sockets, self.cores, self.threads, self.numa_nodes) < 1 or self.cpus % self.numa_nodes:
            numbers = f"{self.sockets} sockets x {self.cores} cores x {self.threads} threads"
            remedy = "every number must be at least 1, and every NUMA node needs the same number of CPUs"
            raise LabError(f"{numbers} cannot be divided into {self.numa_nodes} NUMA nodes: {remedy}")

    def options(self) -> list[str]:
        """Returns the options of QEMU for the machine: NUMA node n has the n-th share of the CPUs, in their order."""
        share, memory = self.cpus // self.numa_nodes, self.memory_mib // self.numa_nodes
        shape = f"{self.cpus},sockets={self.sockets},cores={self.cores},threads={self.threads}"
        options = ["-smp", shape, "-m", f"{memory * self.numa_nodes}M"]
        for number in range(self.numa_nodes):
            cpus = f"{number * share}-{(number + 1) * share - 1}"
            options += ["-object", f"memory-backend-ram,id=memory{number},size={memory}M"]
            options += ["-numa", f"node,nodeid={number},cpus={cpus},memdev=memory{number}"]
        return options


def start_node(paths: Paths, node: str, machine: Machine, *, fresh_disk: bool) -> None:
    """Boots a node from a new disk, or from the disk that it had before."""
    machine.validate()
    disk = paths.machine / f"{node}.img"
    if fresh_disk:
        image = disk_image(paths, machine.init(node))
        if not image.exists():
            raise NotBuiltError("the nodes' disk is missing: run `python -m lab up`, which makes it")
        run("cp", "--sparse=always", image, disk)
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
    """Runs a line in the node's root shell and returns its standard output and standard error."""
    script = f"exec 2>&1\n{line}\necho {_END}$?\nexit\n"
    command = network_command(paths, BUSYBOX, "nc", node_address(node_number(node)), SHELL_PORT)
    printed, mark, code = run(*command, text=script, timeout=timeout).rpartition(_END)
    if not mark:
        look = f"the node may have stopped, see {paths.logs}/{node}.console"
        raise LabError(f"`{line}` did not finish on {node}, after the output {code!r}: {look}")
    if int(code):
        raise CommandFailedError(f"{node}: {line}", int(code), printed)
    return printed
