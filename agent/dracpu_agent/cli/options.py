"""The command line. Options that describe the node can also be set as environment variables, for manifests."""

import argparse
import math
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dracpu_agent.version import __version__
from dracpu_api.command_line import HTTP_ADDRESS, KUBECONFIG, LOG_FORMAT, LOG_LEVEL, Option, add_option
from dracpu_api.cpuset import CpuSet, CpuSetError
from dracpu_api.device_names import group_device
from dracpu_api.errors import DriverError
from dracpu_api.settings import GroupBy, Strategy

PREFIX: Final = "DRACPU_"


class InputError(DriverError):
    """An option or an input that a command cannot use."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `dracpu-agent run`."""

    node_name: str
    kubeconfig: Path | None
    kubelet_root: Path
    sysfs_root: Path
    procfs_root: Path
    cgroupfs_root: Path
    cgroup_root: str
    memory_cgroups: Path | None
    memory_nodes: Path | None
    cdi_dir: Path
    nri_socket: Path
    state_dir: Path
    http_address: str
    status_interval: float
    log_format: str
    log_level: str


def parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """The commands and their options, with defaults from the environment."""
    result = argparse.ArgumentParser(
        prog="dracpu-agent",
        description="The node agent of dra-cpu-operator: exclusive, topology-aware CPUs for pods.",
        epilog=f"Options that show a variable {PREFIX}... can also be set by it. The command line takes precedence.",
    )
    result.add_argument("--version", action="version", version=f"dracpu-agent {__version__}")
    commands = result.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _Command(commands, environment, "run", "serve this node until SIGTERM").add_options(
        Option("--node-name", environment.get("NODE_NAME") or socket.gethostname(), "name of this node's Node object"),
        KUBECONFIG,
        Option("--kubelet-root", "/var/lib/kubelet", "the kubelet's root directory"),
        *_MACHINE,
        Option("--cgroupfs-root", "", "where the cgroup tree is mounted, if not at fs/cgroup below --sysfs-root"),
        Option("--cgroup-root", "", "the kubelet's cgroupRoot; a root of one level is found without this option"),
        Option(
            "--memory-cgroups",
            "",
            "serve memory and hugepages, too; where the cgroup tree is mounted for writing, outside of /sys",
        ),
        Option(
            "--memory-nodes",
            "",
            "make hugepages while the machine runs, if the settings name some; where /sys/devices/system/node is "
            "mounted for writing, outside of /sys",
        ),
        Option("--cdi-dir", "/var/run/cdi", "directory from which the runtime reads CDI files"),
        Option("--nri-socket", "/var/run/nri/nri.sock", "the runtime's NRI socket"),
        _STATE_DIR,
        HTTP_ADDRESS,
        Option("--status-interval", "5", "seconds between two routine writes of the status", _seconds),
        LOG_FORMAT,
        LOG_LEVEL,
    )
    topology = _Command(commands, environment, "topology", "print this machine's topology")
    topology.add_options(*_MACHINE, _STATE_DIR)
    topology.add("--reserved", metavar="CPUS", help="CPUs to mark as reserved; default: those that the agent reserves")
    topology.add_output()
    memory = _Command(commands, environment, "memory", "print this machine's memory and hugepages by NUMA node")
    memory.add_options(*_MACHINE)
    memory.add_output()
    _add_plan(_Command(commands, environment, "plan", "print which CPUs and memory a request would get"))
    state = _Command(commands, environment, "state", "print the claims, CPUs and conditions of this node's agent")
    state.add_options(_STATE_DIR)
    state.add_output()
    return result


def _add_plan(plan: "_Command") -> None:
    plan.describe(
        "Without --cpus, it reads cases from standard input, one JSON object a line, and answers each on a line; "
        "docs/user/which-cpus.md has their fields. With --cpus, --memory or --hugepages, it "
        "answers one question as for a claim."
    )
    plan.add("--topology", metavar="FILE", help="machines, as `topology -o json` prints them; default: this machine")
    plan.add("--bench", metavar="N", type=_at_least_one, default=0, help='add "ns", the time of the fastest of N calls')
    plan.add_options(*_MACHINE)
    plan.add("--cpus", metavar="N", type=int, help="number of CPUs to request")
    plan.add("--machine", metavar="NAME", help="name of the machine in FILE")
    machine = group_device(GroupBy.MACHINE, 0)
    plan.add("--device", help=f"device to allocate from; default: {machine}, all CPUs, or the NUMA node of the memory")
    plan.add("--available", metavar="CPUS", help="CPUs that are free; default: all CPUs")
    plan.add("--reserved", metavar="CPUS", default="", help="CPUs reserved for the system; default: none")
    plan.add("--strategy", choices=tuple(Strategy), default=Strategy.PACKED, help="as in CpuDriverConfig")
    plan.add("--full-cores", action="store_true", help="only whole physical cores")
    plan.add("--prefer-uncore", action=argparse.BooleanOptionalAction, default=True, help="align to L3 caches")
    plan.add("--cpuset", metavar="CPUS", help="request exactly these CPUs")
    plan.add("--memory", metavar="AMOUNT", help='request memory of the same NUMA node, such as "8Gi"')
    plan.add(
        "--hugepages", metavar="SIZE=AMOUNT", action="append", help='request hugepages of it, such as "2Mi=1Gi"; repeat'
    )
    plan.add("--numa", metavar="N", type=int, help="NUMA node of the memory; default: the first one that has all")
    plan.add("--memory-of", metavar="FILE", help="the memory, as `memory -o json` prints it; default: this machine's")


def run_options(parsed: argparse.Namespace) -> RunOptions:
    """The options of `run`."""
    return RunOptions(
        node_name=parsed.node_name,
        kubeconfig=Path(parsed.kubeconfig) if parsed.kubeconfig else None,
        kubelet_root=Path(parsed.kubelet_root),
        sysfs_root=Path(parsed.sysfs_root),
        procfs_root=Path(parsed.procfs_root),
        cgroupfs_root=Path(parsed.cgroupfs_root or f"{parsed.sysfs_root}/fs/cgroup"),
        cgroup_root=parsed.cgroup_root,
        memory_cgroups=Path(parsed.memory_cgroups) if parsed.memory_cgroups else None,
        memory_nodes=Path(parsed.memory_nodes) if parsed.memory_nodes else None,
        cdi_dir=Path(parsed.cdi_dir),
        nri_socket=Path(parsed.nri_socket),
        state_dir=Path(parsed.state_dir),
        http_address=parsed.http_address,
        status_interval=parsed.status_interval,
        log_format=parsed.log_format,
        log_level=parsed.log_level,
    )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the command line; the environment provides the defaults."""
    return parser(os.environ).parse_args(arguments)


def cpuset_of(text: str, name: str) -> CpuSet:
    """Parses the cpuset in the option or field of this name."""
    try:
        return CpuSet.parse(text)
    except CpuSetError as error:
        raise InputError(f"{name}: {error}") from error


_MACHINE: Final = (
    Option("--sysfs-root", "/sys", "where sysfs is mounted"),
    Option("--procfs-root", "/proc", "where procfs is mounted"),
)
_STATE_DIR: Final = Option("--state-dir", "/var/lib/dracpu", "directory of the agent's state")


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{value!r} is not a positive number of seconds")
    return seconds


def _at_least_one(value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number of at least 1")
    return int(value)


class _Command:
    """One command and its options."""

    def __init__(
        self,
        commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
        environment: Mapping[str, str],
        name: str,
        summary: str,
    ) -> None:
        self._environment = environment
        self._parser = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")

    def add_options(self, *options: Option) -> None:
        """Adds options that describe the node: a variable sets each of them, too."""
        for option in options:
            add_option(self._parser, option, prefix=PREFIX, environment=self._environment)

    def describe(self, more: str) -> None:
        self._parser.description = f"{self._parser.description} {more}"

    def add(self, name: str, **arguments: Any) -> None:
        """Adds an option of a single call, which no variable sets."""
        self._parser.add_argument(name, **arguments)

    def add_output(self) -> None:
        self._parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="table or json")
