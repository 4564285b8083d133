"""The command `dracpu-agent`."""

import asyncio
import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dracpu_agent.document import document_of_checkpoint, table_of
from dracpu_agent.errors import DriverError
from dracpu_agent.observe import logging
from dracpu_agent.observe.state import StateError, read_state
from dracpu_agent.options import parse, run_options
from dracpu_agent.statefile import load
from dracpu_agent.topology import export
from dracpu_agent.topology.sysfs import read
from dracpu_agent.topology.table import table


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
    print(export.to_json(topology) if parsed.output == "json" else table(topology), end="")


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


_COMMANDS = {"run": _run, "topology": _topology, "state": _state}

if __name__ == "__main__":
    main()
