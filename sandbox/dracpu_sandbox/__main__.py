"""The command `dracpu-sandbox`."""

import asyncio
import os
import resource
import signal
import sys
from argparse import Namespace
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

from dracpu_api.errors import DriverError
from dracpu_sandbox import options
from dracpu_sandbox.errors import SandboxError, cause

_OPEN_FILES: Final = 10_240  # a node has 20 open; more is refused on macOS


def main() -> None:
    """Entry point; a refusal is one clear line and exit code 1."""
    parsed = options.parse(sys.argv[1:])
    try:
        sys.exit(_COMMANDS[parsed.command](parsed))
    except (SandboxError, DriverError) as error:
        sys.exit(f"dracpu-sandbox: {error}")
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _up(parsed: Namespace) -> int:
    from dracpu_sandbox.up import UpOptions, up  # noqa: PLC0415 - `--help` waits for nothing

    chosen = UpOptions(
        machines=tuple(parsed.machine),
        nodes=parsed.nodes,
        port=parsed.port,
        kubeconfig=parsed.kubeconfig,
        assets=_assets(),
        verbose=parsed.verbose,
    )
    _finish(up(chosen, _say))
    return 0  # a signal is how it ends


def _run(parsed: Namespace) -> int:
    from dracpu_sandbox.stories import shelf  # noqa: PLC0415 - `--help` waits for nothing

    if parsed.list:
        width = max(map(len, shelf.NAMES))
        for name, title in shelf.titles().items():
            _say(f"{name.ljust(width)}  {title}")
        return 0
    from dracpu_sandbox.stories.playing import play  # noqa: PLC0415 - `--list` waits for nothing

    scenario = shelf.find(parsed.scenario)
    echo = sys.stderr if parsed.verbose else None
    signalled = _finish(play(scenario, _say, nodes=parsed.nodes, assets=_assets(), echo=echo))
    return 128 + signalled if signalled else 0


def _top(parsed: Namespace) -> int:
    from rich.console import Console  # noqa: PLC0415 - `--help` waits for nothing

    from dracpu_sandbox.view import top  # noqa: PLC0415 - likewise

    watched = top.Watched(_kubeconfig(parsed.kubeconfig), tuple(parsed.nodes))
    console = Console(highlight=False)
    live = console.is_terminal and not parsed.once
    _finish(top.follow(watched, console) if live else top.print_once(watched, console))
    return 0


def _finish(work: Coroutine[Any, Any, None]) -> int:
    """Runs the work to its end, or until SIGINT or SIGTERM and its cleanup; returns the signal's number, or 0."""
    _allow_open_files()
    try:
        return asyncio.run(_until_signal(work))
    except ExceptionGroup as errors:
        raise cause(errors) from errors


async def _until_signal(work: Coroutine[Any, Any, None]) -> int:
    loop, task, signals = asyncio.get_running_loop(), asyncio.ensure_future(work), list[int]()

    def end(number: int) -> None:
        if not signals:  # an impatient second Ctrl-C must not interrupt the cleanup
            task.cancel()
        signals.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
    return signals[0] if signals else 0


def _allow_open_files() -> None:
    """Raises the limit: shells allow 1,024 open files by default, too few for a hundred nodes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def _kubeconfig(given: Path | None) -> Path:
    from dracpu_sandbox.folder import running_kubeconfig  # noqa: PLC0415 - `--help` waits for nothing

    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    found = given or running_kubeconfig() or (Path(named) if named else None)
    if found is None:
        raise SandboxError(
            "no sandbox is running, and KUBECONFIG is not set: give --kubeconfig, or `dracpu-sandbox up`"
        )
    return found


def _assets() -> Path | None:
    """The folder with the binaries of a real control plane, by the convention of envtest."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    return Path(named) if named else None


def _say(line: str) -> None:
    print(line, flush=True)


_COMMANDS = {"up": _up, "run": _run, "top": _top}

if __name__ == "__main__":
    main()
