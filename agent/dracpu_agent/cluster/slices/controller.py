"""Keeps the node's ResourceSlices as they are wanted, whoever changes them.

The kubelet deletes all slices of a node when it starts and when a driver was away for 30 s, so what is deleted is
published again at once; only what is deleted again and again comes back ever more slowly.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn

import structlog

from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.slices.answer import dropped
from dracpu_agent.cluster.slices.plan import (
    DEVICES_PER_SLICE,
    Adoption,
    CreateSlice,
    DeleteSlice,
    Operation,
    Pool,
    ReplaceSlice,
    current,
    devices_of,
    plain,
    plan,
    plan_withdrawal,
    slice_of,
)
from dracpu_agent.cluster.slices.render import render_device, without_lists
from dracpu_agent.cluster.slices.repair_pace import Pace
from dracpu_agent.cluster.slices.view import SliceView
from dracpu_agent.cluster.watch import Reflector, Snapshot
from dracpu_agent.devices.device import Device
from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError, ConflictError, InvalidError, NotFoundError
from dracpu_api.resources import NODES, RESOURCE_SLICES, JsonObject

log = structlog.stdlib.get_logger(__name__)

_LISTS_REFUSED: Final = (
    "the API server refuses attributes that are lists, so devices are published without their PCIe roots: enable the "
    "feature gate DRAListTypeAttributes in the API server and the scheduler, or set exposePCIeRoots: false in the "
    "CpuDriverConfig"
)
_QUIET_CONFLICTS = 3  # that somebody else wrote first is everyday life; more in a row is worth telling


@dataclass(frozen=True, slots=True)
class SlicesState:
    """For the condition SlicesPublished."""

    published: bool  # what stands at the API server is what is wanted
    generation: int
    devices: int
    slices: int
    error: str | None  # may be set when published, too: fields that do not change a device's meaning were dropped
    reason: str


@dataclass(frozen=True, slots=True)
class SliceTiming:
    """Seconds."""

    debounce: float = 0.1  # changes that come together are written together
    repair_first: float = 0.5
    repair_cap: float = 30.0
    calm: float = 60.0  # without a repair for so long: the next one is prompt again
    recheck: float = 600.0  # what the API server refuses is tried again: its feature gates may have changed
    retry_first: float = 0.5
    retry_cap: float = 30.0


class _MeaningLostError(Exception):
    """The API server stored devices that mean something else; they must go."""


class SliceController:
    """One driver's pool on one node. `publish`, `withdraw` and `poke` only say what is wanted; `run` does it."""

    def __init__(
        self,
        api: ApiClient,
        driver: str,
        node_name: str,
        on_state: Callable[[SlicesState], None],
        *,
        timing: SliceTiming = SliceTiming(),
    ) -> None:
        self._api = api
        self._pool = Pool(driver, node_name, node_uid="")
        self._on_state = on_state
        self._timing = timing
        self._state = SlicesState(False, 0, 0, 0, "nothing is published yet", "Waiting")
        self._reported = False  # the state was reported for the devices that are wanted now
        self._view: SliceView | None = None  # None: not listed yet
        self._wanted: tuple[JsonObject, ...] | None = None
        self._instructed = False  # before that, slices of an earlier run stay as they are
        self._told = False
        self._wake = asyncio.Event()
        self._pace = Pace(first=timing.repair_first, cap=timing.repair_cap, calm=timing.calm)
        self._retry = Backoff(timing.retry_first, timing.retry_cap)
        self._failures = 0
        self._adopted: list[Adoption] = []
        self._remark: str | None = None  # what was dropped, harmlessly
        self._sharing_works = False  # seen with this API server; the same for the next two
        self._lists_work = False
        self._lists_refused = False
        self._refused: str | None = None  # why the wanted devices must not be published
        self._refused_until = 0.0  # the same for lists
        self._reflector = Reflector(
            api,
            RESOURCE_SLICES,
            field_selector=f"spec.nodeName={node_name},spec.driver={driver}",
            on_change=self._see,
            on_error=self._cannot_see,
            backoff=Backoff(timing.retry_first, timing.retry_cap),
        )

    @property
    def state(self) -> SlicesState:
        """The state that was reported last."""
        return self._state

    @property
    def published(self) -> bool:
        """True when the devices that were passed to `publish` last are in force at the API server."""
        return self._reported and self._state.published

    def publish(self, devices: Sequence[Device]) -> None:
        """From now on these devices are wanted; none: an empty slice. A state is reported when they have changed."""
        wanted = tuple(render_device(device) for device in devices)
        if not self._instructed or wanted != self._wanted:
            self._want(wanted)

    def withdraw(self) -> None:
        """From now on no slices are wanted."""
        if not self._instructed or self._wanted is not None:
            self._want(None)

    def poke(self) -> None:
        """The kubelet (re)registered the driver, or something else calls for a look without any delay."""
        self._told = True
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled; what is published then stays."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run(), name="watch-slices")
            tasks.create_task(self._work(), name="publish-slices")

    def _want(self, wanted: tuple[JsonObject, ...] | None) -> None:
        self._wanted = wanted
        self._instructed = True
        self._reported = False  # the next state is reported, even when it equals the last one
        self._adopted.clear()
        self._remark = None
        self.poke()

    def _see(self, snapshot: Snapshot) -> None:
        if self._view is None:
            self._view = SliceView()
        self._view.see(snapshot.objects, snapshot.revision)
        self._wake.set()

    def _cannot_see(self, error: ApiError) -> None:
        if self._view is None:  # later the slices stand as they were, and a lost watch is not worth an alarm
            self._report(None, published=False, reason=error.reason, error=error.message)

    async def _work(self) -> NoReturn:
        patience: float | None = None  # seconds until the next look, when nothing calls for an earlier one
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._wake.wait()
            await asyncio.sleep(self._timing.debounce)
            self._wake.clear()
            if self._told:
                self._told = False
                self._try_all_again()
                self._pace.told()
                self._retry.reset()
            if self._instructed and self._view is not None:
                patience = await self._look(self._view)

    async def _look(self, view: SliceView) -> float | None:
        """Compares and writes; answers the seconds until the next look. Only a look that finds nothing to do says
        that the slices are published."""
        now = asyncio.get_running_loop().time()
        if now >= self._refused_until:
            self._try_all_again()
        if not self._plan(view):
            return self._settled(view)
        if wait := self._pace.wait(now):
            return wait
        try:
            await self._look_up_node()
            await self._rehearse_lists(now)
            await self._rehearse()
            for operation in self._plan(view):
                await self._carry_out(operation, view)
        except _MeaningLostError as lost:
            self._refuse(str(lost), now)
        except ApiError as error:
            return self._failed(error, now)
        else:
            self._pace.wrote(now)
            self._retry.reset()
            self._failures = 0
        return 0

    def _plan(self, view: SliceView) -> list[Operation]:
        if self._wanted is None:
            return plan_withdrawal(self._pool, view.slices())
        return plan(self._pool, self._publishable(), view.slices(), self._adopted)

    def _publishable(self) -> tuple[JsonObject, ...]:
        if self._wanted is None or self._refused is not None:
            return ()
        return without_lists(self._wanted) if self._lists_refused else self._wanted

    def _try_all_again(self) -> None:
        self._refused = None
        self._lists_refused = False

    async def _look_up_node(self) -> None:
        """Before every write: a node may be deleted and made again, and slices of the former one are collected."""
        node = await self._api.get(NODES, self._pool.node_name, metadata_only=True)
        self._pool = replace(self._pool, node_uid=node["metadata"]["uid"])

    async def _rehearse_lists(self, now: float) -> None:
        """Asks the server whether it takes lists: it refuses a whole slice for one of them, and devices without their
        PCIe roots are better than none."""
        lists = [device for device in self._publishable() if without_lists([device]) != (device,)]
        if not lists or self._lists_work:
            return
        try:
            await self._api.create(RESOURCE_SLICES, slice_of(self._pool, lists[:1]), dry_run=True)
            self._lists_work = True
        except InvalidError as error:
            log.warning("devices are published without lists", node=self._pool.node_name, error=error.message)
            self._lists_refused = True
            self._refused_until = now + self._timing.recheck

    async def _rehearse(self) -> None:
        """Has the server show what it would store, before the first shared devices can be seen by a scheduler."""
        shared = [device for device in self._publishable() if device.get("allowMultipleAllocations")]
        if not shared or self._sharing_works:
            return
        rehearsed = slice_of(self._pool, shared[:DEVICES_PER_SLICE])
        answer = await self._api.create(RESOURCE_SLICES, rehearsed, dry_run=True)
        difference = dropped(devices_of(rehearsed), devices_of(answer))
        if difference is not None and difference.changes_meaning:
            raise _MeaningLostError(difference.message)
        self._sharing_works = True

    async def _carry_out(self, operation: Operation, view: SliceView) -> None:
        match operation:
            case DeleteSlice(name, uid, resource_version):
                with contextlib.suppress(NotFoundError):  # as good as deleted
                    await self._api.delete(RESOURCE_SLICES, name, uid=uid, resource_version=resource_version)
                view.deleted(uid)
            case ReplaceSlice(body):
                try:
                    self._take(body, await self._api.replace(RESOURCE_SLICES, body), view)
                except NotFoundError:
                    view.deleted(body["metadata"]["uid"])  # the next look creates it anew
            case CreateSlice(body):
                self._take(body, await self._api.create(RESOURCE_SLICES, body), view)

    def _take(self, sent: JsonObject, answer: JsonObject, view: SliceView) -> None:
        """Believes the answer, not the wish: what the server stores is what schedulers see."""
        view.wrote(answer)
        difference = dropped(devices_of(sent), devices_of(answer))
        if difference is None:
            return
        if difference.changes_meaning:
            raise _MeaningLostError(difference.message)
        self._adopted.append(Adoption(plain(devices_of(sent)), plain(devices_of(answer))))
        if difference.message != self._remark:
            self._remark = difference.message
            log.warning("devices are published incompletely", node=self._pool.node_name, error=self._remark)

    def _refuse(self, why: str, now: float) -> None:
        if not self._reported or self._state.error != why:
            log.error("devices are not published", node=self._pool.node_name, error=why)
        self._refused = why
        self._refused_until = now + self._timing.recheck
        self._sharing_works = False

    def _settled(self, view: SliceView) -> float | None:
        if self._wanted is None:
            self._report(view, published=False, reason="Withdrawn")
        elif self._refused is not None:
            self._report(view, published=False, reason="FeatureGateDisabled", error=self._refused)
            return self._timing.recheck
        elif self._remark is not None or self._lists_refused:
            told = "; ".join(filter(None, (self._remark, _LISTS_REFUSED if self._lists_refused else None)))
            self._report(view, published=True, reason="FieldsDropped", error=told)
            return self._timing.recheck if self._lists_refused else None
        else:
            self._report(view, published=True, reason="Published")
        return None

    def _failed(self, error: ApiError, now: float) -> float:
        self._failures += 1
        if not isinstance(error, ConflictError) or self._failures > _QUIET_CONFLICTS:
            if not self._reported or self._state.error != error.message:
                log.warning("publishing failed, trying again", node=self._pool.node_name, error=error.message)
            self._report(self._view, published=False, reason=error.reason, error=error.message)
        # what is refused as invalid will be refused again: only another server version or gate changes that
        final = isinstance(error, InvalidError) and not self._lists_work  # else lists may be what is refused by now
        self._lists_work = False
        delay = self._timing.recheck if final else self._retry.next(error)
        self._pace.hold(now, delay)
        return delay

    def _report(self, view: SliceView | None, *, published: bool, reason: str, error: str | None = None) -> None:
        generation, slices = current(view.slices() if view is not None else ())
        devices = sum(len(devices_of(one)) for one in slices)
        state = SlicesState(published, generation, devices, len(slices), error, reason)
        if not self._reported or state != self._state:
            self._state, self._reported = state, True
            self._on_state(state)
