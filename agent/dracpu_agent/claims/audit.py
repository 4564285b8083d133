"""Decides which claims the ledger may release although the kubelet has not unprepared them.

The kubelet forgets claims only in rare accidents, and a claim released by mistake is an outage. So the audit requires
two findings, minutes apart, that the claim is gone from the API server, replaced or allocated to another node, while
the runtime lists no container of it.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any


class Finding(Enum):
    """The state of a held claim in the API server."""

    IN_ORDER = "the claim is allocated on this node"
    GONE = "the claim does not exist any more"
    REPLACED = "another claim has its name"
    ELSEWHERE = "the claim is not allocated on this node any more"


def look(driver: str, uid: str, claim: Mapping[str, Any] | None, node_name: str) -> Finding:
    """Judges the claim object that the API server returned; None stands for 404."""
    if claim is None:
        return Finding.GONE
    if claim["metadata"]["uid"] != uid:
        return Finding.REPLACED
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    ours = any(result["driver"] == driver and result["pool"] == node_name for result in results)
    return Finding.IN_ORDER if ours else Finding.ELSEWHERE


class Audit:
    """Remembers which claims were missing, because only the second finding counts."""

    def __init__(self) -> None:
        self._suspects: set[str] = set()

    def judge(self, findings: Mapping[str, Finding], in_use: Iterable[str]) -> list[str]:
        """One round's findings by claim UID -> the claims to release now."""
        missing = {uid for uid, finding in findings.items() if finding is not Finding.IN_ORDER} - set(in_use)
        confirmed = sorted(missing & self._suspects)
        self._suspects = missing - set(confirmed)
        return confirmed
