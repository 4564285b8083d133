"""Where stories are found: those that come with the sandbox by name, a person's own by the path of its file."""

import ast
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.machines.exported import find_machine

NAMES: Final = (
    "quickstart", "exhausted", "claim-shapes", "individual-cpus", "l3cache", "forged-claim",
    "switch-mode-live", "switch-grouping-live", "waiting-claim", "two-configs", "broken-config",
    "agent-crash", "node-reboot", "fleet",
)  # fmt: skip

_FOLDER: Final = Path(__file__).parent


class ScenarioError(SandboxError):
    """There is no such story, or its file is not one."""


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
        """The nodes that it wants, or so many: machines take turns."""
        if nodes and not self.any_number:
            raise ScenarioError(
                f"{self.name} plays on {self.nodes} node(s): only a story that sets NODES takes --nodes"
            )
        count = nodes or self.nodes
        return {f"node-{number + 1}": self.machines[number % len(self.machines)] for number in range(count)}


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
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if Path(one.filename) == file]
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
    module = _load(file)
    play = getattr(module, "play", None)
    if not inspect.iscoroutinefunction(play):
        raise ScenarioError(f"{file.name} is not a story: it needs a function `async def play(story)`")
    machines = tuple(find_machine(one) for one in _value(module, file, "MACHINES", tuple, ("lab",)))
    if not machines:
        raise ScenarioError(f"{file.name}: MACHINES is empty")
    agent = _value(module, file, "AGENT", str, "task")
    if agent not in {"task", "process"}:
        raise ScenarioError(f'{file.name}: AGENT is "task" or "process", not "{agent}"')
    nodes = _value(module, file, "NODES", int, len(machines))
    if nodes < 1:
        raise ScenarioError(f"{file.name}: NODES is 1 or more, not {nodes}")
    return Scenario(
        name,
        file,
        _title(inspect.getdoc(module)),
        machines,
        play,
        nodes,
        hasattr(module, "NODES"),
        agent,
        _value(module, file, "PATIENCE", float, 30.0),
    )


def _file(name: str) -> Path:
    return _FOLDER / f"{name.replace('-', '_')}.py"


def _title(docstring: str | None) -> str:
    return (docstring or "A story without a docstring.").splitlines()[0]


def _load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"story_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # nothing is left beside somebody's file
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ScenarioError(blame(error, file)) from error
    finally:
        sys.dont_write_bytecode = writes
    return module


def _value(module: ModuleType, file: Path, name: str, kind: type, default: Any) -> Any:
    value = getattr(module, name, default)
    if not isinstance(value, kind):
        raise ScenarioError(f"{file.name}: {name} is a {kind.__name__}, such as {default!r}, not {value!r}")
    return value
