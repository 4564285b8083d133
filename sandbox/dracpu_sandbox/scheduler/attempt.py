"""What a search has picked so far, and what therefore can still be picked."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dracpu_sandbox.scheduler.candidates import Candidate
from dracpu_sandbox.scheduler.capacity import Consumed
from dracpu_sandbox.scheduler.constraints import Rule, rules
from dracpu_sandbox.scheduler.counters import Counters
from dracpu_sandbox.scheduler.devices import Device, DeviceId
from dracpu_sandbox.scheduler.pools import Offer
from dracpu_sandbox.scheduler.requests import Claim, Wanted
from dracpu_sandbox.scheduler.usage import Usage

_ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Pick:
    """A device that a request gets."""

    claim: int  # its place among the claims
    wanted: Wanted
    device: Device
    consumed: Consumed


class Attempt:
    """Picks that can be taken back, the last one first."""

    def __init__(self, claims: Sequence[Claim], offer: Offer, usage: Usage) -> None:
        self.picks: list[Pick] = []
        self._usage = usage
        self._rules = [rules(claim.constraints) for claim in claims]
        self._attributes = sorted({one.attribute for claim in claims for one in claim.constraints})
        self._counters = Counters(offer.pools, usage)
        self._taken: set[DeviceId] = set()
        self._consumed: dict[tuple[DeviceId, str], Fraction] = {}

    def allows(self, claim: int, wanted: Wanted, candidate: Candidate) -> bool:
        """Whether the request may have this device now."""
        device = candidate.device
        return (
            (wanted.admin or self.free(candidate))
            and self._counters.allow(device)
            and all(rule.allows(device) for rule in self._binding(claim, wanted))
        )

    def free(self, candidate: Candidate) -> bool:
        """Whether nobody has the device; of a shared one: whether enough is left."""
        device = candidate.device
        if device.id in self._taken or device.id in self._usage.exclusive:
            return False
        if not device.shareable:
            return not self._usage.shared(device.id)
        return all(
            self._used(device, key) + amount.number <= device.capacity[key].value.number
            for key, (amount, _) in candidate.consumed.items()
        )

    def take(self, pick: Pick) -> None:
        """The device is given to the request."""
        self.picks.append(pick)
        self._mark(pick, 1)
        for rule in self._binding(pick.claim, pick.wanted):
            rule.add(pick.device)

    def give_back(self) -> None:
        """The last pick is undone."""
        pick = self.picks.pop()
        self._mark(pick, -1)
        for rule in self._binding(pick.claim, pick.wanted):
            rule.drop()

    def state(self, device: Device) -> object:
        """Equal for devices that are alike in all that matters from here on, but for selectors and tolerations."""
        return (
            device.driver,
            device.shareable,
            device.id in self._taken or device.id in self._usage.exclusive or self._usage.shared(device.id),
            device.consumes and (device.pool, device.consumes, self._counters.charged(device)),
            tuple(device.attributes.get(name) for name in self._attributes),
            tuple((key, one, self._used(device, key)) for key, one in sorted(device.capacity.items())),
        )

    def _used(self, device: Device, key: str) -> Fraction:
        return self._usage.consumed(device.id).get(key, _ZERO) + self._consumed.get((device.id, key), _ZERO)

    def _binding(self, claim: int, wanted: Wanted) -> list[Rule]:
        return [rule for rule in self._rules[claim] if rule.constraint.covers(wanted.name)]

    def _mark(self, pick: Pick, sign: int) -> None:
        if pick.wanted.admin:  # looks at the device, holds nothing
            return
        device = pick.device
        if sign > 0:
            self._counters.charge(device)
        else:
            self._counters.refund(device)
        if not device.shareable:
            (self._taken.add if sign > 0 else self._taken.discard)(device.id)
        for key, (amount, _) in pick.consumed.items():
            self._consumed[device.id, key] = self._consumed.get((device.id, key), _ZERO) + sign * amount.number
