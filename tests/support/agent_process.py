"""The agent in a process of its own, for measurements."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

from fake_api import FakeApi
from nodes import NODE


def kubeconfig(url: str) -> str:
    """A kubeconfig without credentials."""
    cluster = {"name": "c", "cluster": {"server": url}}
    context = {"name": "c", "context": {"cluster": "c", "user": ""}}
    return json.dumps({"clusters": [cluster], "contexts": [context], "current-context": "c"})


def memory(pid: int) -> str:
    """Resident memory, and the private part of it."""
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if rest.endswith("kB"):
            fields[name] = int(rest.removesuffix("kB")) / 1024
    return f"{fields['Rss']:.1f} MiB RSS, {fields['Private_Clean'] + fields['Private_Dirty']:.1f} private"


def peak_memory(pid: int) -> str:
    """The most memory that was resident at any time."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return f"{int(line.split()[1]) / 1024:.1f} MiB"


NO_OPTIONS: Final[Mapping[str, Path]] = {}


@contextlib.asynccontextmanager
async def agent(
    root: Path, api: FakeApi, sysfs: Path, procfs: Path, more: Mapping[str, Path] = NO_OPTIONS
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The agent's process; `more` are other options."""
    (root / "kubeconfig").write_text(kubeconfig(api.url))
    options = {
        "--node-name": NODE,
        "--kubeconfig": root / "kubeconfig",
        "--kubelet-root": root,
        "--sysfs-root": sysfs,
        "--procfs-root": procfs,
        "--cdi-dir": root / "cdi",
        "--nri-socket": root / "nri.sock",
        "--state-dir": root / "state",
        "--http-address": "127.0.0.1:0",
        "--log-level": "error",
        **more,
    }
    python = os.environ.get("AGENT_PYTHON", sys.executable)
    arguments = [str(part) for option in options.items() for part in option]
    process = await asyncio.create_subprocess_exec(python, "-m", "dracpu_agent", "run", *arguments)
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()
