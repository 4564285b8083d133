"""Finds out which fields of devices the API server accepts and keeps, which depends on its feature gates.

Dry runs show it before the first write, as schedulers see each stored device at once; the answers to writes show later
changes. What the server refuses is tried again after some time, as its feature gates may have changed.
"""

from typing import Final

import structlog

from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.slices.dropped_fields import dropped
from dracpu_agent.cluster.slices.plan import DEVICES_PER_SLICE, Adoption, Pool, devices_of, plain, slice_of
from dracpu_agent.cluster.slices.render import without_lists
from dracpu_api.errors import ApiError, InvalidError
from dracpu_api.resources import RESOURCE_SLICES, JsonObject

log = structlog.stdlib.get_logger(__name__)

_LISTS_REFUSED: Final = (
    "the API server refuses attributes that are lists, so devices are published without their PCIe roots: enable the "
    "feature gate DRAListTypeAttributes in the API server and the scheduler, or set exposePCIeRoots: false in the "
    "CpuDriverConfig"
)


class MeaningLostError(Exception):
    """The API server stores devices that mean something else; they must not stay published."""


class ServerSupport:
    """The API server's support for the fields of one node's devices."""

    def __init__(self, api: ApiClient, node_name: str, recheck_seconds: float) -> None:
        self._api = api
        self._node_name = node_name
        self._recheck_seconds = recheck_seconds
        self.refusal: str | None = None  # why no devices may be published
        self.lists_refused = False
        self.adopted: list[Adoption] = []
        self._dropped: str | None = None  # fields that were dropped without a change of meaning
        self._recheck_at = 0.0
        self._sharing_verified = False
        self._lists_verified = False

    @property
    def loss(self) -> str:
        """Which fields are missing in the published devices, and what to do; "" if none."""
        return "; ".join(filter(None, (self._dropped, _LISTS_REFUSED if self.lists_refused else None)))

    def publishable(self, devices: tuple[JsonObject, ...]) -> tuple[JsonObject, ...]:
        """The devices as far as the server supports them."""
        if self.refusal is not None:
            return ()
        return without_lists(devices) if self.lists_refused else devices

    def forget_losses(self) -> None:
        """The next devices are different: which of their fields are dropped is not known."""
        self.adopted.clear()
        self._dropped = None

    def forget_refusals(self) -> None:
        """Tries again what was refused."""
        self.refusal = None
        self.lists_refused = False

    def forget_old_refusals(self, now: float) -> None:
        """Tries again what was refused, if that was long enough ago."""
        if now >= self._recheck_at:
            self.forget_refusals()

    async def verify(self, pool: Pool, devices: tuple[JsonObject, ...], now: float) -> None:
        """Dry runs before a write; raises MeaningLostError if the devices must not be published."""
        await self._verify_lists(pool, self.publishable(devices), now)
        await self._verify_sharing(pool, self.publishable(devices))

    def compare(self, sent: JsonObject, answer: JsonObject) -> None:
        """Evaluates the answer to a write: what the server stored is what schedulers see. Raises MeaningLostError."""
        difference = dropped(devices_of(sent), devices_of(answer))
        if difference is None:
            return
        if difference.changes_meaning:
            raise MeaningLostError(difference.message)
        self.adopted.append(Adoption(plain(devices_of(sent)), plain(devices_of(answer))))
        if difference.message != self._dropped:
            self._dropped = difference.message
            log.warning("devices are published incompletely", node=self._node_name, error=difference.message)

    def refuse(self, reason: str, now: float) -> None:
        """No devices may be published until the server is checked again."""
        self.refusal = reason
        self._recheck_at = now + self._recheck_seconds
        self._sharing_verified = False

    def is_final(self, error: ApiError) -> bool:
        """Whether repeating a failed write is useless: only another version or feature gate of the server helps."""
        final = isinstance(error, InvalidError) and not self._lists_verified  # else it may refuse lists by now
        self._lists_verified = False
        return final

    async def _verify_lists(self, pool: Pool, devices: tuple[JsonObject, ...], now: float) -> None:
        """A server that does not support lists refuses the whole slice; devices without PCIe roots are better."""
        lists = [device for device in devices if without_lists([device]) != (device,)]
        if not lists or self._lists_verified:
            return
        try:
            await self._api.create(RESOURCE_SLICES, slice_of(pool, lists[:1]), dry_run=True)
            self._lists_verified = True
        except InvalidError as error:
            log.warning("devices are published without lists", node=self._node_name, error=error.message)
            self.lists_refused = True
            self._recheck_at = now + self._recheck_seconds

    async def _verify_sharing(self, pool: Pool, devices: tuple[JsonObject, ...]) -> None:
        """Before schedulers can see the first shared devices, a dry run shows whether they would stay shared."""
        shared = [device for device in devices if device.get("allowMultipleAllocations")]
        if not shared or self._sharing_verified:
            return
        sent = slice_of(pool, shared[:DEVICES_PER_SLICE])
        answer = await self._api.create(RESOURCE_SLICES, sent, dry_run=True)
        difference = dropped(devices_of(sent), devices_of(answer))
        if difference is not None and difference.changes_meaning:
            raise MeaningLostError(difference.message)
        self._sharing_verified = True
