"""Which devices are taken, and how much of the shared ones."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Self

from dracpu_sandbox.cel.quantity import Quantity
from dracpu_sandbox.resources import JsonObject
from dracpu_sandbox.scheduler.devices import DeviceId

_NOTHING: Mapping[str, Fraction] = {}


class Usage:
    """What allocations hold. `results` are those of ResourceClaims' status.allocation.devices."""

    def __init__(self) -> None:
        self.exclusive: set[DeviceId] = set()
        self._shares: dict[DeviceId, dict[str, Fraction]] = {}

    @classmethod
    def of(cls, claims: Iterable[JsonObject]) -> Self:
        """What all these claims hold."""
        usage = cls()
        for claim in claims:
            usage.add(claim)
        return usage

    def add(self, claim: JsonObject) -> None:
        """What this claim holds is taken too."""
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            if not result.get("adminAccess"):  # looks at devices, holds none
                self._hold(result)

    def _hold(self, result: JsonObject) -> None:
        device = result["driver"], result["pool"], result["device"]
        if "shareID" not in result:
            self.exclusive.add(device)
            return
        shares = self._shares.setdefault(device, {})
        for key, text in (result.get("consumedCapacity") or {}).items():
            shares[key] = shares.get(key, Fraction(0)) + Quantity.parse(text).number

    def shared(self, device: DeviceId) -> bool:
        """Whether somebody has a share of it."""
        return device in self._shares

    def consumed(self, device: DeviceId) -> Mapping[str, Fraction]:
        """What all shares of it have consumed, by capacity key."""
        return self._shares.get(device, _NOTHING)
