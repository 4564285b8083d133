"""Runs the real kubectl, if it is installed, against the API server of the sandbox."""

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from lab.paths import Paths

from dracpu_sandbox.apiserver.server import ApiServer

PROGRAM: Final = shutil.which("kubectl") or shutil.which(Paths.default().bin / "kubectl")
MISSING: Final = "kubectl is neither in PATH nor built by the lab: install it or run `make lab`"
_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Printed:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        """Returns the words of each line of the output."""
        return [line.split() for line in self.out.splitlines()]


class Kubectl:
    """Runs kubectl against a server, with its own kubeconfig, cache and home folder."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self._folder = folder
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))

    async def __call__(self, *words: str, text: str = "", **environment: str) -> str:
        """Runs a command that must succeed, and returns its output."""
        printed = await self.run(*words, text=text, **environment)
        assert printed.code == 0, printed
        return printed.out

    async def run(self, *words: str, text: str = "", **environment: str) -> Printed:
        """Runs a command with `text` as its input and returns its result, also when it fails."""
        process = await self.start(*words, **environment)
        async with asyncio.timeout(_SECONDS):
            out, err = await process.communicate(text.encode())
        assert process.returncode is not None
        return Printed(process.returncode, out.decode(), err.decode())

    async def start(self, *words: str, **environment: str) -> asyncio.subprocess.Process:
        """Starts a command without waiting for its end."""
        assert PROGRAM is not None, MISSING
        return await asyncio.create_subprocess_exec(
            PROGRAM,
            f"--kubeconfig={self._kubeconfig}",
            f"--cache-dir={self._folder / 'cache'}",
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"HOME": str(self._folder), "PATH": os.environ["PATH"], **environment},
        )
