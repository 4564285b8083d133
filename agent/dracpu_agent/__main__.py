"""The command `dracpu-agent`: parses the command line and calls the command that it names.

Each command is imported when it runs: `run` serves on every node of a cluster and does not need the memory of the
others, and these need neither gRPC nor HTTP.
"""

import asyncio
import sys
from argparse import Namespace

from dracpu_agent.cli import options
from dracpu_api.errors import DriverError


def main() -> None:
    """Runs a command. An error that the driver reports is printed as one line, and the exit code is 1."""
    parsed = options.parse(sys.argv[1:])
    try:
        _COMMANDS[parsed.command](parsed)
    except DriverError as error:
        sys.exit(f"dracpu-agent: {error}")


def _run(parsed: Namespace) -> None:
    from dracpu_agent.app import run  # noqa: PLC0415 - see above
    from dracpu_api import logging  # noqa: PLC0415 - see above

    run_options = options.run_options(parsed)
    logging.configure(run_options.log_format, run_options.log_level)
    asyncio.run(run(run_options))


def _topology(parsed: Namespace) -> None:
    from dracpu_agent.cli.topology import print_topology  # noqa: PLC0415 - see above

    print_topology(parsed)


def _memory(parsed: Namespace) -> None:
    from dracpu_agent.cli.memory import print_memory  # noqa: PLC0415 - see above

    print_memory(parsed)


def _plan(parsed: Namespace) -> None:
    from dracpu_agent.cli.plan import print_answers  # noqa: PLC0415 - see above

    print_answers(parsed)


def _state(parsed: Namespace) -> None:
    from dracpu_agent.cli.state import print_state  # noqa: PLC0415 - see above

    print_state(parsed)


_COMMANDS = {"run": _run, "topology": _topology, "memory": _memory, "plan": _plan, "state": _state}

if __name__ == "__main__":
    main()
