"""The command `dracpu-agent`."""

import asyncio
import json
import signal
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dracpu_agent.allocation.choose import Ask
from dracpu_agent.checkpoint.statefile import load
from dracpu_agent.cli import plan as planning
from dracpu_agent.cli.options import parse, run_options
from dracpu_agent.cli.topology_table import table
from dracpu_agent.host.sysfs import read
from dracpu_agent.observe import logging
from dracpu_agent.observe.state import StateError, read_state
from dracpu_agent.report.document import document_of_checkpoint, table_of
from dracpu_agent.topology import described, export
from dracpu_agent.topology.topology import Topology, TopologyError
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.errors import DriverError
from dracpu_api.settings import Allocation, Strategy


def main() -> None:
    """Entry point; a refusal is one clear line and exit code 1."""
    parsed = parse(sys.argv[1:])
    try:
        _COMMANDS[parsed.command](parsed)
    except DriverError as error:
        sys.exit(f"dracpu-agent: {error}")


def _run(parsed: Namespace) -> None:
    from dracpu_agent.app import run  # noqa: PLC0415 - the other commands need neither gRPC nor HTTP

    options = run_options(parsed)
    logging.configure(options.log_format, options.log_level)
    asyncio.run(run(options))


def _topology(parsed: Namespace) -> None:
    topology = read(Path(parsed.sysfs_root), Path(parsed.procfs_root))
    print(export.to_json(topology) if parsed.output == "json" else table(topology, _reserved(parsed)), end="")


def _reserved(parsed: Namespace) -> CpuSet:
    """What is reserved by the driver; nothing when nobody says so."""
    if parsed.reserved is not None:
        return planning.cpuset_of(parsed.reserved, "--reserved")
    try:
        document = read_state(Path(parsed.state_dir))
    except StateError:
        return EMPTY  # no agent runs here
    assert isinstance(document, dict)
    return CpuSet.parse(document["reserved"])


def _plan(parsed: Namespace) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `dracpu-agent plan ... | head` ends without a word
    planner = planning.Planner(_machines(parsed), parsed.bench)
    if parsed.cpus is not None:
        answer = planner.answer(_question(parsed), parsed.machine)
        print(json.dumps(answer))
        sys.exit("error" in answer)
    if parsed.reserved or any(part is not None for part in (parsed.available, parsed.cpuset, parsed.machine)):
        raise planning.QuestionError("--available, --reserved, --cpuset and --machine go with --cpus; cases say it all")
    if sys.stdin.isatty():
        raise planning.QuestionError("ask for a number of --cpus, or write cases to standard input")
    broken: list[int] = []
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if not line.strip():
            continue
        answer, is_case = planner.answer_line(line, number)
        print(json.dumps(answer), flush=True)  # who asks line by line waits for it
        if not is_case:
            broken.append(number)
    if broken:
        raise planning.QuestionError(
            f"{len(broken)} of the lines could not be understood, the first is line {broken[0]}; their answers say why"
        )


def _machines(parsed: Namespace) -> Mapping[str, Topology]:
    if parsed.topology is None:
        return {described.ONLY: read(Path(parsed.sysfs_root), Path(parsed.procfs_root))}
    try:
        return described.machines(Path(parsed.topology).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, TopologyError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise planning.QuestionError(f"--topology {parsed.topology}: {reason}") from error


def _question(parsed: Namespace) -> planning.Question:
    allocation = Allocation(
        Strategy(parsed.strategy), full_cores=parsed.full_cores, prefer_uncore_cache=parsed.prefer_uncore
    )
    explicit = None if parsed.cpuset is None else planning.cpuset_of(parsed.cpuset, "--cpuset")
    return planning.Question(
        ask=Ask(parsed.cpus, allocation, explicit),
        device=parsed.device,
        available=None if parsed.available is None else planning.cpuset_of(parsed.available, "--available"),
        reserved=planning.cpuset_of(parsed.reserved, "--reserved"),
    )


def _state(parsed: Namespace) -> None:
    document = _state_document(Path(parsed.state_dir))
    print(json.dumps(document, indent=2) + "\n" if parsed.output == "json" else table_of(document), end="")


def _state_document(state_dir: Path) -> Mapping[str, Any]:
    try:
        document = read_state(state_dir)
    except StateError as error:
        loaded = load(state_dir)
        if loaded.checkpoint is None:
            raise StateError(
                f"{error}; there is no checkpoint in {state_dir} either {loaded.damage}".strip()
            ) from error
        print(f"dracpu-agent: {error}; this is its last checkpoint", file=sys.stderr)
        return document_of_checkpoint(loaded.checkpoint)
    assert isinstance(document, dict)
    return document


_COMMANDS = {"run": _run, "topology": _topology, "plan": _plan, "state": _state}

if __name__ == "__main__":
    main()
