"""Runs operators as processes of their own, so that tests can kill and stop them. They take part in the election of a
leader, at a pace that is quick and still endures a busy machine.

    async with OperatorProcess(api.url, tmp_path, "first") as first:
        ...
        first.kill()
"""

import asyncio
import contextlib
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import yaml
from running_operator import QUICK, kubeconfig

from dracpu_api.errors import DriverError
from dracpu_operator import app, logging
from dracpu_operator.decide.leadership import LeasePace
from dracpu_operator.options import RunOptions

NAMESPACE: Final = "dra-cpu-system"
LEASE: Final = f"{NAMESPACE}/dracpu-operator"
PACE: Final = LeasePace(lease=3, deadline=2.0, renew=0.3, retry=0.1, look=0.2, request=1.0)


class OperatorProcess:
    """A process with a token of its own, which is its name: requests of several processes can be told apart."""

    def __init__(self, server: str, folder: Path, name: str, *, elects: bool = True) -> None:
        self.name = name
        self.printed: list[str] = []
        self._file = folder / f"{name}.yaml"
        self._file.write_text(yaml.safe_dump(kubeconfig(server, token=name)))
        self._elects = elects

    async def __aenter__(self) -> Self:
        words = [sys.executable, __file__, str(self._file), self.name, "yes" if self._elects else "no"]
        self._process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()
        await self._reading

    async def port(self) -> int:
        """Waits until the process serves its pages; returns their port."""
        async with asyncio.timeout(20):
            while True:
                for line in self.printed:
                    if found := re.search(r'"http_port": (\d+)', line):
                        return int(found[1])
                await asyncio.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    async def killed(self) -> None:
        """Kills the process as the kernel does when memory is short, and waits for its end."""
        self._process.kill()
        await self._process.wait()

    async def ended(self, seconds: float = 30.0) -> int:
        """Waits until the process has ended; returns its exit code."""
        async with asyncio.timeout(seconds):
            await self._process.wait()
            await asyncio.shield(self._reading)
        assert self._process.returncode is not None
        return self._process.returncode

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.printed.append(line.decode())


def _main(file: str, name: str, elects: str) -> None:
    logging.configure("json", "info")
    options = RunOptions(Path(file), "127.0.0.1:0", namespace=NAMESPACE, leader_elect=elects == "yes")
    intervals = replace(QUICK, debounce=0.05)
    try:
        asyncio.run(app.run(options, intervals=intervals, pace=PACE, instance=name))
    except DriverError as error:
        sys.exit(f"dracpu-operator: {error}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
