"""Runs the real operator against a test's API server, with intervals so short that no test waits for them."""

import asyncio
import base64
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import yaml

from dracpu_operator.intervals import Intervals
from dracpu_sandbox.operating import operate

QUICK: Final = Intervals(
    debounce=0.01,
    gathering=0.0,
    first_recheck=60.0,
    recheck=60.0,
    removal=0.0,
    status=0.05,
    status_urgent=0.02,
    retry_first=0.02,
    retry_cap=0.05,
    writers=4,
)


class RunningOperator:
    """Runs the operator inside of an `async with` block, and raises at its end the error that ended the operator."""

    def __init__(
        self, server: str, folder: Path, intervals: Intervals = QUICK, *, authority: str = "", namespace: str = ""
    ) -> None:
        self._path = folder / "kubeconfig"
        self._path.write_text(yaml.safe_dump(kubeconfig(server, authority)))
        self._intervals = intervals
        self._namespace = namespace  # of the agents' pods; "": they are not followed

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(operate(self._path, self._intervals, self._namespace), name="operator")
        return self

    async def ended(self) -> None:
        """Waits until the operator stops by itself, and raises its error."""
        await asyncio.shield(self._running)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.cancel()
        await asyncio.wait({self._running})
        if not self._running.cancelled():
            self._running.result()


def kubeconfig(server: str, authority: str = "", *, token: str = "secret") -> dict[str, object]:
    """The content of a kubeconfig file; for a server with TLS, `authority` is its certificate authority as PEM."""
    trust = {"certificate-authority-data": base64.b64encode(authority.encode()).decode()} if authority else {}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": server, **trust}}],
        "users": [{"name": "test", "user": {"token": token}}],
    }
