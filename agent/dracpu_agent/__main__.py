"""The command `dracpu-agent`: parses the command line and calls the command that it names."""

import asyncio
import sys
from argparse import Namespace

from dracpu_agent.cli import options, plan, state, topology
from dracpu_api import logging
from dracpu_api.errors import DriverError


def main() -> None:
    """Runs a command. An error that the driver reports is printed as one line, and the exit code is 1."""
    parsed = options.parse(sys.argv[1:])
    try:
        _COMMANDS[parsed.command](parsed)
    except DriverError as error:
        sys.exit(f"dracpu-agent: {error}")


def _run(parsed: Namespace) -> None:
    from dracpu_agent.app import run  # noqa: PLC0415 - the other commands need neither gRPC nor HTTP

    run_options = options.run_options(parsed)
    logging.configure(run_options.log_format, run_options.log_level)
    asyncio.run(run(run_options))


_COMMANDS = {
    "run": _run,
    "topology": topology.print_topology,
    "plan": plan.print_answers,
    "state": state.print_state,
}

if __name__ == "__main__":
    main()
