"""Which devices claims get on one node: the first ones in listed order with which everything works out.

kube-scheduler tries all subsets before it says no, which costs seconds from twenty free devices on. Here

- a request is given up as soon as fewer devices are left than it still needs,
- devices are picked in listed order, never the same ones in another order, nor do equal requests change places,
- of devices that are alike in all that matters only one is tried at each place,
- what is still too much ends after a number of steps, the same on every machine: on one node, and on all together.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.scheduler.attempt import Attempt, Pick
from dracpu_sandbox.scheduler.candidates import Candidate, Candidates, candidates
from dracpu_sandbox.scheduler.devices import Device
from dracpu_sandbox.scheduler.pools import Offer
from dracpu_sandbox.scheduler.requests import ALL, Claim, DeviceClass, Request, Wanted
from dracpu_sandbox.scheduler.usage import Usage

MOST_RESULTS: Final = 32  # devices of one claim: resource.k8s.io/v1
MOST_STEPS: Final = 2_000  # on one node: some tenths of a second
MOST_STEPS_OF_A_POD: Final = 5 * MOST_STEPS  # on all nodes, each of which may just not have had enough


class AllocationError(SandboxError):
    """Not "does not fit" but "cannot be known": the pod waits with this message, whatever other nodes have."""


@dataclass
class Effort:
    """The steps that are left for a pod."""

    left: int = MOST_STEPS_OF_A_POD


def allocate(
    claims: Sequence[Claim],
    classes: Mapping[str, DeviceClass],
    offer: Offer,
    usage: Usage,
    effort: Effort | None = None,
) -> list[list[Pick]] | None:
    """The devices for each claim, all or nothing; None when they do not fit. Raises AllocationError.

    All classes that the claims name must be there.
    """
    effort = effort or Effort()
    search = _Search(claims, classes, offer, usage, min(MOST_STEPS, effort.left))
    solved = search.solve(0, 0)
    effort.left -= search.steps
    if not solved:
        return None
    return [[pick for pick in search.attempt.picks if pick.claim == index] for index in range(len(claims))]


@dataclass(frozen=True, slots=True)
class _Ask:
    """A request of one of the claims."""

    claim: int
    request: Request
    repeats: bool = False  # asks for the same as the request before it
    repeated: int = 0  # how many such requests follow


class _Search:
    def __init__(
        self,
        claims: Sequence[Claim],
        classes: Mapping[str, DeviceClass],
        offer: Offer,
        usage: Usage,
        most_steps: int,
    ) -> None:
        self.steps = 0
        self.attempt = Attempt(claims, offer, usage)
        self._troubles = offer.troubles
        self._asks = [ask for index, claim in enumerate(claims) for ask in _asks(index, claim)]
        self._most_steps = most_steps
        self._candidates = {
            (ask.claim, wanted.name): candidates(wanted, classes[wanted.device_class], offer.devices)
            for ask in self._asks
            for wanted in ask.request.ways
        }

    def solve(self, index: int, start: int) -> bool:
        """Satisfies this request and all that follow; one that repeats the request before it begins at `start`."""
        if index == len(self._asks):
            return True
        ask = self._asks[index]
        return any(
            self._take_all(index, wanted)
            if wanted.count == ALL
            else self._fill(index, wanted, 0, start if ask.repeats else 0)
            for wanted in ask.request.ways
            if self._within_limit(ask, wanted)
        )

    def _within_limit(self, ask: _Ask, wanted: Wanted) -> bool:
        """Whether the claim may have so many devices. Raises AllocationError when there is no other way."""
        found = self._candidates[ask.claim, wanted.name]
        if wanted.count == ALL:
            _raise_problem(wanted, found)
        asked = found.matching if wanted.count == ALL else wanted.count
        total = asked + sum(pick.claim == ask.claim for pick in self.attempt.picks)
        if total > MOST_RESULTS and len(ask.request.ways) == 1:
            raise AllocationError(f"number of requested devices {total} exceeds the claim limit of {MOST_RESULTS}")
        return total <= MOST_RESULTS

    def _fill(self, index: int, wanted: Wanted, picked: int, start: int) -> bool:
        """Picks the rest of a request's devices, from a place in the list on."""
        ask = self._asks[index]
        found = self._candidates[ask.claim, wanted.name]
        first = self.attempt.picks[-picked].device if picked else None
        if picked == wanted.count:
            # an equal request begins after this one's first device, or at it when it can be shared
            return self.solve(index + 1, found.after(first) - first.shareable if first else 0)
        if self._too_few(ask, wanted, found, picked, start):
            _raise_problem(wanted, found)
            return False
        failed: set[object] = set()
        for place in range(start, len(found.devices)):
            candidate = found.devices[place]
            if not self.attempt.allows(ask.claim, wanted, candidate):
                continue
            likeness = self._likeness(candidate.device)
            if likeness in failed:
                continue
            self._take(ask, wanted, candidate)
            if self._fill(index, wanted, picked + 1, place + 1):
                return True
            self.attempt.give_back()
            failed.add(likeness)
        _raise_problem(wanted, found)
        return False

    def _too_few(self, ask: _Ask, wanted: Wanted, found: Candidates, picked: int, start: int) -> bool:
        """Whether what is left cannot be enough, for this request and for those that repeat it."""
        needed = wanted.count - picked
        rest = islice(found.devices, start, None)
        if not _at_least(needed, (self.attempt.allows(ask.claim, wanted, one) for one in rest)):
            return True
        if not ask.repeated or wanted.admin or any(one.device.shareable for one in found.devices):
            return False
        begin = found.after(self.attempt.picks[-picked].device) if picked else start
        rest = islice(found.devices, begin, None)
        return not _at_least(needed + ask.repeated * wanted.count, (self.attempt.free(one) for one in rest))

    def _take_all(self, index: int, wanted: Wanted) -> bool:
        """Every device that matches; one that cannot be had means none."""
        ask = self._asks[index]
        if self._troubles:
            raise AllocationError(f'request "{wanted.name}" asks for all devices, but {self._troubles[0]}')
        found = self._candidates[ask.claim, wanted.name]
        taken = 0
        for candidate in found.devices:
            if not self.attempt.allows(ask.claim, wanted, candidate):
                break
            self._take(ask, wanted, candidate)
            taken += 1
        if taken and taken == found.matching and self.solve(index + 1, 0):
            return True
        for _ in range(taken):
            self.attempt.give_back()
        return False

    def _take(self, ask: _Ask, wanted: Wanted, candidate: Candidate) -> None:
        if self.steps >= self._most_steps:
            raise AllocationError("gave up after too many steps trying to allocate devices")
        self.steps += 1
        self.attempt.take(Pick(ask.claim, wanted, candidate.device, candidate.consumed))

    def _likeness(self, device: Device) -> object:
        """Devices with the same one are interchangeable: what the first could not solve, the others cannot."""
        meant = tuple(device in found.places for found in self._candidates.values())
        return meant, self.attempt.state(device)


def _raise_problem(wanted: Wanted, found: Candidates) -> None:
    """The next device is one of which a selector cannot say whether it is meant. Raises AllocationError."""
    if found.error:
        raise AllocationError(f'request "{wanted.name}": {found.error}')


def _at_least(number: int, answers: Iterable[bool]) -> bool:
    """Whether so many are true; looks no further than it must."""
    return sum(islice(filter(None, answers), number)) >= number


def _asks(index: int, claim: Claim) -> list[_Ask]:
    """The requests of a claim, knowing their equals."""
    asks: list[_Ask] = []
    for request in reversed(claim.requests):
        ask = _Ask(index, request)
        if asks and _equal(claim, request, asks[0].request):
            asks[0] = replace(asks[0], repeats=True)
            ask = replace(ask, repeated=asks[0].repeated + 1)
        asks.insert(0, ask)
    return asks


def _equal(claim: Claim, one: Request, other: Request) -> bool:
    """Whether two requests ask for the same, bound by the same constraints."""
    if len(one.ways) > 1 or len(other.ways) > 1:
        return False
    return replace(one.ways[0], name="") == replace(other.ways[0], name="") and all(
        rule.covers(one.name) == rule.covers(other.name) for rule in claim.constraints
    )
