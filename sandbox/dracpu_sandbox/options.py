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
        description="A whole Kubernetes cluster with dra-cpu-operator in one process: nothing is installed, "
        "nothing is left behind.",
        epilog="KUBEBUILDER_ASSETS, a folder with etcd and kube-apiserver, makes up and run use those; kube-scheduler "
        "and kube-controller-manager too, where they are in it.",
    )
    made.add_argument("--version", action="version", version=f"dracpu-sandbox {version('dra-cpu-operator')}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_up(commands)
    _add_run(commands)
    _add_top(commands)
    return made.parse_args(arguments)


_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _add_up(commands: _Commands) -> None:
    up = commands.add_parser("up", help="a cluster to play with, until Ctrl-C")
    up.add_argument("--nodes", type=_nodes, metavar="N", help="how many; machines take turns (default: each one once)")
    up.add_argument(
        "--machine",
        action="append",
        default=[],
        metavar="NAME|FILE.json",
        help="a node's machine: a name, or a file with what `dracpu-agent topology -o json` printed on a real one; "
        "can be given several times (default: xeon, epyc, hybrid-desktop)",
    )
    up.add_argument("--port", type=_port, default=0, metavar="P", help="the API server's (default: any that is free)")
    up.add_argument("--kubeconfig", type=Path, metavar="FILE", help="write the kubeconfig there too; it must not exist")
    up.add_argument("--verbose", action="store_true", help="show the logs of operator and agents")


def _add_run(commands: _Commands) -> None:
    run = commands.add_parser("run", help="play a story; the exit code is 1 when it does not end as told")
    which = run.add_mutually_exclusive_group(required=True)
    which.add_argument("scenario", nargs="?", metavar="SCENARIO", help="its name, or a .py file of your own")
    which.add_argument("--list", action="store_true", help="name the stories")
    run.add_argument("--nodes", type=_nodes, default=0, metavar="N", help="another number of nodes than the story's")
    run.add_argument("--verbose", action="store_true", help="show the logs of operator and agents")


def _add_top(commands: _Commands) -> None:
    top = commands.add_parser("top", help="draw the nodes and what their CPUs are used for, live")
    top.add_argument("nodes", nargs="*", metavar="NODE", help="only these")
    top.add_argument(
        "--kubeconfig", type=Path, metavar="F", help="any cluster's (default: the running sandbox's, then $KUBECONFIG)"
    )
    top.add_argument("--once", action="store_true", help="print them once")


def _number(text: str, least: int, most: int, what: str) -> int:
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return int(text)


_nodes = partial(_number, least=1, most=5_000, what="a number of nodes")
_port = partial(_number, least=0, most=65_535, what="a port")
