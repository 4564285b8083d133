"""`dracpu-sandbox up`: runs a cluster, and prints commands to try."""

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from dracpu_sandbox.cluster import Sandbox
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.folder import offer
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.machines.exported import find_machine
from dracpu_sandbox.machines.presets import DEFAULT_MACHINES, named_nodes

PrintLine = Callable[[str], object]

EXAMPLE: Final = "two-cpus.yaml"


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The options of the command line."""

    machines: tuple[str, ...] = ()
    nodes: int | None = None
    port: int = 0
    kubeconfig: Path | None = None
    assets: Path | None = None
    verbose: bool = False


async def up(options: UpOptions, print_line: PrintLine) -> None:
    """Runs the cluster until it is cancelled, or until a part of it fails."""
    began = time.monotonic()

    def progress(line: str) -> None:
        print_line(f"{time.monotonic() - began:6.1f} s  {line}")

    sandbox = Sandbox(
        machines_of(options.machines, options.nodes),
        port=options.port,
        assets=options.assets,
        progress=progress,
        echo=sys.stderr if options.verbose else None,
    )
    print_line("a Kubernetes cluster with dra-cpu-operator, all in this process:")
    async with sandbox:
        await sandbox.ready()
        progress("every node offers its CPUs")
        with _copied(sandbox.kubeconfig, options.kubeconfig) as kubeconfig:
            offer(sandbox.kubeconfig.parent)
            example = sandbox.kubeconfig.with_name(EXAMPLE)
            example.write_text(files("dracpu_sandbox").joinpath(EXAMPLE).read_text())
            for line in what_next(kubeconfig, example, _program()):
                print_line(line)
            await sandbox.ended()


def machines_of(names: tuple[str, ...], nodes: int | None) -> dict[str, Machine]:
    """Assigns machines to the names of the nodes."""
    machines = tuple(find_machine(name) for name in names) or DEFAULT_MACHINES
    return named_nodes(machines, nodes or len(machines))


def what_next(kubeconfig: Path, example: Path, program: str) -> Iterator[str]:
    """Yields the commands to try first."""
    yield from (
        "",
        "It is up until Ctrl-C. In another terminal:",
        "",
        f"    export KUBECONFIG={kubeconfig}",
        "    kubectl get cpudriverconfigs,cpunodes          # the policy, and what each node makes of it",
        f"    kubectl apply -f {example}",
        "    kubectl wait --for=condition=Ready pod/pinned && kubectl logs pinned     # two CPUs of its own",
        f"    {program} top          # every CPU of every node, live",
        """    kubectl patch cpudriverconfig default --type=merge --patch '{"spec":{"mode":"individual"}}'""",
        "",
    )
    if shutil.which("kubectl") is None:
        yield "(There is no kubectl in PATH: https://kubernetes.io/docs/tasks/tools/)"
    yield f"Logs of operator and agents: {example.with_name('logs')}"


@contextlib.contextmanager
def _copied(kubeconfig: Path, wanted: Path | None) -> Iterator[Path]:
    """Writes the kubeconfig to the given new file while the block is open. An existing file is never overwritten."""
    if wanted is None:
        yield kubeconfig
        return
    try:
        with os.fdopen(os.open(wanted, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(kubeconfig.read_text())
    except OSError as error:
        raise SandboxError(f"cannot write the kubeconfig {wanted}: {error.strerror}") from error
    try:
        yield wanted
    finally:
        wanted.unlink(missing_ok=True)


def _program() -> str:
    """Returns the command to show for this program: `make sandbox` does not put it in PATH."""
    return sys.argv[0] if Path(sys.argv[0]).stem == "dracpu-sandbox" else "dracpu-sandbox"
