"""One life of an agent on a node's files, for tests of its transactions: only the API server is played."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from nodes import NODE, SAFE_RUNTIME, machine, spec

from dracpu_agent.cdi.files import CdiDirectory
from dracpu_agent.checkpoint.statefile import StateFile
from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.errors import NotReadyError
from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.node import NodeState
from dracpu_agent.placement.container import Container
from dracpu_agent.work.lingering import Lingering
from dracpu_agent.work.recovery import recover
from dracpu_agent.work.transactions import ClaimTransactions


def files(root: Path) -> list[str]:
    """Returns the names of the CDI files of an agent, unfinished ones included."""
    return sorted(path.name for path in (root / "cdi").glob("*"))


class Claims:
    """The API server's claims; `away` makes it unreachable."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.objects = {made["metadata"]["uid"]: made for made in objects}
        self.away = False
        self.read_count = 0

    async def read(self, ref: ClaimRef, seconds: float) -> dict[str, Any]:
        self.read_count += 1
        await asyncio.sleep(0)
        if self.away:
            raise NotReadyError("the API server does not answer")
        return self.objects[ref.uid]

    async def read_with_retries(self, ref: ClaimRef, seconds: float) -> dict[str, Any]:
        return await self.read(ref, seconds)

    async def read_if_there(self, ref: ClaimRef, seconds: float) -> dict[str, Any] | None:
        await asyncio.sleep(0)
        return self.objects.get(ref.uid)

    async def roots_beside(self, claim: dict[str, Any]) -> dict[str, frozenset[str]]:
        raise AssertionError("a machine without PCIe roots has nothing to ask for")


class Silent:
    """Ignores the outcome of transactions."""

    def prepared(self, claim: HeldClaim[Any], seconds: float) -> None: ...
    def prepare_failed(self, ref: ClaimRef, reason: str) -> None: ...
    def unprepared(self, ref: ClaimRef, error: str) -> None: ...


class Agent:
    """One life of an agent on a node's files."""

    def __init__(self, root: Path, claims: Claims, runtime_seconds: float = 0.0) -> None:
        self.node = NodeState(NODE, machine())
        self.state_file = StateFile(root / "state", self.node.checkpoint, lambda _seconds, _problem: None)
        self.cdi = CdiDirectory(root / "cdi", CpuClaim)
        self.lingering = Lingering(self.node, CgroupTree(root / "cgroup"))
        self.transactions = ClaimTransactions(
            self.node,
            self.node.claims,
            claims,
            self.state_file,
            self.cdi,
            wait_until_settled=self.push,
            observer=Silent(),
            look_at_pods=self.lingering.look,
            runtime_seconds=runtime_seconds,  # 0: a Prepare does not wait for the runtime
        )

    async def push(self, claim: HeldClaim[Any]) -> None:
        """Waits for no update of the runtime."""
        await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def alive(self, containers: Sequence[Container] = ()) -> AsyncIterator["Agent"]:
        """The agent's life: it takes over the files, and is connected to a runtime with these containers."""
        self.state_file.lock()
        loaded = self.state_file.load()
        if loaded.checkpoint is not None:
            recover(self.node, loaded, self.cdi)
        else:
            self.node.configure(spec())
        self.node.containers.connected(SAFE_RUNTIME)
        self.node.containers.synchronize(containers)
        writer = asyncio.create_task(self.state_file.run())
        try:
            yield self
        finally:
            writer.cancel()
            await asyncio.wait([writer])
            self.state_file.unlock()
