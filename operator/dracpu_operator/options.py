"""The commands and their options."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from dracpu_api.command_line import HTTP_ADDRESS, KUBECONFIG, LOG_FORMAT, LOG_LEVEL, Option, add_option

PREFIX: Final = "DRACPU_OPERATOR_"
NAMESPACE: Final = Option("--namespace", "", "namespace of the agents; without one, that of the operator's own pod")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `dracpu-operator run`."""

    kubeconfig: Path | None
    http_address: str
    log_format: str = "json"
    log_level: str = "info"
    namespace: str = ""  # of the agents; "": that of the operator's own pod
    leader_elect: bool = False


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> argparse.Namespace:
    """Reads the command line; the environment has the defaults."""
    parser = argparse.ArgumentParser(
        prog="dracpu-operator",
        description="The operator of dra-cpu-operator: exclusive, topology-aware CPUs for pods.",
        epilog=f"Every option --some-name of a command can also be set as {PREFIX}SOME_NAME; the command line wins.",
    )
    parser.add_argument("--version", action="version", version=f"dracpu-operator {version('dra-cpu-operator')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="serve the cluster until SIGTERM")
    default_config = commands.add_parser(
        "default-config", help="create the chart's CpuDriverConfig, or update it unless somebody has edited it"
    )
    default_config.add_argument("file", type=Path, metavar="FILE", help="YAML, with one object; - reads stdin")
    check = commands.add_parser("uninstall-check", help="list the claims that hold CPUs; exit code 1 if there are any")
    commands.add_parser("crds", help="print the CustomResourceDefinitions")
    validate = commands.add_parser("validate", help="list what is wrong with the objects in a file")
    validate.add_argument("file", type=Path, metavar="FILE", help="YAML, with one object or several; - reads stdin")
    for command in (run, default_config, check):
        add_option(command, KUBECONFIG, prefix=PREFIX, environment=environment)
    _add_leader_elect(run, environment)
    for option in (NAMESPACE, HTTP_ADDRESS, LOG_FORMAT, LOG_LEVEL):
        add_option(run, option, prefix=PREFIX, environment=environment)
    return parser.parse_args(arguments)


def run_options(parsed: argparse.Namespace) -> RunOptions:
    """The options of `run`."""
    return RunOptions(
        kubeconfig=kubeconfig_option(parsed),
        http_address=parsed.http_address,
        log_format=parsed.log_format,
        log_level=parsed.log_level,
        namespace=parsed.namespace,
        leader_elect=not parsed.kubeconfig if parsed.leader_elect is None else parsed.leader_elect,
    )


def kubeconfig_option(parsed: argparse.Namespace) -> Path | None:
    """The option of every command that needs the API server."""
    return Path(parsed.kubeconfig) if parsed.kubeconfig else None


def _add_leader_elect(command: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    variable = f"{PREFIX}LEADER_ELECT"
    value = environment.get(variable) or None
    if value not in (None, "true", "false"):
        command.error(f"{variable} must be true or false, not {value!r}")
    command.add_argument(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=None if value is None else value == "true",
        help="write only while a Lease in the namespace names this process, so that several can run, of which one "
        f"leads [{variable}: true or false; default: yes, unless --kubeconfig is given]",
    )
