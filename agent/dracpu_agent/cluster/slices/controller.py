"""Keeps the node's ResourceSlices in the desired state when others change them.

The kubelet deletes all slices of a node when it starts and when a driver was away for 30 s, so a deleted slice is
published again at once. Slices that are deleted again and again are published again after growing delays.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import structlog

from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.slices.plan import (
    CreateSlice,
    DeleteSlice,
    Operation,
    Pool,
    ReplaceSlice,
    current,
    devices_of,
    plan,
    plan_withdrawal,
    share_equal,
)
from dracpu_agent.cluster.slices.render import render_device
from dracpu_agent.cluster.slices.repair_pace import RepairPace
from dracpu_agent.cluster.slices.server_support import MeaningLostError, ServerSupport
from dracpu_agent.cluster.slices.view import SliceView
from dracpu_agent.cluster.watch import Reflector, Snapshot
from dracpu_agent.devices.device import Device
from dracpu_api.backoff import Backoff
from dracpu_api.conditions import NodeReason
from dracpu_api.errors import ApiError, ConflictError, NotFoundError
from dracpu_api.resources import NODES, RESOURCE_SLICES, JsonObject

log = structlog.stdlib.get_logger(__name__)

_QUIET_CONFLICTS = 3  # conflicts in a row that are normal, as others write too; more are reported


@dataclass(frozen=True, slots=True)
class SlicesState:
    """The state that the condition SlicesPublished shows."""

    published: bool  # the slices at the API server are the desired ones
    generation: int
    devices: int
    slices: int
    error: str | None  # may be set although published: fields that do not change a device's meaning were dropped
    reason: str


@dataclass(frozen=True, slots=True)
class SliceTiming:
    """Delays in seconds."""

    debounce: float = 0.1  # changes within this time are written together
    repair_first: float = 0.5
    repair_cap: float = 30.0
    calm: float = 60.0  # after this time without a repair the next one is prompt again
    recheck: float = 600.0  # until the API server is asked again for what it refused
    retry_first: float = 0.5
    retry_cap: float = 30.0


class SliceController:
    """One driver's pool on one node. `publish` and `withdraw` set the desired state; `run` brings it about."""

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
        self._state = SlicesState(False, 0, 0, 0, "nothing is published yet", NodeReason.WAITING)
        self._reported = False  # whether a state was reported since the desired devices were set
        self._view: SliceView | None = None  # None: not listed yet
        self._desired: tuple[JsonObject, ...] | None = None  # None: no slices
        self._desired_set = False  # until then slices of an earlier run stay unchanged
        self._at_once = False
        self._wake = asyncio.Event()
        self._pace = RepairPace(first=timing.repair_first, cap=timing.repair_cap, calm=timing.calm)
        self._backoff = Backoff(timing.retry_first, timing.retry_cap)
        self._failures = 0
        self._support = ServerSupport(api, node_name, timing.recheck)
        self._reflector = Reflector(
            api,
            RESOURCE_SLICES,
            field_selector=f"spec.nodeName={node_name},spec.driver={driver}",
            on_change=self._slices_changed,
            on_error=self._watch_failed,
            backoff=Backoff(timing.retry_first, timing.retry_cap),
        )

    @property
    def state(self) -> SlicesState:
        """The state that was reported last."""
        return self._state

    @property
    def published(self) -> bool:
        """Whether the devices that were passed to `publish` last are published."""
        return self._reported and self._state.published

    def publish(self, devices: Sequence[Device]) -> None:
        """Sets the devices to publish; without devices there is an empty slice. A change is reported."""
        desired = tuple(render_device(device) for device in devices)
        if not self._desired_set or desired != self._desired:
            self._set_desired(desired)

    def withdraw(self) -> None:
        """Deletes all slices."""
        if not self._desired_set or self._desired is not None:
            self._set_desired(None)

    def check_now(self) -> None:
        """Compares the slices with the desired state without any delay, for example after a registration."""
        self._at_once = True
        self._wake.set()

    async def run(self) -> None:
        """Runs until cancelled; published slices stay."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run(), name="watch-slices")
            tasks.create_task(self._reconcile_forever(), name="publish-slices")

    def _set_desired(self, desired: tuple[JsonObject, ...] | None) -> None:
        self._desired = desired
        self._desired_set = True
        self._reported = False  # so that the next state is reported even if it equals the last one
        self._support.forget_losses()
        self.check_now()

    def _slices_changed(self, snapshot: Snapshot) -> None:
        if self._view is None:
            self._view = SliceView()
        self._view.replace(snapshot.objects, snapshot.revision, snapshot.listed_at)
        self._wake.set()

    def _watch_failed(self, error: ApiError) -> None:
        if self._view is None:  # later the slices are probably unchanged, so that a lost watch is not reported
            self._report(None, published=False, reason=error.reason, error=error.message)

    async def _reconcile_forever(self) -> NoReturn:
        delay: float | None = None  # seconds until the next check, unless something changes before
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            await asyncio.sleep(self._timing.debounce)
            self._wake.clear()
            if self._at_once:
                self._at_once = False
                self._support.forget_refusals()
                self._pace.reset()
                self._backoff.reset()
            if self._desired_set and self._view is not None:
                delay = await self._reconcile(self._view)

    async def _reconcile(self, view: SliceView) -> float | None:
        """Compares and writes; returns the seconds until the next check. The slices are reported as published only by
        a check that finds nothing to write."""
        now = _now()
        self._support.forget_old_refusals(now)
        share_equal(self._desired or (), view.slices())
        if not self._plan(view):
            return self._report_up_to_date(view)
        if delay := self._pace.delay(now):
            return delay
        try:
            await self._read_node_uid()
            await self._support.verify(self._pool, self._desired or (), now)
            for operation in self._plan(view):
                await self._execute(operation, view)
        except MeaningLostError as lost:
            self._stop_publishing(str(lost), now)
        except ApiError as error:
            return self._report_failure(error, now)
        else:
            self._pace.record_write(now)
            self._backoff.reset()
            self._failures = 0
        return 0

    def _plan(self, view: SliceView) -> list[Operation]:
        if self._desired is None:
            return plan_withdrawal(self._pool, view.slices())
        return plan(self._pool, self._support.publishable(self._desired), view.slices(), self._support.adopted)

    async def _read_node_uid(self) -> None:
        """Before every write: the node may have been created anew, and the old node's slices are garbage-collected."""
        node = await self._api.get(NODES, self._pool.node_name, metadata_only=True)
        self._pool = replace(self._pool, node_uid=node["metadata"]["uid"])

    async def _execute(self, operation: Operation, view: SliceView) -> None:
        match operation:
            case DeleteSlice(name, uid, resource_version):
                with contextlib.suppress(NotFoundError):  # already deleted
                    await self._api.delete(RESOURCE_SLICES, name, uid=uid, resource_version=resource_version)
                view.record_deletion(uid, _now())
            case ReplaceSlice(body):
                try:
                    self._record_answer(body, await self._api.replace(RESOURCE_SLICES, body), view)
                except NotFoundError:
                    view.record_deletion(body["metadata"]["uid"], _now())  # the next check creates it again
            case CreateSlice(body):
                self._record_answer(body, await self._api.create(RESOURCE_SLICES, body), view)

    def _record_answer(self, sent: JsonObject, answer: JsonObject, view: SliceView) -> None:
        view.record_write(answer, _now())
        self._support.compare(sent, answer)
        share_equal(devices_of(sent), [answer])

    def _stop_publishing(self, reason: str, now: float) -> None:
        if not self._reported or self._state.error != reason:
            log.error("devices are not published", node=self._pool.node_name, error=reason)
        self._support.refuse(reason, now)

    def _report_up_to_date(self, view: SliceView) -> float | None:
        if self._desired is None:
            self._report(view, published=False, reason=NodeReason.WITHDRAWN)
        elif self._support.refusal is not None:
            self._report(view, published=False, reason=NodeReason.FEATURE_GATE_DISABLED, error=self._support.refusal)
            return self._timing.recheck
        elif self._support.loss:
            self._report(view, published=True, reason=NodeReason.FIELDS_DROPPED, error=self._support.loss)
            return self._timing.recheck if self._support.lists_refused else None
        else:
            self._report(view, published=True, reason=NodeReason.PUBLISHED)
        return None

    def _report_failure(self, error: ApiError, now: float) -> float:
        self._failures += 1
        if not isinstance(error, ConflictError) or self._failures > _QUIET_CONFLICTS:
            if not self._reported or self._state.error != error.message:
                log.warning("cannot publish devices, retrying", node=self._pool.node_name, error=error.message)
            self._report(self._view, published=False, reason=error.reason, error=error.message)
        delay = self._timing.recheck if self._support.is_final(error) else self._backoff.next(error)
        self._pace.hold(now, delay)
        return delay

    def _report(self, view: SliceView | None, *, published: bool, reason: str, error: str | None = None) -> None:
        generation, slices = current(view.slices() if view is not None else ())
        devices = sum(len(devices_of(resource_slice)) for resource_slice in slices)
        state = SlicesState(published, generation, devices, len(slices), error, reason)
        if not self._reported or state != self._state:
            self._state, self._reported = state, True
            self._on_state(state)


def _now() -> float:
    return asyncio.get_running_loop().time()
