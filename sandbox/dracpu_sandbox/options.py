"""The command line of `dracpu-sandbox`."""

import argparse
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the command line; argparse ends the process when it is invalid."""
    made = argparse.ArgumentParser(
        prog="dracpu-sandbox",
        description="A whole Kubernetes cluster with dra-cpu-operator in one process, which installs nothing "
        "and leaves nothing behind.",
        epilog="KUBEBUILDER_ASSETS, a folder with etcd and kube-apiserver, makes up and run use these programs, and "
        "kube-scheduler and kube-controller-manager if it contains them.",
    )
    made.add_argument("--version", action="version", version=f"dracpu-sandbox {version('dra-cpu-operator')}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_up(commands)
    _add_run(commands)
    _add_top(commands)
    return made.parse_args(arguments)


_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _add_up(commands: _Commands) -> None:
    up = commands.add_parser("up", help="run a cluster until Ctrl-C")
    up.add_argument("--nodes", type=_nodes, metavar="N", help="number of nodes (default: one per machine)")
    up.add_argument(
        "--machine",
        action="append",
        default=[],
        metavar="NAME|FILE.json",
        help="a node's machine: a name, or a file with the output of `dracpu-agent topology -o json`; "
        "can be given several times (default: xeon, epyc, hybrid-desktop)",
    )
    up.add_argument("--port", type=_port, default=0, metavar="P", help="port of the API server (default: a free one)")
    up.add_argument("--kubeconfig", type=Path, metavar="FILE", help="write the kubeconfig to this new file, too")
    up.add_argument("--verbose", action="store_true", help="show the logs of operator and agents")


def _add_run(commands: _Commands) -> None:
    run = commands.add_parser("run", help="play a story; the exit code is 1 when a check fails")
    which = run.add_mutually_exclusive_group(required=True)
    which.add_argument("scenario", nargs="?", metavar="SCENARIO", help="the name of a story, or your own .py file")
    which.add_argument("--list", action="store_true", help="list the stories")
    run.add_argument("--nodes", type=_nodes, default=0, metavar="N", help="number of nodes, for stories that set NODES")
    run.add_argument("--verbose", action="store_true", help="show the logs of operator and agents")


def _add_top(commands: _Commands) -> None:
    top = commands.add_parser("top", help="draw the nodes and the use of their CPUs, live")
    top.add_argument("nodes", nargs="*", metavar="NODE", help="draw only these nodes")
    top.add_argument(
        "--kubeconfig", type=Path, metavar="F", help="of any cluster (default: the running sandbox, or $KUBECONFIG)"
    )
    top.add_argument("--once", action="store_true", help="print the nodes once")


def _number(text: str, least: int, most: int, what: str) -> int:
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return int(text)


_nodes = partial(_number, least=1, most=5_000, what="a number of nodes")
_port = partial(_number, least=0, most=65_535, what="a port")
