"""Records which claims a driver holds, by UID. A driver whose claims must not share anything checks that in its own
ledger."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.errors import ClaimError
from dracpu_api.errors import DriverError

C = TypeVar("C", bound=HeldClaim[Any])


class ClaimFrozenError(ClaimError):
    """The kubelet prepares a claim whose record this agent cannot decode."""


class LedgerError(DriverError):
    """Two claims would hold the same thing: a defect of this driver, stopped before it does harm."""


class Ledger(Generic[C]):
    """Claim UID -> held claim."""

    def __init__(self) -> None:
        self._claims: dict[str, C] = {}

    @property
    def claims(self) -> Mapping[str, C]:
        """The claims by UID; read only."""
        return self._claims

    def find(self, uid: str) -> C | None:
        """The claim, if it is held; raises ClaimFrozenError when its record cannot be decoded."""
        claim = self._claims.get(uid)
        if claim is not None and claim.frozen is not None:
            raise ClaimFrozenError(
                f"claim {claim.ref} was prepared by a newer agent, and this agent cannot read its record "
                f"({claim.frozen.reason}): install the newer version again, or delete the pods that use the claim"
            )
        return claim

    def take(self, claim: C) -> None:
        """Adds a claim; raises LedgerError, and changes nothing then."""
        if claim.ref.uid in self._claims:
            raise LedgerError(f"claim {claim.ref} ({claim.ref.uid}) is in the ledger already")
        self._claims[claim.ref.uid] = claim

    def release(self, uid: str) -> C:
        """Removes a claim, so that what it holds is free."""
        return self._claims.pop(uid)

    def set_lingering(self, uid: str, *, lingering: bool) -> C:
        """Marks a claim as lingering, or revives it."""
        self._claims[uid] = replace(self._claims[uid], lingering=lingering)
        return self._claims[uid]

    def set_consumers(self, uid: str, consumers: frozenset[str]) -> C:
        """Replaces the pods that may use a claim."""
        self._claims[uid] = replace(self._claims[uid], consumers=consumers)
        return self._claims[uid]
