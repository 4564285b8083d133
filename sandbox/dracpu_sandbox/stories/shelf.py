"""Finds stories: those of the sandbox by name, a user's own by the path of its file."""

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
    "packet-processor", "database", "resized-with-pages", "agent-crash", "node-reboot", "fleet",
)  # fmt: skip

_FOLDER: Final = Path(__file__).parent


class ScenarioError(SandboxError):
    """The story does not exist, or its file does not contain a story."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story with the settings of its file."""

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
        """Names the nodes of the story, or another number of them, which take its machines in turn."""
        if nodes and not self.any_number:
            raise ScenarioError(
                f"{self.name} plays on {self.nodes} node(s): only a story that sets NODES takes --nodes"
            )
        return named_nodes(self.machines, nodes or self.nodes)


def find(name: str) -> Scenario:
    """Returns the story with this name or in this file."""
    if name in NAMES:
        return _read(name, _file(name))
    path = Path(name).absolute()
    if path.suffix != ".py":
        raise ScenarioError(
            f'there is no story "{name}"; the stories are: {", ".join(NAMES)}; your own file must end in .py'
        )
    if not path.is_file():
        raise ScenarioError(f"file {name} does not exist")
    return _read(path.stem, path)


def blame(error: Exception, file: Path) -> str:
    """Describes an error in a story's file in one line, with its place."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    problem = str(error)
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines, problem = [error.lineno], error.msg
    place = f"{file.name}, line {lines[-1]}" if lines else file.name
    return f"{place}: {type(error).__name__}: {problem}"


def titles() -> dict[str, str]:
    """Returns the first line of each story of the sandbox; imports none of them."""
    files = {name: _file(name) for name in NAMES}
    return {name: _title(ast.get_docstring(ast.parse(file.read_text()))) for name, file in files.items()}


def _read(name: str, file: Path) -> Scenario:
    try:
        module = runpy.run_path(str(file))
    except Exception as error:
        raise ScenarioError(blame(error, file)) from error
    if not inspect.iscoroutinefunction(module.get("play")):
        raise ScenarioError(f"{file.name} is not a story: it needs a function `async def play(story)`")

    def value(key: str, default: Any) -> Any:
        found, kind = module.get(key, default), type(default)
        if not isinstance(found, kind):
            raise ScenarioError(f"{file.name}: {key} must be a {kind.__name__}, such as {default!r}, not {found!r}")
        return found

    machines = tuple(find_machine(machine) for machine in value("MACHINES", ("lab",)))
    agent = value("AGENT", "task")
    if agent not in {"task", "process"}:
        raise ScenarioError(f'{file.name}: AGENT must be "task" or "process", not "{agent}"')
    nodes, patience = value("NODES", len(machines)), value("PATIENCE", 30.0)
    return Scenario(
        name, file, _title(module["__doc__"]), machines, module["play"], nodes, "NODES" in module, agent, patience
    )


def _file(name: str) -> Path:
    return _FOLDER / f"{name.replace('-', '_')}.py"


def _title(docstring: str | None) -> str:
    return (docstring or "A story without a docstring.").splitlines()[0]
