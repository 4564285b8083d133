"""The errors that leave a room. Each message is written for the person who reads it in `kubectl describe pod`,
in a status condition or in the log, and is translated once, at the edge: into a gRPC answer, an NRI status or a
condition. Rooms define their own subclasses.
"""

from dracpu_api.errors import DriverError


class ClaimError(DriverError):
    """A claim cannot be prepared or unprepared; the kubelet shows the message on the pod and tries again."""


class NotReadyError(ClaimError):
    """Nothing is wrong with the claim: the node cannot serve it at the moment."""


class PlacementError(DriverError):
    """A container must not run as asked; the runtime fails its creation and the kubelet tries again."""


class SettingsRefusedError(DriverError):
    """Settings that this node cannot apply; it stays on its last good ones."""


def refusal_in(failures: BaseExceptionGroup[BaseException]) -> DriverError | None:
    """The first of several errors where all of them are this driver's own; None when a defect is among them."""
    refused, others = failures.split(DriverError)
    if refused is None or others is not None:
        return None
    first = refused.exceptions[0]
    return refusal_in(first) if isinstance(first, BaseExceptionGroup) else first
