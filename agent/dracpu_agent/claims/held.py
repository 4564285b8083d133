"""A claim that is held, in the form that all drivers have in common. What it was granted is the driver's own concern.

A claim is *held* from Prepare to Unprepare, and *lingering* while containers of an unprepared claim still run: what it
holds is then neither free nor shared, and Prepare of the same claim revives it.

A claim is *frozen* when this agent cannot decode its record, because a newer agent wrote it. It keeps its record and
everything that the record or its CDI file names, and its containers stay where they run; only Unprepare ends it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from dracpu_agent.claims.fields import Fields
from dracpu_agent.claims.grant import ClaimRef, Grant
from dracpu_agent.placement.proof import CdiDevice, ClaimKey
from dracpu_api.names import DriverNames

G = TypeVar("G", bound=Grant)
Variables = tuple[tuple[str, str], ...]  # of the environment: names and values


@dataclass(frozen=True, slots=True)
class Frozen:
    """Why a claim's record cannot be decoded, and what must be kept of the claim."""

    reason: str
    record: Any = None  # as it was read; None: the claim is known from its CDI file alone
    devices: tuple[CdiDevice, ...] = ()  # of its CDI file


@dataclass(frozen=True, slots=True)
class HeldClaim(Generic[G]):
    """A claim and its grants. Each driver has a class of its own, which says what the grants mean."""

    names: ClassVar[DriverNames]
    kind: ClassVar[str]  # of the grants, in the claim's record

    ref: ClaimRef
    grants: tuple[G, ...]
    consumers: frozenset[str]
    digest: str
    lingering: bool = False
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False)  # fields of its record, from a newer agent
    frozen: Frozen | None = field(default=None, hash=False)  # then the grants are what can be read of them

    # ---- for each driver to define

    @property
    def content(self) -> str:
        """What the claim holds, for messages: "CPUs 2-3"."""
        raise NotImplementedError

    def text(self, grants: Sequence[G]) -> str:
        """What some of its grants are, in short: "2-3"."""
        raise NotImplementedError

    @property
    def serves_one_pod(self) -> bool:
        """True where a second pod must not use the claim while the first one does."""
        return False

    @property
    def size(self) -> float:
        """How much the claim holds, in the driver's unit, for metrics."""
        raise NotImplementedError

    def variables(self, request: str | None, grants: Sequence[G]) -> Variables:
        """The environment variables of one of its uses; `request` is None where the claim has one request."""
        raise NotImplementedError

    @classmethod
    def decode_grant(cls, request: str, pool: str, device: str, share_id: str | None, fields: Fields) -> G:
        """Reads the driver's own fields of a grant's record; what is left of them is unknown. Raises RecordError."""
        raise NotImplementedError

    @classmethod
    def salvage(cls, record: object, devices: Iterable[CdiDevice], others: Iterable[G]) -> tuple[G, ...]:
        """Grants for everything that can be found in a record that cannot be decoded, in the devices of the claim's CDI
        file, and in `others`, which were read from that file."""
        raise NotImplementedError

    # ---- what all claims have in common

    @property
    def namespace(self) -> str:
        """The claim's namespace; only pods of this namespace can use the claim."""
        return self.ref.namespace

    @property
    def key(self) -> ClaimKey:
        """Its key among the claims of all drivers."""
        return ClaimKey(self.names.driver, self.ref.uid)

    @property
    def has_cdi_file(self) -> bool:
        """Whether this agent writes its CDI file. The kubelet creates no container with a lingering claim before it
        prepares the claim again, and the file of a frozen claim contains more than this agent can write."""
        return not self.lingering and self.frozen is None

    @property
    def requests(self) -> tuple[str, ...]:
        """The names of its requests, in the order of the allocation."""
        return tuple(dict.fromkeys(grant.base_request for grant in self.grants))

    def grants_of(self, request: str) -> tuple[G, ...]:
        """The grants of one request."""
        return tuple(grant for grant in self.grants if grant.base_request == request)

    def uses(self) -> Iterator[tuple[str | None, tuple[G, ...]]]:
        """The units that a container can get: the claim if it has one request, otherwise each request separately."""
        if len(self.requests) == 1:
            yield None, self.grants
        else:
            for request in self.requests:
                yield request, self.grants_of(request)

    def cdi_devices(self) -> Iterator[CdiDevice]:
        """The CDI device of each use."""
        if self.frozen is not None and self.frozen.devices:
            yield from self.frozen.devices
            return
        for request, grants in self.uses():
            yield CdiDevice(self.names.cdi_device(self.ref.uid, request), self.variables(request, grants))
