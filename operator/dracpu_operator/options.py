"""The command line. Every option is also an environment variable, so that a manifest can set it either way."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

PREFIX: Final = "DRACPU_OPERATOR_"

_KUBECONFIG: Final = ("--kubeconfig", "", "how to reach the API server; default: the pod's service account")
_OPTIONS: Final = (
    _KUBECONFIG,
    ("--http-address", ":8080", "the address on which /healthz, /readyz and /metrics are served"),
    ("--log-format", "json", "json or text"),
    ("--log-level", "info", "debug, info, warning or error"),
)
_CHOICES: Final = {"--log-format": ("json", "text"), "--log-level": ("debug", "info", "warning", "error")}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `dracpu-operator run`."""

    kubeconfig: Path | None
    http_address: str
    log_format: str = "json"
    log_level: str = "info"


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> argparse.Namespace:
    """Reads the command line; the environment has the defaults."""
    made = argparse.ArgumentParser(
        prog="dracpu-operator",
        description="The operator of dra-cpu-operator: exclusive, topology-aware CPUs for pods.",
        epilog=f"Every option --some-name of a command can also be set as {PREFIX}SOME_NAME; the command line wins.",
    )
    made.add_argument("--version", action="version", version=f"dracpu-operator {version('dra-cpu-operator')}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="serve the cluster until SIGTERM")
    for option in _OPTIONS:
        _add(run, environment, *option)
    default_config = commands.add_parser(
        "default-config", help="create the chart's CpuDriverConfig, or update it unless somebody has edited it"
    )
    default_config.add_argument("file", type=Path, metavar="FILE", help="YAML, with one object; - reads stdin")
    check = commands.add_parser(
        "uninstall-check", help="list the claims that hold CPUs; exit code 1 when there are any"
    )
    for command in (default_config, check):
        _add(command, environment, *_KUBECONFIG)
    commands.add_parser("crds", help="print the CustomResourceDefinitions")
    validate = commands.add_parser("validate", help="list what is wrong with the objects in a file")
    validate.add_argument("file", type=Path, metavar="FILE", help="YAML, with one object or several; - reads stdin")
    return made.parse_args(arguments)


def run_options(parsed: argparse.Namespace) -> RunOptions:
    """The options of `run`."""
    return RunOptions(
        kubeconfig=kubeconfig_option(parsed),
        http_address=parsed.http_address,
        log_format=parsed.log_format,
        log_level=parsed.log_level,
    )


def kubeconfig_option(parsed: argparse.Namespace) -> Path | None:
    """The option of every command that needs the API server."""
    return Path(parsed.kubeconfig) if parsed.kubeconfig else None


def _add(
    command: argparse.ArgumentParser, environment: Mapping[str, str], name: str, default: str, summary: str
) -> None:
    variable = PREFIX + name.removeprefix("--").replace("-", "_").upper()
    command.add_argument(
        name,
        default=environment.get(variable) or default,
        type=partial(_one_of, _CHOICES[name]) if name in _CHOICES else str,
        help=f"{summary} [{variable}; default: {default or 'none'}]",
    )


def _one_of(choices: Sequence[str], value: str) -> str:
    """Unlike argparse's own choices, a type is also asked about a default that comes from the environment."""
    if value not in choices:
        raise argparse.ArgumentTypeError(f"{value!r} is not one of {', '.join(choices)}")
    return value
