"""A small driver for tests of what all drivers have in common.

It offers marbles of two colours, which claims request by number. A container may have as many processes as its claims
have marbles. Nothing of the product knows of it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from nodes import NODE, share, uid

from dracpu_agent.claims.fields import Fields, RecordError
from dracpu_agent.claims.grant import ClaimRef, Grant
from dracpu_agent.claims.held import HeldClaim, Variables
from dracpu_agent.claims.ledger import Ledger
from dracpu_agent.claims.request import Ask, ClaimAllocation, ClaimRefusedError, ClaimRequest, Json, read_request
from dracpu_agent.devices.device import Capacity, Device, RequestPolicy, Taint
from dracpu_agent.drivers.driver import Driver
from dracpu_agent.errors import SettingsRefusedError
from dracpu_agent.placement.container import Container
from dracpu_agent.placement.proof import CdiDevice
from dracpu_api.cpuset import EMPTY
from dracpu_api.names import DriverNames
from dracpu_api.settings import CpuNodeSpec

DRIVER: Final = "dra.marbles"
COLOURS: Final = ("blue", "red")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarbleGrant(Grant):
    """Marbles given to one allocation result."""

    colour: str
    number: int

    def data(self) -> dict[str, Any]:
        return self.fields()

    def fields(self) -> dict[str, Any]:
        return {"colour": self.colour, "number": self.number}


@dataclass(frozen=True, slots=True)
class MarbleClaim(HeldClaim[MarbleGrant]):
    """A claim and its marbles."""

    names: ClassVar[DriverNames] = DriverNames(DRIVER, "example.com/marble", "DRAMARBLES_")
    kind: ClassVar[str] = "marble"

    @property
    def content(self) -> str:
        return f"marbles {self.text(self.grants)}"

    @property
    def size(self) -> float:
        return sum(grant.number for grant in self.grants)

    def text(self, grants: Sequence[MarbleGrant]) -> str:
        return ",".join(f"{grant.number} {grant.colour}" for grant in grants)

    def variables(self, request: str | None, grants: Sequence[MarbleGrant]) -> Variables:
        return ((self.names.variable(self.ref.uid, request), self.text(grants)),)

    @classmethod
    def decode_grant(cls, request: str, pool: str, device: str, share_id: str | None, fields: Fields) -> MarbleGrant:
        colour, number = fields.text("colour"), fields.take("number", int)
        if number < 1:
            raise RecordError("a grant has no marbles")
        return MarbleGrant(
            request=request,
            pool=pool,
            device=device,
            share_id=share_id,
            colour=colour,
            number=number,
            unknown=fields.left,
        )

    @classmethod
    def salvage(
        cls, record: object, devices: Iterable[CdiDevice], others: Iterable[MarbleGrant]
    ) -> tuple[MarbleGrant, ...]:
        return tuple(others)


@dataclass(frozen=True, slots=True)
class MarbleAsk(Ask):
    """One allocation result."""

    number: int

    def terms(self) -> list[Any]:
        return [self.number]


class Marbles(Driver[MarbleAsk, MarbleClaim]):
    """The driver. `there` may change at any time; a colour that is `closed` is not offered any more."""

    names = MarbleClaim.names
    claim_type = MarbleClaim

    def __init__(self, there: dict[str, int]) -> None:
        super().__init__(Ledger())
        self.there = there
        self.closed: set[str] = set()
        self.configured = False
        self.processes_per_marble = 1

    def check(self, spec: CpuNodeSpec) -> None:
        if spec.config_name == "no-marbles":
            raise SettingsRefusedError("marbles are not possible with this config")

    def configure(self, spec: CpuNodeSpec) -> None:
        self.configured = True

    def deconfigure(self) -> None:
        self.configured = False

    def held(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for claim in self.ledger.claims.values():
            for grant in claim.grants:
                counts[grant.colour] += grant.number
        return counts

    def devices(self, taints: tuple[Taint, ...]) -> tuple[Device, ...]:
        offered = {colour: max(self.there[colour], self.held()[colour]) for colour in COLOURS}
        policy = RequestPolicy(default=1, minimum=1, step=1)
        return tuple(
            Device(
                f"marbles-{colour}", EMPTY, {"dra.marbles/colour": colour}, Capacity("number", number, policy), taints
            )
            for colour, number in offered.items()
            if self.configured and number > 0 and colour not in self.closed
        )

    def read(self, ref: ClaimRef, claim: Json) -> ClaimRequest[MarbleAsk]:
        return read_request(ref, claim, NODE, DRIVER, _ask)

    def choose(self, request: ClaimRequest[MarbleAsk]) -> tuple[MarbleGrant, ...]:
        taken = self.held()
        grants = []
        for ask in request.asks:
            colour = ask.device.removeprefix("marbles-")
            taken[colour] += ask.number
            if taken[colour] > self.there[colour]:
                raise ClaimRefusedError(f"claim {request.ref}: {ask.number} {colour} marbles are not free")
            grants.append(
                MarbleGrant(
                    request=ask.request,
                    pool=ask.pool,
                    device=ask.device,
                    share_id=ask.share_id,
                    colour=colour,
                    number=ask.number,
                )
            )
        return tuple(grants)

    def limits(self, container: Container, devices: frozenset[str]) -> dict[str, str]:
        grants = {
            device.name: sum(grant.number for grant in used)
            for claim in self.ledger.claims.values()
            for device, (_, used) in zip(claim.cdi_devices(), claim.uses(), strict=True)
        }
        number = sum(grants.get(device, 0) for device in devices) * self.processes_per_marble
        return {"pids.max": str(number)} if devices else {}

    def draining(self) -> tuple[ClaimRef, ...]:
        claims = self.ledger.claims.values()
        return tuple(claim.ref for claim in claims if any(grant.colour in self.closed for grant in claim.grants))

    def problems(self) -> dict[str, str]:
        return {f"marbles-{colour}": "some are lost" for colour in COLOURS if self.held()[colour] > self.there[colour]}

    def state(self) -> Any:
        return sorted(self.closed)

    def restore(self, state: Any) -> None:
        self.closed = set(state)


def _ask(_: ClaimAllocation, result: Json) -> MarbleAsk:
    number = int(result["consumedCapacity"]["number"])
    return MarbleAsk(result["request"], result["pool"], result["device"], result.get("shareID"), number)


def marbles(colour: str, number: int, request: str = "main") -> dict[str, Any]:
    """Builds an allocation result."""
    return share(f"marbles-{colour}", number, request) | {"driver": DRIVER, "consumedCapacity": {"number": str(number)}}


def cdi(number: int, request: str = "") -> str:
    return f"example.com/marble=claim-{uid(number)}{request and f'-{request}'}"


class Bag:
    """Makes the driver of each agent; the machine keeps its marbles when the agent restarts."""

    def __init__(self, **there: int) -> None:
        self.there = there

    def drivers(self) -> tuple[Marbles]:
        return (Marbles(self.there),)
