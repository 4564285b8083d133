"""The command line of the lab."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from lab.cluster import Lab
from lab.disk import Init
from lab.errors import LabError
from lab.host import report
from lab.nodes import Machine
from lab.paths import Paths
from lab.setup import check_machine, install_packages
from lab.versions import Versions, default_gates, version_names

Command = Callable[[Lab, argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. An error of the lab is printed as one line, without a traceback."""
    options = parser().parse_args(arguments)
    command: Command = options.command
    try:
        return command(_lab(options), options)
    except LabError as error:
        report(str(error))
        return 1


def parser() -> argparse.ArgumentParser:
    """Describes the commands and their options."""
    top = argparse.ArgumentParser(prog="python -m lab", description="A real Kubernetes cluster on one machine.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, explanation: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=explanation, description=explanation)
        added.set_defaults(command=command)
        return added

    add("setup", _setup, "install the Debian packages that are missing")
    build = add("build", _build, "build what is missing or outdated: programs, kernel, certificates, base image")

    image = add("image", _image, "build a Dockerfile into an archive, without a registry")
    image.add_argument("dockerfile", type=Path)
    image.add_argument("tag")
    image.add_argument("archive", type=Path)
    image.add_argument("context", type=Path, nargs="?", default=Path())
    image.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")

    default = Machine()
    up = add("up", _up, "start a new cluster and wait until its nodes are Ready")
    for versioned in (build, up):
        for name in version_names():
            explanation = f"version of {name}; without this option that in LAB_{name.upper()}, or else the default"
            versioned.add_argument(f"--{name}", default=argparse.SUPPRESS, help=explanation, metavar="VERSION")
    up.add_argument(
        "--image", type=Path, action="append", default=[], help="an archive whose images every node has from the start"
    )
    up.add_argument("--nodes", type=int, default=1)
    up.add_argument("--sockets", type=int, default=default.sockets)
    up.add_argument("--cores", type=int, default=default.cores, help="cores of a socket")
    up.add_argument("--threads", type=int, default=default.threads, help="threads of a core")
    up.add_argument("--numa-nodes", type=int, default=default.numa_nodes)
    up.add_argument("--memory", type=int, default=default.memory_mib, help="memory of a node in MiB", metavar="MIB")
    up.add_argument(
        "--append", default="", help='words for the kernel command line, for example "hugepagesz=2M hugepages=64"'
    )
    up.add_argument(
        "--feature-gates",
        default=default_gates(),
        help="feature gates of every component, for example A=true,B=false; without this option those in "
        "LAB_FEATURE_GATES",
    )

    up.add_argument(
        "--init",
        type=_inits,
        default=default.inits,
        metavar="NAME[,NAME]",
        help=f"init systems of vm1, vm2, ...: {' or '.join(Init)}; nodes after the last have the last one "
        f"(default: {','.join(default.inits)})",
    )

    add("down", _down, "stop all processes that this lab started and remove its network")
    add("status", _status, "report whether a cluster is running")

    run = add("run", _run, "run a command in the lab's network, with KUBECONFIG and the lab's programs")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="WORD")

    sh = add("sh", _sh, "run a line in a node's root shell; for example, `killall kubelet` restarts the kubelet")
    sh.add_argument("node")
    sh.add_argument("words", nargs=argparse.REMAINDER, metavar="WORD")

    restart = add("restart-node", _restart_node, "power a node off and on again; it keeps its disk")
    restart.add_argument("node")
    return top


def _lab(options: argparse.Namespace) -> Lab:
    """Returns the lab with the chosen versions, or for a command that does not choose, with those of the cluster."""
    given = {name: value for name, value in vars(options).items() if name in version_names()}
    paths = Paths.default(replace(Versions.from_environment(), **given))
    return Lab(paths) if options.command in (_build, _up) else Lab.of_cluster(paths)


def _inits(text: str) -> tuple[Init, ...]:
    names = text.split(",")
    for name in names:
        if name not in list(Init):
            raise argparse.ArgumentTypeError(f"{name} is not an init system of the lab: choose from {', '.join(Init)}")
    return tuple(map(Init, names))


def _setup(_: Lab, __: argparse.Namespace) -> int:
    check_machine()
    install_packages()
    return 0


def _build(lab: Lab, _: argparse.Namespace) -> int:
    lab.build()
    return 0


def _image(lab: Lab, options: argparse.Namespace) -> int:
    arguments: list[str] = options.build_arg
    values = {name: value for name, _, value in (argument.partition("=") for argument in arguments)}
    report(lab.image(options.dockerfile, options.tag, options.archive.resolve(), options.context, values))
    return 0


def _up(lab: Lab, options: argparse.Namespace) -> int:
    machine = Machine(
        sockets=options.sockets,
        cores=options.cores,
        threads=options.threads,
        numa_nodes=options.numa_nodes,
        memory_mib=options.memory,
        append=options.append,
        feature_gates=options.feature_gates,
        inits=options.init,
    )
    lab.up(options.nodes, machine, [archive.resolve() for archive in options.image])
    report("the cluster is up: python -m lab run kubectl get nodes")
    return 0


def _down(lab: Lab, _: argparse.Namespace) -> int:
    lab.down()
    return 0


def _status(lab: Lab, _: argparse.Namespace) -> int:
    up = lab.is_up()
    report(f"up, nodes: {' '.join(lab.nodes())}" if up else "down")
    return 0 if up else 1


def _run(lab: Lab, options: argparse.Namespace) -> int:
    return lab.run(options.words)


def _sh(lab: Lab, options: argparse.Namespace) -> int:
    sys.stdout.write(lab.sh(options.node, " ".join(options.words), timeout=300))
    return 0


def _restart_node(lab: Lab, options: argparse.Namespace) -> int:
    lab.restart_node(options.node)
    return 0
