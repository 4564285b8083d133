"""The real agent of a node: as a task of this process, or as a process of its own."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, Protocol

from dracpu_agent.app import Agent
from dracpu_agent.cli.options import PREFIX, parser, run_options
from dracpu_agent.cluster.access import from_kubeconfig
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.host.sysfs import read
from dracpu_agent.version import __version__
from dracpu_api.errors import DriverError
from dracpu_sandbox.errors import SandboxError, cause

AgentKind = Literal["task", "process"]

STOP_SECONDS: Final = 30.0  # a pod has 30 s to end


class AgentEndedError(SandboxError):
    """The agent has ended by itself."""


class AgentHost(Protocol):
    """Runs an agent, again and again."""

    brutal: bool  # whether it is killed when it is stopped

    async def serve(self) -> None:
        """Until it is cancelled, which is SIGTERM to the agent; AgentEndedError when the agent ends by itself."""
        ...

    def read_machine_again(self) -> None:
        """SIGHUP: CPUs came or went."""
        ...


class TaskAgent:
    """In this process, which cannot kill it: however it is stopped, it takes its leave."""

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
                self._agent = Agent(options, topology, api)
                await self._agent.run()
        except* DriverError as errors:
            raise AgentEndedError(f"the agent of {options.node_name} has ended: {cause(errors)}") from errors
        finally:
            self._agent = None

    def read_machine_again(self) -> None:
        """See AgentHost."""
        if self._agent is not None:
            self._agent.read_machine_again()


class ProcessAgent:
    """A process of its own; `brutal` is SIGKILL."""

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
                start_new_session=True,  # Ctrl-C is for the sandbox, which stops its agents then
            )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await self._stop(process)
            raise
        finally:
            self._process = None
        raise AgentEndedError(f"the agent has ended with {code}; its log is {self._log}")

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
        if process.returncode is None:  # as the kubelet would, when its grace is over
            process.kill()
            await process.wait()
