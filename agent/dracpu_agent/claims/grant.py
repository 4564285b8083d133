"""The records that a claim becomes on its way through the rooms."""

from dataclasses import dataclass

from dracpu_api.cpuset import CpuSet


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """What the kubelet says of a claim."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class CpuGrant:
    """CPUs given to one allocation result of a claim."""

    request: str  # "main", or "main/sub" for a prioritized list
    pool: str
    device: str
    share_id: str | None  # None: the device is not shared
    cpus: CpuSet

    @property
    def base_request(self) -> str:
        """The request's own name, which pods use: the kubelet knows no sub-requests."""
        return self.request.partition("/")[0]


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """One device of a prepared claim, as the kubelet is told of it."""

    requests: tuple[str, ...]
    pool: str
    device: str
    share_id: str | None
    cdi_ids: tuple[str, ...]
