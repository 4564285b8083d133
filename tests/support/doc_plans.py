"""Runs the examples of docs/user/which-cpus.md, which show commands, their output, and a drawing of the CPUs.

`python tests/support/doc_plans.py` writes the current output into the page.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from machine_answers import topology_of

from dracpu_agent.cli.options import parser
from dracpu_agent.devices.publish import resolve
from dracpu_agent.topology.export import to_json
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_sandbox.machines.presets import EPYC
from dracpu_sandbox.machines.tree import directory, write_tree

PAGE: Final = Path(__file__).parents[2] / "docs/user/which-cpus.md"
_BLOCK: Final = re.compile(r"^```(console|topology|cases)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One code block of the page."""

    kind: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands that a reader would enter, or the lines of a file of cases."""
        return [line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith(("$ ", '{"id": '))]

    def __str__(self) -> str:
        return self.commands[0]


def blocks() -> list[Block]:
    """Returns the examples of the page."""
    return [Block(*found) for found in _BLOCK.findall(PAGE.read_text())]


def as_run(block: Block) -> str:
    """Returns the text of the block with the actual output of its commands."""
    if block.kind == "cases":
        answers = _plan(["dracpu-agent", "plan"], "\n".join(block.commands))
        return "".join(f"{case}\n    {answer}\n" for case, answer in zip(block.commands, answers, strict=True))
    return "".join("\n".join(_run(block.kind, command)) + "\n" for command in block.commands)


def _run(kind: str, command: str) -> Iterator[str]:
    yield f"$ {command}"
    words = command.split()
    if kind == "topology":
        with directory() as root:
            sysfs, procfs = write_tree(EPYC, root)
            yield from _printed([*words, "--sysfs-root", str(sysfs), "--procfs-root", str(procfs)])
        return
    (line,) = _plan(words)
    yield line
    answer = json.loads(line)
    if "cpus" in answer:
        yield from _drawing(topology_of(EPYC), words, CpuSet.parse(answer["cpus"]))


def _plan(words: list[str], cases: str = "") -> list[str]:
    with TemporaryDirectory() as folder:
        file = Path(folder, "machine.json")
        file.write_text(to_json(topology_of(EPYC)))
        return _printed([*words, "--topology", str(file)], cases)


def _printed(words: list[str], cases: str = "") -> list[str]:
    command = [sys.executable, "-m", "dracpu_agent", *words[1:]]
    run = subprocess.run(command, input=cases, capture_output=True, check=False, text=True, timeout=30)
    if run.stderr:
        raise RuntimeError(f"the example `{' '.join(words)}` printed an error: {run.stderr}")
    return run.stdout.rstrip().splitlines()


def _drawing(topology: Topology, words: list[str], chosen: CpuSet) -> Iterator[str]:
    """Draws the device: a line for each NUMA node, and in it a character for each CPU, grouped by core."""
    options = parser({}).parse_args(words[1:])
    device = resolve(topology, options.device or "cpudevmachine") or EMPTY
    reserved = CpuSet.parse(options.reserved)
    available = topology.online if options.available is None else CpuSet.parse(options.available)

    def sign(cpu: int) -> str:
        if cpu in chosen:
            return "#"
        if cpu in reserved:
            return "R"
        return "." if cpu in available else "x"

    for node, cpus in topology.numa_nodes.items():
        groups = [(name, group & cpus & device) for name, group in topology.l3_groups.items()]
        parts = [
            f"L3 {name}  {' '.join(''.join(map(sign, core)) for core in topology.cores.values() if core <= group)}"
            for name, group in groups
            if group
        ]
        if parts:
            yield f"    NUMA node {node}   {'   '.join(parts)}"


def _rewritten() -> str:
    return _BLOCK.sub(lambda found: f"```{found[1]}\n{as_run(Block(found[1], found[2]))}```", PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(_rewritten())
