"""The claims of one driver, from Prepare to Unprepare, whatever it is that they hold.

A claim is granted once: another Prepare of the same allocation gets the same answer. A claim that ends while containers
still use it lingers, and what it holds becomes free when the last of them has ended.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol

from dracpu_agent.claims.ledger import C
from dracpu_agent.claims.request import A, ClaimRefusedError, ClaimRequest
from dracpu_agent.drivers.driver import Driver
from dracpu_agent.errors import ClaimError
from dracpu_agent.placement.proof import ClaimKey


@dataclass(frozen=True, slots=True)
class Granted(Generic[C]):
    """The result of `grant`, with which a failing transaction is undone."""

    claim: C
    fresh: bool  # False: the ledger held the claim already, nothing was taken


class Users(Protocol):
    """The node's containers, by the claims that they use."""

    @property
    def synchronized(self) -> bool:
        """True while every container of the node is known."""

    def uses(self, claim: ClaimKey) -> bool:
        """True while a container of the claim exists."""

    def pods_of(self, claim: ClaimKey) -> frozenset[str]:
        """The UIDs of the pods that have containers of the claim."""

    def forget_unstored(self, claim: ClaimKey) -> None:
        """The kubelet has given a claim up: creations of its containers that were never reported again have failed."""


class Holding(Mapping[str, C], Generic[A, C]):
    """Claim UID -> the claim."""

    def __init__(self, driver: Driver[A, C], users: Callable[[], Users], changed: Callable[[], None]) -> None:
        """`changed` is called after every change of what is held."""
        self.driver = driver
        self._ledger = driver.ledger
        self._users = users
        self._changed = changed
        self._running_pods: frozenset[str] = frozenset()  # of lingering claims

    def __getitem__(self, uid: str) -> C:
        return self._ledger.claims[uid]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ledger.claims)

    def __len__(self) -> int:
        return len(self._ledger.claims)

    @property
    def name(self) -> str:
        """The driver's name."""
        return self.driver.names.driver

    def key(self, uid: str) -> ClaimKey:
        """The key of one of the claims among those of all drivers."""
        return ClaimKey(self.name, uid)

    def take(self, claim: C) -> None:
        """Books a claim of an earlier agent; raises LedgerError when another claim holds the same."""
        self._ledger.take(claim)
        self.driver.adopted()
        self._changed()

    # ---- Prepare

    def chooses(self, request: ClaimRequest[A]) -> bool:
        """Whether `grant` would have the driver choose: nothing is held for this allocation of the claim. Raises
        ClaimFrozenError."""
        held = self._ledger.find(request.ref.uid)
        return held is None or held.digest != request.digest

    def grant(self, request: ClaimRequest[A]) -> Granted[C]:
        """Grants a claim what it holds already, or else the driver's choice."""
        held = self._ledger.find(request.ref.uid)
        if held is not None and not self.chooses(request):
            return self._revive(held, request.consumers)
        if held is not None and self._in_use(request.ref.uid):
            raise ClaimRefusedError(
                f"claim {request.ref} was allocated anew, but containers still use what its former allocation "
                "gave them: they have to end first"
            )
        if held is not None:
            self._ledger.release(request.ref.uid)
        try:
            claim = self.driver.claim_type(request.ref, self.driver.choose(request), request.consumers, request.digest)
            self._ledger.take(claim)
        except ClaimError:
            if held is not None:
                self._ledger.take(held)
            raise
        self._changed()
        return Granted(claim, fresh=True)

    def grant_held(self, uid: str) -> Granted[C] | None:
        """Answers for a claim that the ledger holds, without reading the claim again; None when it holds none."""
        held = self._ledger.find(uid)
        return None if held is None else self._revive(held, held.consumers)

    def undo(self, granted: Granted[C]) -> None:
        """Takes back what `grant` took; what a container uses meanwhile stays held."""
        uid = granted.claim.ref.uid
        if not granted.fresh or uid not in self:
            return
        if self._in_use(uid):
            self._ledger.set_lingering(uid, lingering=True)
        else:
            self._ledger.release(uid)
        self._changed()

    # ---- Unprepare

    def release(self, uid: str) -> bool:
        """Ends a claim; False when its containers still run, so that it lingers."""
        if uid not in self:
            return True
        users = self._users()
        users.forget_unstored(self.key(uid))
        in_use = self._in_use(uid) or not users.synchronized or self._has_processes(uid)
        if in_use:
            self._ledger.set_lingering(uid, lingering=True)
        else:
            self._ledger.release(uid)
        self._changed()
        return not in_use

    def release_unused(self, uids: frozenset[str] | None) -> None:
        """Releases those of these claims that linger, as their containers have ended; None: all lingering claims that
        nothing uses."""
        for uid in tuple(self) if uids is None else uids:
            claim = self.get(uid)
            if claim is None or not claim.lingering or self._in_use(uid):
                continue
            if uids is not None or not self._has_processes(uid):
                self._ledger.release(uid)
                self._changed()

    def set_running_pods(self, asked: frozenset[str], running: frozenset[str]) -> None:
        """Those of the pods in whose cgroups processes run; the runtime may not list their containers. What is known of
        other pods stays, as two looks may overlap."""
        lingering = frozenset(pod for claim in self.values() if claim.lingering for pod in claim.consumers)
        self._running_pods = ((self._running_pods & lingering) - asked) | running
        if self._users().synchronized:
            self.release_unused(None)

    def kept_for_processes(self) -> frozenset[str]:
        """The lingering claims without containers whose pods have processes all the same."""
        lingering = (uid for uid, claim in self.items() if claim.lingering)
        return frozenset(uid for uid in lingering if self._has_processes(uid) and not self._in_use(uid))

    # ---- others

    def set_consumers(self, uid: str, reserved_for: frozenset[str]) -> None:
        """A claim was read again: its pods are those that it is reserved for, and those whose containers still run.

        Raises ClaimRefusedError for a claim that serves one pod and is reserved for several: it stays with the pod that
        it was prepared for, whose containers may start later than those of the others."""
        claim = self.get(uid)
        if claim is None:
            return
        self._with_consumers(claim, reserved_for)
        if claim.serves_one_pod and len(reserved_for) > 1:
            raise ClaimRefusedError(
                f"claim {claim.ref} serves one pod, and it is reserved for {len(reserved_for)}: use a "
                "ResourceClaimTemplate, which makes a claim for each pod"
            )

    def _revive(self, held: C, consumers: frozenset[str]) -> Granted[C]:
        if held.lingering:
            held = self._ledger.set_lingering(held.ref.uid, lingering=False)
            self._changed()
        return Granted(self._with_consumers(held, consumers), fresh=False)

    def _with_consumers(self, held: C, reserved_for: frozenset[str]) -> C:
        if held.serves_one_pod and len(reserved_for) > 1:
            reserved_for &= held.consumers
        consumers = reserved_for | self._users().pods_of(self.key(held.ref.uid))
        if consumers != held.consumers:
            held = self._ledger.set_consumers(held.ref.uid, consumers)
            self._changed()
        return held

    def _in_use(self, uid: str) -> bool:
        return self._users().uses(self.key(uid))

    def _has_processes(self, uid: str) -> bool:
        return not self[uid].consumers.isdisjoint(self._running_pods)
