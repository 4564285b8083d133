"""The kubelet's cache of claims: a claim is prepared once for all its pods, and unprepared after its last pod.

After a restart, a kubelet still has the claims and their devices, but not whether they are prepared: the next pod of a
claim causes another call to prepare it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import grpc

from dracpu_agent.claims.grant import ClaimRef, PreparedDevice
from dracpu_sandbox.node.plugins import KubeletError, RegisteredPlugin, prepared_devices


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """A claim that a pod needs, and the drivers of its devices."""

    ref: ClaimRef
    drivers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device of a prepared claim."""

    driver: str
    device: PreparedDevice

    def serves(self, request: str) -> bool:
        """Whether a container that refers to this request gets the device; "" refers to all requests."""
        return not request or not self.device.requests or request in self.device.requests


@dataclass
class CachedClaim:
    """A claim in the kubelet's cache."""

    ref: ClaimRef
    drivers: tuple[str, ...]
    pods: set[str] = field(default_factory=set)  # UIDs
    devices: tuple[HeldDevice, ...] = ()
    prepared: bool = False
    unpreparing: bool = False  # kubelet 1.37: from the first attempt to unprepare it until one succeeds
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while its drivers are called


class ClaimCache:
    """The claims of one kubelet."""

    def __init__(self, find: Callable[[str], RegisteredPlugin]) -> None:
        self._find = find
        self._claims: dict[str, CachedClaim] = {}  # by UID

    def forget_preparations(self) -> None:
        """Marks all claims as not prepared, because the kubelet restarts."""
        for known in self._claims.values():
            known.prepared = known.unpreparing = False

    async def prepare(self, pod_uid: str, claims: Sequence[AllocatedClaim]) -> None:
        """Prepares the unprepared claims, with one call to each driver; raises KubeletError if a call fails."""
        needed: dict[str, CachedClaim] = {}  # by UID: a pod may name a claim twice
        for claim in claims:
            known = needed[claim.ref.uid] = self._known(claim)
            known.pods.add(pod_uid)
        async with _alone_with(needed.values()):
            missing = [known for known in needed.values() if not known.prepared]
            found: dict[str, list[HeldDevice]] = {}
            for driver, group in _by_driver(missing).items():
                for uid, devices in (await self._call_prepare(driver, group)).items():
                    found.setdefault(uid, []).extend(devices)
            for uid, held in found.items():
                self._claims[uid].devices = tuple(held)
                self._claims[uid].prepared = True

    async def unprepare(self, pod_uid: str) -> None:
        """Unprepares the claims that only this pod uses, because it has ended. The caller retries a KubeletError."""
        async with _alone_with([known for known in self._claims.values() if pod_uid in known.pods]):
            last = [known for known in self._claims.values() if known.pods == {pod_uid}]
            for known in last:
                known.unpreparing = True
            for driver, group in _by_driver(last).items():
                await self._call_unprepare(driver, group)
            for known in self._claims.values():
                known.pods.discard(pod_uid)
            for known in last:
                del self._claims[known.ref.uid]

    def devices(self, claim_uid: str, request: str = "") -> tuple[HeldDevice, ...]:
        """Returns the devices for a container that refers to this request of a prepared claim."""
        known = self._claims.get(claim_uid)
        return tuple(held for held in known.devices if held.serves(request)) if known is not None else ()

    def _known(self, claim: AllocatedClaim) -> CachedClaim:
        for other in self._claims.values():
            same_name = (other.ref.namespace, other.ref.name) == (claim.ref.namespace, claim.ref.name)
            if same_name and other.ref.uid != claim.ref.uid:
                raise KubeletError(
                    f"old ResourceClaim with same name {claim.ref.name} and different UID {other.ref.uid} still exists"
                )
        known = self._claims.setdefault(claim.ref.uid, CachedClaim(claim.ref, claim.drivers))
        if known.unpreparing:
            raise KubeletError(f"ResourceClaim {claim.ref.name} is being unprepared")
        known.drivers = claim.drivers
        return known

    async def _call_prepare(self, driver: str, group: Sequence[CachedClaim]) -> Mapping[str, list[HeldDevice]]:
        plugin = self._find(driver)
        try:
            answers = await plugin.prepare(*(known.ref for known in group))
        except grpc.aio.AioRpcError as error:
            raise KubeletError(f"NodePrepareResources: {error.details()}") from error
        for known in group:
            if answers[known.ref.uid].error:
                raise KubeletError(
                    f"NodePrepareResources failed for ResourceClaim {known.ref.name}: {answers[known.ref.uid].error}"
                )
        return {
            uid: [HeldDevice(driver, device) for device in prepared_devices(answer)] for uid, answer in answers.items()
        }

    async def _call_unprepare(self, driver: str, group: Sequence[CachedClaim]) -> None:
        plugin = self._find(driver)
        try:
            errors = await plugin.unprepare(*(known.ref for known in group))
        except grpc.aio.AioRpcError as error:
            raise KubeletError(f"NodeUnprepareResources: {error.details()}") from error
        for known in group:
            if errors[known.ref.uid]:
                raise KubeletError(
                    f"NodeUnprepareResources failed for ResourceClaim {known.ref.name}: {errors[known.ref.uid]}"
                )


@asynccontextmanager
async def _alone_with(claims: Iterable[CachedClaim]) -> AsyncIterator[None]:
    """Locks claims, so that no other pod prepares, unprepares or uses them meanwhile."""
    async with AsyncExitStack() as stack:
        for known in sorted(claims, key=lambda claim: claim.ref.uid):
            await stack.enter_async_context(known.busy)
        yield


def _by_driver(claims: Iterable[CachedClaim]) -> Mapping[str, list[CachedClaim]]:
    found: dict[str, list[CachedClaim]] = {}
    for known in claims:
        for driver in known.drivers:
            found.setdefault(driver, []).append(known)
    return found
