"""The marks that stand for the CPUs of a node in a drawing, and show the use of each CPU.

A mark is one character, so that a drawing can be read without colours. The mark of a claim follows from its first CPU,
so that it does not change while other claims come and go. On a machine with more than 62 CPUs, two claims may get the
same character, but in different colours.
"""

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_sandbox.resources import JsonObject


@dataclass(frozen=True, slots=True)
class Mark:
    """A character with its colours, as a style of rich."""

    character: str
    style: str


RESERVED: Final = Mark("#", "bright_black")
SHARED: Final = Mark("·", "green")
HELD: Final = Mark("!", "bold white on red")  # held by a claim that the status does not name
UNKNOWN: Final = Mark("?", "dim")

_CHARACTERS: Final = string.ascii_uppercase + string.ascii_lowercase + string.digits
# a prime number of colours: combinations of character and colour repeat only after 682 CPUs
_COLOURS: Final = (
    "cyan", "magenta", "yellow", "bright_blue", "bright_green", "bright_red", "blue",
    "bright_magenta", "bright_cyan", "bright_yellow", "white",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that holds CPUs, with the name and mark that the legend shows."""

    name: str
    cpus: CpuSet
    mark: Mark


@dataclass(frozen=True, slots=True)
class Uses:
    """The use of each CPU of a node."""

    reserved: CpuSet = EMPTY
    shared: CpuSet = EMPTY
    exclusive: CpuSet = EMPTY
    claims: tuple[Claim, ...] = ()  # in the order in which they are drawn
    unnamed: int = 0  # claims that the status counts, but does not name: it names 256 at most
    _by_cpu: Mapping[int, Mark] = field(default_factory=dict)

    def mark(self, cpu: int) -> Mark:
        """Returns the mark of a CPU."""
        return self._by_cpu.get(cpu, UNKNOWN)


def uses_of(status: JsonObject, order: Sequence[int]) -> Uses:
    """Reads a CpuNode's status; `order` is the order in which the CPUs are drawn."""
    cpus = status.get("cpus") or {}
    reserved, shared, exclusive = (CpuSet.parse(cpus.get(name, "")) for name in ("reserved", "shared", "exclusive"))
    claims = tuple(_claims(status.get("claims") or (), order))
    # marks of claims come last: CPUs that were reserved later stay with their claim
    marked = [(reserved, RESERVED), (shared, SHARED), (exclusive, HELD)] + [
        (claim.cpus, claim.mark) for claim in claims
    ]
    by_cpu = {cpu: mark for group, mark in marked for cpu in group}
    unnamed = max(0, status.get("claimsTotal", 0) - len(claims))
    return Uses(reserved, shared, exclusive, claims, unnamed, by_cpu)


def _claims(listed: Iterable[JsonObject], order: Sequence[int]) -> Iterable[Claim]:
    places = {cpu: place for place, cpu in enumerate(order)}
    found: list[tuple[int, str, CpuSet]] = []
    for claim in listed:
        cpus = CpuSet.parse(claim["cpus"])
        place = min((places.get(cpu, len(order)) for cpu in cpus), default=len(order))
        found.append((place, f"{claim['namespace']}/{claim['name']}", cpus))
    for place, name, cpus in sorted(found, key=lambda found_claim: found_claim[:2]):
        colour = _COLOURS[place % len(_COLOURS)]
        yield Claim(name, cpus, Mark(_CHARACTERS[place % len(_CHARACTERS)], f"bold black on {colour}"))
