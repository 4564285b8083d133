"""Chooses the devices for claims on one node: the first devices, in listed order, that satisfy all requests.

The search tries one device after the other and goes back a step when it cannot continue, as kube-scheduler does. It
gives up a request when too few devices are left for it, and the whole search after a number of steps: without that
limit, a search through all combinations of twenty devices would take minutes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from dracpu_sandbox.cel.expressions import CelError
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.scheduler.capacity import CapacityError, Consumed, consumption
from dracpu_sandbox.scheduler.devices import Device, Values
from dracpu_sandbox.scheduler.nodes import keeps_away
from dracpu_sandbox.scheduler.pools import Offer
from dracpu_sandbox.scheduler.requests import ALL, Claim, Constraint, DeviceClass, Request, Wanted
from dracpu_sandbox.scheduler.selectors import matches
from dracpu_sandbox.scheduler.usage import Counters, Usage

MOST_RESULTS: Final = 32  # devices of one claim: resource.k8s.io/v1
MOST_STEPS: Final = 5_000  # for one pod, on all nodes together: some tenths of a second

_NO_VALUES: Final[Values] = frozenset()


class AllocationError(SandboxError):
    """It is unknown whether the claims fit. The pod waits with this message, even if another node has free devices."""


@dataclass
class Effort:
    """The number of steps that are left for a pod."""

    left: int = MOST_STEPS

    def step(self) -> None:
        """Counts a step; raises AllocationError if none is left."""
        if not self.left:
            raise AllocationError(f"gave up after {MOST_STEPS} steps, the limit of the sandbox")
        self.left -= 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device that a request may get, with the capacity that the request would consume."""

    device: Device
    consumed: Consumed
    amounts: Mapping[str, Fraction]  # what is consumed, as numbers


@dataclass(frozen=True, slots=True)
class Pick:
    """A device that a request gets."""

    claim: int  # index of the claim
    wanted: Wanted
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The candidates for one alternative of a request, in listed order."""

    devices: Sequence[Candidate]
    matching: int  # how many devices match and are large enough, tainted and used ones included
    error: str  # why the device after the last candidate could not be checked; "" when all could be


def allocate(
    claims: Sequence[Claim],
    classes: Mapping[str, DeviceClass],
    offer: Offer,
    usage: Usage,
    effort: Effort,
) -> list[list[Pick]] | None:
    """Returns the devices for each claim, or None if not all claims fit. Raises AllocationError.

    The device classes of all claims must exist.
    """
    search = _Search(claims, classes, offer, usage.copy(), effort)
    if not search.solve(0):
        return None
    return [[pick for pick in search.picks if pick.claim == index] for index in range(len(claims))]


class _Search:
    def __init__(
        self,
        claims: Sequence[Claim],
        classes: Mapping[str, DeviceClass],
        offer: Offer,
        usage: Usage,
        effort: Effort,
    ) -> None:
        self.picks: list[Pick] = []
        self._claims = claims
        self._offer = offer
        self._usage = usage
        self._effort = effort
        self._asks: list[tuple[int, Request]] = [
            (index, request) for index, claim in enumerate(claims) for request in claim.requests
        ]
        self._candidates = {
            (index, wanted.name): _candidates(wanted, classes[wanted.device_class], offer.devices)
            for index, request in self._asks
            for wanted in request.ways
        }

    def solve(self, index: int) -> bool:
        """Satisfies this request and all following ones."""
        if index == len(self._asks):
            return True
        return any(self._try(index, wanted) for wanted in self._asks[index][1].ways)

    def _try(self, index: int, wanted: Wanted) -> bool:
        claim, request = self._asks[index]
        found = self._candidates[claim, wanted.name]
        count = wanted.count
        if count == ALL:
            if self._offer.troubles:
                raise AllocationError(f'request "{wanted.name}" asks for all devices, but {self._offer.troubles[0]}')
            if found.error:
                raise AllocationError(f'request "{wanted.name}": {found.error}')
            count = found.matching
        others = sum(pick.claim == claim for pick in self.picks)
        total = count + others
        if total > MOST_RESULTS and len(request.ways) == 1:
            raise AllocationError(
                f'request "{wanted.name}": adding {count} devices exceeds the claim limit of {MOST_RESULTS}, '
                f"with {others} already accounted for"
            )
        return count > 0 and total <= MOST_RESULTS and self._fill(index, wanted, count, 0)

    def _fill(self, index: int, wanted: Wanted, missing: int, start: int) -> bool:
        """Picks the missing devices of a request, from an index in the list on, and continues with the next request."""
        if not missing:
            return self.solve(index + 1)
        claim, _ = self._asks[index]
        found = self._candidates[claim, wanted.name]
        admits = self._admission(claim, wanted)
        open_places = [place for place in range(start, len(found.devices)) if admits(found.devices[place])]
        for place in open_places[: max(0, len(open_places) - missing + 1)]:
            self._take(Pick(claim, wanted, found.devices[place]))
            if self._fill(index, wanted, missing - 1, place + 1):
                return True
            self._undo()
        if found.error:
            raise AllocationError(f'request "{wanted.name}": {found.error}')
        return False

    def _admission(self, claim: int, wanted: Wanted) -> Callable[[Candidate], bool]:
        """Returns a function that checks whether a candidate can join the current picks."""
        counters = Counters(self._offer.pools, self._usage)
        rules = [
            _rule(constraint, self._picked(claim, constraint))
            for constraint in self._claims[claim].constraints
            if constraint.covers(wanted.name)
        ]
        return lambda candidate: (
            self._usage.is_free(candidate.device, candidate.amounts)
            and counters.suffice(candidate.device)
            and all(rule(candidate.device) for rule in rules)
        )

    def _picked(self, claim: int, constraint: Constraint) -> list[Device]:
        """Returns the picked devices to which a constraint applies."""
        return [
            pick.candidate.device for pick in self.picks if pick.claim == claim and constraint.covers(pick.wanted.name)
        ]

    def _take(self, pick: Pick) -> None:
        self._effort.step()
        self.picks.append(pick)
        device = pick.candidate.device
        self._usage.take(device.id, pick.candidate.amounts, shared=device.shareable)

    def _undo(self) -> None:
        candidate = self.picks.pop().candidate
        self._usage.release(candidate.device.id, candidate.amounts, shared=candidate.device.shareable)


def _candidates(wanted: Wanted, device_class: DeviceClass, devices: Sequence[Device]) -> _Candidates:
    selectors = (*device_class.selectors, *wanted.selectors)
    found, matching = list[Candidate](), 0
    for device in devices:
        try:
            if not matches(device, selectors):
                continue
            consumed = consumption(device, wanted)
        except (CelError, CapacityError) as error:
            return _Candidates(found, matching, str(error))
        if consumed is None:
            continue
        matching += 1
        if not keeps_away(device.taints, wanted.tolerations):
            amounts = {key: amount.number for key, (amount, _) in consumed.items()}
            found.append(Candidate(device, consumed, amounts))
    return _Candidates(found, matching, "")


def _rule(constraint: Constraint, picked: Sequence[Device]) -> Callable[[Device], bool]:
    """Returns a function that checks whether the constraint allows a device in addition to those that are picked.

    matchAttribute: all devices have a value in common. distinctAttribute: no two devices have a value in common.
    """

    def values(device: Device) -> Values:
        return device.attributes.get(constraint.attribute, _NO_VALUES)

    if constraint.distinct:
        used = _NO_VALUES.union(*map(values, picked))
        return lambda device: bool(values(device)) and not values(device) & used
    if not picked:
        return lambda device: bool(values(device))
    common = values(picked[0]).intersection(*map(values, picked))
    return lambda device: bool(values(device) & common)
