"""The operator as a process of its own, with what it costs."""

import asyncio
import contextlib
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
from helm_chart import NAMESPACE

from dracpu_api.resources import Json
from dracpu_sandbox.binaries import API_SERVER, ETCD
from fleet.errors import BenchError

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_START_SECONDS: Final = 300.0
_PORT: Final = re.compile(r'"http_port": (\d+)')


@dataclass(frozen=True)
class Operator:
    """A running operator."""

    process: asyncio.subprocess.Process
    log: Path

    @property
    def cpu_seconds(self) -> float:
        """The processor time that it has used."""
        return cpu_seconds(self.process.pid)

    def memory(self) -> tuple[float, float]:
        """Resident memory now and at its peak, in MiB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.endswith("kB")}
        return found["VmRSS"], found["VmHWM"]

    async def until_ready(self) -> float:
        """Waits until the operator reports that it is ready; returns the seconds."""
        began = time.monotonic()
        async with asyncio.timeout(_START_SECONDS):
            while (started := _PORT.search(self.log.read_text())) is None:
                self._check()
                await asyncio.sleep(0.05)
            async with aiohttp.ClientSession(f"http://127.0.0.1:{started[1]}") as probes:
                while True:
                    self._check()
                    async with probes.get("/readyz") as answer:
                        if answer.status == 200:
                            return time.monotonic() - began
                    await asyncio.sleep(0.05)

    def _check(self) -> None:
        if self.process.returncode is not None:
            raise BenchError(f"the operator has ended: see {self.log}")


def cpu_seconds(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def control_plane_seconds() -> float:
    """The processor time that the control plane has used; its programs are children of this process."""
    children = (task / "children" for task in Path("/proc/self/task").iterdir())
    pids = [int(pid) for file in children for pid in file.read_text().split()]
    names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids}
    return sum(cpu_seconds(pid) for pid, name in names.items() if name in {API_SERVER, ETCD})


@contextlib.asynccontextmanager
async def operator(kubeconfig: Json, folder: Path, *wrapper: str) -> AsyncIterator[Operator]:
    """Runs the operator until the body ends."""
    file, log = folder / "operator.kubeconfig", folder / "operator.log"
    file.write_text(json.dumps(kubeconfig))
    options = {"--kubeconfig": str(file), "--namespace": NAMESPACE, "--http-address": "127.0.0.1:0"}
    words = ("-m", "dracpu_operator", "run", *(word for option in options.items() for word in option))
    environment = {**os.environ, "POD_NAME": "dracpu-operator-0"}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *wrapper, *words, stdout=output, stderr=output, env=environment
        )
    try:
        yield Operator(process, log)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
