"""The kubelet's claims: prepared once for all their pods, unprepared with the last one, kept over a restart in a file.

What a kubelet remembers after its restart is which claims there are and with which devices, not that they are
prepared: the next pod of a claim has it prepared again.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import grpc

from dracpu_agent.claims.grant import ClaimRef, PreparedDevice
from dracpu_sandbox.node.plugins import KubeletError, RegisteredPlugin, prepared_devices
from dracpu_sandbox.resources import JsonObject

STATE_FILE: Final = "dra_manager_state"  # kubelet: its name


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """A claim that a pod needs, and the drivers whose devices it has."""

    ref: ClaimRef
    drivers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device of a prepared claim."""

    driver: str
    device: PreparedDevice

    def serves(self, request: str) -> bool:
        """Whether a container that names this request gets the device; "" names all."""
        return not request or not self.device.requests or request in self.device.requests


@dataclass
class CachedClaim:
    """What the kubelet knows of a claim."""

    ref: ClaimRef
    drivers: tuple[str, ...]
    pods: set[str] = field(default_factory=set)  # UIDs
    devices: tuple[HeldDevice, ...] = ()
    prepared: bool = False
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)  # while its drivers are called


class ClaimCache:
    """The claims of one kubelet."""

    def __init__(self, kubelet_root: Path, find: Callable[[str], RegisteredPlugin]) -> None:
        self._path = kubelet_root / STATE_FILE
        self._find = find
        self._claims: dict[str, CachedClaim] = {}  # by UID

    async def load(self) -> None:
        """What the kubelet before this one has left."""
        self._claims = await asyncio.to_thread(_read, self._path)

    async def prepare(self, pod_uid: str, claims: Sequence[AllocatedClaim]) -> None:
        """Prepares what is not prepared yet, with one call for each driver; KubeletError fails the pod's attempt."""
        needed: dict[str, CachedClaim] = {}  # by UID: a pod may name a claim twice
        for claim in claims:
            known = needed[claim.ref.uid] = self._known(claim)
            known.pods.add(pod_uid)
        async with _alone_with(needed.values()):
            missing = [known for known in needed.values() if not known.prepared]
            self._save()  # kubelet: before the call, so that it unprepares whatever may have been prepared
            found: dict[str, list[HeldDevice]] = {}
            for driver, group in _by_driver(missing).items():
                for uid, devices in (await self._call_prepare(driver, group)).items():
                    found.setdefault(uid, []).extend(devices)
            for uid, held in found.items():
                self._claims[uid].devices = tuple(held)
                self._claims[uid].prepared = True
            self._save()

    async def unprepare(self, pod_uid: str) -> None:
        """The pod has ended: its claims are unprepared unless another pod has them. KubeletError: try again."""
        async with _alone_with([known for known in self._claims.values() if pod_uid in known.pods]):
            last = [known for known in self._claims.values() if known.pods == {pod_uid}]
            for driver, group in _by_driver(last).items():
                await self._call_unprepare(driver, group)
            for known in self._claims.values():
                known.pods.discard(pod_uid)
            for known in last:
                known.prepared = False  # another pod may have come for it meanwhile, and prepares it anew
                if not known.pods:
                    self._claims.pop(known.ref.uid, None)
            self._save()

    def stale_pods(self, alive: Collection[str]) -> set[str]:
        """Pods that have claims and do not exist any more."""
        return {uid for known in self._claims.values() for uid in known.pods} - set(alive)

    def devices(self, claim_uid: str, request: str = "") -> tuple[HeldDevice, ...]:
        """What a container gets that names this request of a prepared claim."""
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

    def _save(self) -> None:
        """Small, and at once: a thread would go on writing after its kubelet's end, into the file of the next one."""
        _write(self._path, json.dumps([_encode(known) for known in self._claims.values()]))


@asynccontextmanager
async def _alone_with(claims: Iterable[CachedClaim]) -> AsyncIterator[None]:
    """No other pod has them prepared or unprepared meanwhile, nor takes for prepared what is about to end."""
    async with AsyncExitStack() as stack:
        for known in sorted(claims, key=lambda one: one.ref.uid):
            await stack.enter_async_context(known.busy)
        yield


def _by_driver(claims: Iterable[CachedClaim]) -> Mapping[str, list[CachedClaim]]:
    found: dict[str, list[CachedClaim]] = {}
    for known in claims:
        for driver in known.drivers:
            found.setdefault(driver, []).append(known)
    return found


def _encode(known: CachedClaim) -> JsonObject:
    return {
        "claim": asdict(known.ref),
        "drivers": known.drivers,
        "pods": sorted(known.pods),
        "devices": [{"driver": held.driver, **asdict(held.device)} for held in known.devices],
    }


def _decode(item: JsonObject) -> CachedClaim:
    devices = tuple(
        HeldDevice(
            one["driver"],
            PreparedDevice(tuple(one["requests"]), one["pool"], one["device"], one["share_id"], tuple(one["cdi_ids"])),
        )
        for one in item["devices"]
    )
    return CachedClaim(ClaimRef(**item["claim"]), tuple(item["drivers"]), set(item["pods"]), devices)


def _read(path: Path) -> dict[str, CachedClaim]:
    if not path.exists():
        return {}
    claims = [_decode(item) for item in json.loads(path.read_text())]
    return {known.ref.uid: known for known in claims}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(path)
