"""Runs the real agent of a node: as a task of this process, or as a separate process."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, Protocol

from dracpu_agent.app import Agent, other_drivers
from dracpu_agent.cli.options import PREFIX, parser, run_options
from dracpu_agent.cluster.access import from_kubeconfig
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.host.sysfs import read
from dracpu_agent.version import __version__
from dracpu_api.errors import DriverError
from dracpu_sandbox.errors import SandboxError, cause

AgentKind = Literal["task", "process"]

STOP_SECONDS: Final = 30.0  # kubelet: a pod has 30 s to end by default


class AgentEndedError(SandboxError):
    """The agent has exited by itself."""


class AgentHost(Protocol):
    """Runs an agent, any number of times."""

    brutal: bool  # whether stopping it means killing it

    async def serve(self) -> None:
        """Runs until it is cancelled, which acts as SIGTERM; raises AgentEndedError if the agent exits by itself."""
        ...

    def read_machine_again(self) -> None:
        """Acts as SIGHUP: the agent reads its CPUs again."""
        ...


class TaskAgent:
    """Runs the agent in this process. It cannot be killed: even a brutal stop lets it clean up."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.brutal = False
        self._agent: Agent | None = None
        self._options = run_options(parser({}).parse_args(["run", *arguments]))

    async def serve(self) -> None:
        """See AgentHost."""
        options = self._options
        assert options.kubeconfig is not None
        try:
            topology = await asyncio.to_thread(read, options.sysfs_root, options.procfs_root)
            async with ApiClient(from_kubeconfig(options.kubeconfig), version=__version__) as api:
                self._agent = Agent(options, topology, api, *await other_drivers(options, topology))
                await self._agent.run()
        except* DriverError as errors:
            raise AgentEndedError(f"the agent of {options.node_name} has exited: {cause(errors)}") from errors
        finally:
            self._agent = None

    def read_machine_again(self) -> None:
        """See AgentHost."""
        if self._agent is not None:
            self._agent.read_machine_again()


class ProcessAgent:
    """Runs the agent as a separate process; a brutal stop is SIGKILL."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self.brutal = False
        self._command = (sys.executable, "-m", "dracpu_agent", "run", *arguments)
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def serve(self) -> None:
        """See AgentHost."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        with self._log.open("ab") as log:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C goes to the sandbox only, which then stops its agents
            )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await self._stop(process)
            raise
        finally:
            self._process = None
        raise AgentEndedError(f"the agent has exited with {code}; its log is {self._log}")

    def read_machine_again(self) -> None:
        """See AgentHost."""
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        if not self.brutal:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await process.wait()
        if process.returncode is None:  # kubelet: kills after the grace period
            process.kill()
            await process.wait()
