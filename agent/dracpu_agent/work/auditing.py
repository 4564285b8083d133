"""Runs the audit: reads every held claim from the API server, and releases those that claims/audit.py condemns."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from dracpu_agent.claims.audit import Audit, Finding, look
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.drivers.holding import Holding
from dracpu_agent.errors import ClaimError
from dracpu_agent.node import NodeState

ROUND_SECONDS: Final = 300.0
READ_SECONDS: Final = 10.0

log = structlog.get_logger("audit")


class Auditor:
    """Finds claims that the kubelet has forgotten and will never unprepare."""

    def __init__(
        self,
        node: NodeState,
        holding: Holding[Any, Any],
        read_if_there: Callable[[ClaimRef, float], Awaitable[dict[str, Any] | None]],
        release_if_gone: Callable[[ClaimRef], Awaitable[Finding]],
        released: Callable[[HeldClaim[Any], str], None],
        round_seconds: float = ROUND_SECONDS,
    ) -> None:
        self._node = node
        self._holding = holding
        self._read = read_if_there
        self._release_if_gone = release_if_gone
        self._released = released
        self._round_seconds = round_seconds
        self._audit = Audit()

    async def run(self) -> None:
        """A round every few minutes."""
        while True:
            await asyncio.sleep(self._round_seconds)
            try:
                await self.round()
            except ClaimError as error:
                log.warning("audit postponed", error=str(error))

    async def round(self) -> None:
        """One look at every claim; needs the API server and the runtime's containers."""
        if not self._node.containers.synchronized:
            return
        # a frozen claim may be allocated in a way that this agent does not know
        claims = {uid: claim for uid, claim in self._holding.items() if claim.frozen is None}
        findings = {
            uid: look(self._holding.name, uid, await self._read(claim.ref, READ_SECONDS), self._node.node_name)
            for uid, claim in claims.items()
        }
        in_use = {claim.uid for claim in self._node.containers.used_claims() if claim.driver == self._holding.name}
        for uid in self._audit.judge(findings, in_use):
            try:
                finding = await self._release_if_gone(claims[uid].ref)
            except ClaimError as error:  # the others must not wait for this claim
                log.warning("claim not released", claim=str(claims[uid].ref), error=str(error))
                continue
            if finding is not Finding.IN_ORDER:
                self._released(claims[uid], finding.value)
