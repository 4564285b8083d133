"""The command line: every option is also an environment variable, so that a manifest can set it either way."""

import argparse
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from dracpu_agent.version import __version__

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
    log_format: str
    log_level: str


def parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """The commands and their options, with defaults from the environment."""
    made = argparse.ArgumentParser(
        prog="dracpu-agent",
        description="The node agent of dra-cpu-operator: exclusive, topology-aware CPUs for pods.",
        epilog=f"Every option --some-name can also be set as {PREFIX}SOME_NAME; the command line wins.",
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
        ("--log-format", "json", "json or text"),
        ("--log-level", "info", "debug, info, warning or error"),
    )
    topology = _Command(commands, environment, "topology", "print this machine's topology")
    topology.with_options(*_MACHINE)
    topology.with_output()
    state = _Command(commands, environment, "state", "print what the agent of this node holds")
    state.with_options(_STATE_DIR)
    state.with_output()
    return made


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
_CHOICES: Final = {"--log-format": ("json", "text"), "--log-level": ("debug", "info", "warning", "error")}


def _one_of(choices: Sequence[str], value: str) -> str:
    """Unlike argparse's own choices, a type is also asked about a default that comes from the environment."""
    if value not in choices:
        raise argparse.ArgumentTypeError(f"{value!r} is not one of {', '.join(choices)}")
    return value


class _Command:
    def __init__(
        self,
        commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
        environment: Mapping[str, str],
        name: str,
        summary: str,
    ) -> None:
        self._environment = environment
        self._parser = commands.add_parser(name, help=summary, description=summary.capitalize() + ".")

    def with_options(self, *options: _Option) -> None:
        for name, default, summary in options:
            variable = PREFIX + name.removeprefix("--").replace("-", "_").upper()
            self._parser.add_argument(
                name,
                default=self._environment.get(variable) or default,
                type=partial(_one_of, _CHOICES[name]) if name in _CHOICES else str,
                help=f"{summary} [{variable}; default: {default or 'none'}]",
            )

    def with_output(self) -> None:
        self._parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="table or json")
