"""Keeps the CPUs of claims that were given up while processes of their pods still run.

The runtime does not list every container that runs: containerd leaves out those whose state it does not know, because
their shim did not answer after a restart, and it never reports their end. So a claim without listed containers is not
released before the cgroups of its pods are empty.
"""

import asyncio
from typing import Final, NoReturn, Protocol

import structlog

from dracpu_agent.file_threads import in_file_thread
from dracpu_agent.node import NodeState
from dracpu_agent.placement.proof import ClaimKey

POLL_SECONDS: Final = 1.0  # a new claim may wait for the CPUs

log = structlog.get_logger("claims")


class Tree(Protocol):
    """Reads the cgroup tree. The method blocks."""

    def running(self, pod_uids: frozenset[str]) -> frozenset[str]:
        """Those of the pods in whose cgroups processes run."""
        ...


class Lingering:
    """Reads the cgroups of the pods of lingering claims."""

    def __init__(self, node: NodeState, tree: Tree) -> None:
        self._node = node
        self._tree = tree
        self._kept: frozenset[ClaimKey] = frozenset()

    async def look(self, given_up: ClaimKey | None = None) -> None:
        """Reads them once, and those of a claim that is about to be released."""
        claims = [claim for claim in self._node.all_claims() if claim.lingering or claim.key == given_up]
        pods = frozenset(pod for claim in claims for pod in claim.consumers)
        running = await in_file_thread(self._tree.running, pods) if pods else pods
        for holding in self._node.holdings.values():
            holding.set_running_pods(pods, running)
        self._report()

    async def run(self) -> NoReturn:
        """Reads them every second until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.look()

    def _report(self) -> None:
        claims = [holding[uid] for holding in self._node.holdings.values() for uid in holding.kept_for_processes()]
        for claim in claims:
            if claim.key not in self._kept:
                log.warning(
                    "claim without containers is kept: processes of its pods still run",
                    claim=str(claim.ref),
                    holds=claim.content,
                )
        self._kept = frozenset(claim.key for claim in claims)
