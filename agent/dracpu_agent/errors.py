"""The agent's common errors; rooms define subclasses.

Messages are written for people, who read them in `kubectl describe pod`, in conditions and in logs. An error is
translated once, at the edge: into a gRPC answer, an NRI status or a condition.
"""

from dracpu_api.errors import DriverError


class ClaimError(DriverError):
    """A claim cannot be prepared or unprepared; the kubelet shows the message on the pod and retries."""


class NotReadyError(ClaimError):
    """The claim is valid, but the node cannot serve it at the moment."""


class PlacementError(DriverError):
    """A container must not run as requested; the runtime fails its creation and the kubelet retries."""


class SettingsRefusedError(DriverError):
    """This node cannot apply the settings and keeps its last good ones."""


def refusal_in(failures: BaseExceptionGroup[BaseException]) -> DriverError | None:
    """The first error of a group if all of them are this driver's own; None if another error is among them."""
    refused, others = failures.split(DriverError)
    if refused is None or others is not None:
        return None
    first = refused.exceptions[0]
    return refusal_in(first) if isinstance(first, BaseExceptionGroup) else first
