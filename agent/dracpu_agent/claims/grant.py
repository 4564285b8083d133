"""The reference, the grants and the prepared devices of a claim."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.name else f"UID {self.uid}"  # a frozen claim may lack its name


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a driver has given to one allocation result of a claim. Each driver adds its own fields."""

    request: str  # "main", or "main/sub" for a prioritized list
    pool: str
    device: str
    share_id: str | None  # None: the device is not shared
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False)  # fields of its record, from a newer agent

    @property
    def base_request(self) -> str:
        """The request's own name, which pods use: the kubelet does not pass on sub-requests."""
        return self.request.partition("/")[0]

    def data(self) -> Mapping[str, Any]:
        """What the owner of the claim sees in its status: an object of JSON."""
        raise NotImplementedError

    def fields(self) -> Mapping[str, Any]:
        """The driver's own fields in the record of the claim, as JSON."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """One device of a prepared claim, as the kubelet receives it."""

    requests: tuple[str, ...]
    pool: str
    device: str
    share_id: str | None
    cdi_ids: tuple[str, ...]
