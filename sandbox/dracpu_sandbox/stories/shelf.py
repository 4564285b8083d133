"""Finds stories: those that come with the sandbox by name, a person's own by the path of its file."""

import ast
import inspect
import runpy
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.machines.exported import find_machine
from dracpu_sandbox.machines.presets import named_nodes

NAMES: Final = (
    "quickstart", "exhausted", "claim-shapes", "individual-cpus", "l3cache", "forged-claim",
    "switch-mode-live", "switch-grouping-live", "waiting-claim", "two-configs", "broken-config",
    "agent-crash", "node-reboot", "fleet",
)  # fmt: skip

_FOLDER: Final = Path(__file__).parent


class ScenarioError(SandboxError):
    """There is no such story, or its file is not a story."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story before it is played."""

    name: str
    file: Path
    title: str
    machines: tuple[Machine, ...]
    play: Callable[[Any], Awaitable[object]]
    nodes: int
    any_number: bool  # whether it can be played on another number of nodes
    agent: Literal["task", "process"]
    patience: float

    def cluster(self, nodes: int = 0) -> dict[str, Machine]:
        """The nodes that it asks for, or another number of them: machines take turns."""
        if nodes and not self.any_number:
            raise ScenarioError(
                f"{self.name} plays on {self.nodes} node(s): only a story that sets NODES takes --nodes"
            )
        return named_nodes(self.machines, nodes or self.nodes)


def find(name: str) -> Scenario:
    """The story with that name, or in that file."""
    if name in NAMES:
        return _read(name, _file(name))
    path = Path(name).absolute()
    if path.suffix != ".py":
        raise ScenarioError(
            f'there is no story "{name}"; there are: {", ".join(NAMES)}; a file of your own ends in .py'
        )
    if not path.is_file():
        raise ScenarioError(f"there is no file {name}")
    return _read(path.stem, path)


def blame(error: Exception, file: Path) -> str:
    """A mistake in a story's file, in a line that says where."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    said = str(error)
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines, said = [error.lineno], error.msg
    place = f"{file.name}, line {lines[-1]}" if lines else file.name
    return f"{place}: {type(error).__name__}: {said}"


def titles() -> dict[str, str]:
    """The first sentence of each story that comes with the sandbox; nothing is imported."""
    files = {name: _file(name) for name in NAMES}
    return {name: _title(ast.get_docstring(ast.parse(file.read_text()))) for name, file in files.items()}


def _read(name: str, file: Path) -> Scenario:
    try:
        said = runpy.run_path(str(file))
    except Exception as error:
        raise ScenarioError(blame(error, file)) from error
    if not inspect.iscoroutinefunction(said.get("play")):
        raise ScenarioError(f"{file.name} is not a story: it needs a function `async def play(story)`")

    def value(key: str, default: Any) -> Any:
        found, kind = said.get(key, default), type(default)
        if not isinstance(found, kind):
            raise ScenarioError(f"{file.name}: {key} is a {kind.__name__}, such as {default!r}, not {found!r}")
        return found

    machines = tuple(find_machine(machine) for machine in value("MACHINES", ("lab",)))
    agent = value("AGENT", "task")
    if agent not in {"task", "process"}:
        raise ScenarioError(f'{file.name}: AGENT is "task" or "process", not "{agent}"')
    nodes, patience = value("NODES", len(machines)), value("PATIENCE", 30.0)
    return Scenario(
        name, file, _title(said["__doc__"]), machines, said["play"], nodes, "NODES" in said, agent, patience
    )


def _file(name: str) -> Path:
    return _FOLDER / f"{name.replace('-', '_')}.py"


def _title(docstring: str | None) -> str:
    return (docstring or "A story without a docstring.").splitlines()[0]
