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

_OPEN_FILES: Final = 10_240  # each node keeps about 20 open; macOS refuses a higher limit


def main() -> None:
    """Runs the command. An error is printed as one clear line, with exit code 1."""
    parsed = options.parse(sys.argv[1:])
    try:
        sys.exit(_COMMANDS[parsed.command](parsed))
    except (SandboxError, DriverError) as error:
        sys.exit(f"dracpu-sandbox: {error}")
    except BrokenPipeError:  # the reader of the output, such as `head`, has exited
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _up(parsed: Namespace) -> int:
    from dracpu_sandbox.up import UpOptions, up  # noqa: PLC0415 - keeps `--help` fast

    chosen = UpOptions(
        machines=tuple(parsed.machine),
        nodes=parsed.nodes,
        port=parsed.port,
        kubeconfig=parsed.kubeconfig,
        assets=_assets(),
        verbose=parsed.verbose,
    )
    _finish(up(chosen, _print_line))
    return 0  # it ends by a signal only


def _run(parsed: Namespace) -> int:
    from dracpu_sandbox.stories import shelf  # noqa: PLC0415 - keeps `--help` fast

    if parsed.list:
        width = max(map(len, shelf.NAMES))
        for name, title in shelf.titles().items():
            _print_line(f"{name.ljust(width)}  {title}")
        return 0
    from dracpu_sandbox.stories.playing import play  # noqa: PLC0415 - keeps `--list` fast

    scenario = shelf.find(parsed.scenario)
    echo = sys.stderr if parsed.verbose else None
    signalled = _finish(play(scenario, _print_line, nodes=parsed.nodes, assets=_assets(), echo=echo))
    return 128 + signalled if signalled else 0


def _top(parsed: Namespace) -> int:
    from rich.console import Console  # noqa: PLC0415 - keeps `--help` fast

    from dracpu_sandbox.view import top  # noqa: PLC0415 - keeps `--help` fast

    watched = top.Watched(_kubeconfig(parsed.kubeconfig), tuple(parsed.nodes))
    console = Console(highlight=False)
    live = console.is_terminal and not parsed.once
    _finish(top.follow(watched, console) if live else top.print_once(watched, console))
    return 0


def _finish(work: Coroutine[Any, Any, None]) -> int:
    """Runs the work until it ends, or until SIGINT or SIGTERM and its cleanup; returns the signal's number or 0."""
    _allow_open_files()
    try:
        return asyncio.run(_until_signal(work))
    except ExceptionGroup as errors:
        raise cause(errors) from errors


async def _until_signal(work: Coroutine[Any, Any, None]) -> int:
    loop, task, signals = asyncio.get_running_loop(), asyncio.ensure_future(work), list[int]()

    def end(number: int) -> None:
        if not signals:  # a second Ctrl-C must not interrupt the cleanup
            task.cancel()
        signals.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
    return signals[0] if signals else 0


def _allow_open_files() -> None:
    """Raises the limit of open files: the default of many shells, 1,024, is too low for a hundred nodes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def _kubeconfig(given: Path | None) -> Path:
    from dracpu_sandbox.folder import running_kubeconfig  # noqa: PLC0415 - keeps `--help` fast

    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    found = given or running_kubeconfig() or (Path(named) if named else None)
    if found is None:
        raise SandboxError(
            "no sandbox is running, and KUBECONFIG is not set: give --kubeconfig, or `dracpu-sandbox up`"
        )
    return found


def _assets() -> Path | None:
    """Returns the folder with the binaries of a real control plane; envtest uses the same variable."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    return Path(named) if named else None


def _print_line(line: str) -> None:
    print(line, flush=True)


_COMMANDS = {"up": _up, "run": _run, "top": _top}

if __name__ == "__main__":
    main()
