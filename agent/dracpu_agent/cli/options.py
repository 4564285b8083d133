"""The command line: every option is also an environment variable, so that a manifest can set it either way."""

import argparse
import math
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from dracpu_agent.version import __version__
from dracpu_api.device_names import group_device
from dracpu_api.settings import GroupBy, Strategy

PREFIX: Final = "DRACPU_"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What `dracpu-agent run` needs to know."""

    node_name: str
    kubeconfig: Path | None
    kubelet_root: Path
    sysfs_root: Path
    procfs_root: Path
    cdi_dir: Path
    nri_socket: Path
    state_dir: Path
    http_address: str
    status_interval: float
    log_format: str
    log_level: str


def parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """The commands and their options, with defaults from the environment."""
    made = argparse.ArgumentParser(
        prog="dracpu-agent",
        description="The node agent of dra-cpu-operator: exclusive, topology-aware CPUs for pods.",
        epilog=f"An option whose help names a variable {PREFIX}... can also be set by it; the command line wins.",
    )
    made.add_argument("--version", action="version", version=f"dracpu-agent {__version__}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _Command(commands, environment, "run", "serve this node until SIGTERM").with_options(
        ("--node-name", environment.get("NODE_NAME") or socket.gethostname(), "name of this node's Node object"),
        ("--kubeconfig", "", "how to reach the API server; default: the pod's service account"),
        ("--kubelet-root", "/var/lib/kubelet", "the kubelet's root directory"),
        *_MACHINE,
        ("--cdi-dir", "/var/run/cdi", "where the runtime reads CDI files"),
        ("--nri-socket", "/var/run/nri/nri.sock", "the runtime's NRI socket"),
        _STATE_DIR,
        ("--http-address", ":8080", "where /healthz, /readyz and /metrics are served"),
        ("--status-interval", "5", "seconds between two writes of a status that nobody waits for"),
        ("--log-format", "json", "json or text"),
        ("--log-level", "info", "debug, info, warning or error"),
    )
    topology = _Command(commands, environment, "topology", "print this machine's topology")
    topology.with_options(*_MACHINE, _STATE_DIR)
    topology.add("--reserved", metavar="CPUS", help="mark these as reserved; default: what this node's agent reserves")
    topology.with_output()
    _add_plan(_Command(commands, environment, "plan", "say which CPUs a request would get"))
    state = _Command(commands, environment, "state", "print what the agent of this node holds")
    state.with_options(_STATE_DIR)
    state.with_output()
    return made


def _add_plan(plan: "_Command") -> None:
    plan.describe(
        "Without --cpus, cases are read from standard input, a JSON object a line, and answered line by line in the "
        "same order; docs/user/which-cpus.md has their fields. With --cpus, one question is answered as for a claim."
    )
    plan.add("--topology", metavar="FILE", help="machines, as `topology -o json` prints them; default: this one")
    plan.add("--bench", metavar="N", type=_at_least_one, default=0, help='add "ns": the fastest of N calls')
    plan.with_options(*_MACHINE)
    plan.add("--cpus", metavar="N", type=int, help="how many CPUs are asked for")
    plan.add("--machine", metavar="NAME", help="which of the machines in FILE")
    plan.add(
        "--device", default=group_device(GroupBy.MACHINE, 0), help="of which device (default: %(default)s, all CPUs)"
    )
    plan.add("--available", metavar="CPUS", help="what is free; default: all CPUs")
    plan.add("--reserved", metavar="CPUS", default="", help="what is kept for the system; default: nothing")
    plan.add("--strategy", choices=tuple(Strategy), default=Strategy.PACKED, help="as in CpuDriverConfig")
    plan.add("--full-cores", action="store_true", help="only whole physical cores")
    plan.add("--prefer-uncore", action=argparse.BooleanOptionalAction, default=True, help="align to L3 caches")
    plan.add("--cpuset", metavar="CPUS", help="the claim names its CPUs itself: exactly these")


def run_options(parsed: argparse.Namespace) -> RunOptions:
    """The options of `run`."""
    return RunOptions(
        node_name=parsed.node_name,
        kubeconfig=Path(parsed.kubeconfig) if parsed.kubeconfig else None,
        kubelet_root=Path(parsed.kubelet_root),
        sysfs_root=Path(parsed.sysfs_root),
        procfs_root=Path(parsed.procfs_root),
        cdi_dir=Path(parsed.cdi_dir),
        nri_socket=Path(parsed.nri_socket),
        state_dir=Path(parsed.state_dir),
        http_address=parsed.http_address,
        status_interval=parsed.status_interval,
        log_format=parsed.log_format,
        log_level=parsed.log_level,
    )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line as given, the environment underneath."""
    return parser(os.environ).parse_args(arguments)


_Option = tuple[str, str, str]  # name, default, what it is
_MACHINE: Final[tuple[_Option, ...]] = (
    ("--sysfs-root", "/sys", "where sysfs is mounted"),
    ("--procfs-root", "/proc", "where procfs is mounted"),
)
_STATE_DIR: Final[_Option] = ("--state-dir", "/var/lib/dracpu", "where the agent keeps its state")


def _one_of(choices: Sequence[str], value: str) -> str:
    """Unlike argparse's own choices, a type is also asked about a default that comes from the environment."""
    if value not in choices:
        raise argparse.ArgumentTypeError(f"{value!r} is not one of {', '.join(choices)}")
    return value


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number of seconds")
    return seconds


def _at_least_one(value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number from 1 on")
    return int(value)


_TYPES: Final[Mapping[str, Callable[[str], object]]] = {
    "--log-format": partial(_one_of, ("json", "text")),
    "--log-level": partial(_one_of, ("debug", "info", "warning", "error")),
    "--status-interval": _seconds,
}


class _Command:
    def __init__(
        self,
        commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
        environment: Mapping[str, str],
        name: str,
        summary: str,
    ) -> None:
        self._environment = environment
        self._parser = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")

    def with_options(self, *options: _Option) -> None:
        for name, default, summary in options:
            variable = PREFIX + name.removeprefix("--").replace("-", "_").upper()
            self._parser.add_argument(
                name,
                default=self._environment.get(variable) or default,
                type=_TYPES.get(name, str),
                help=f"{summary} [{variable}; default: {default or 'none'}]",
            )

    def describe(self, more: str) -> None:
        self._parser.description = f"{self._parser.description} {more}"

    def add(self, name: str, **settings: Any) -> None:
        """An option of one call rather than of the node: no variable stands for it."""
        self._parser.add_argument(name, **settings)

    def with_output(self) -> None:
        self._parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="table or json")
