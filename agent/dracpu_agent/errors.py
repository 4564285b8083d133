"""The errors that leave a room. Each message is written for the person who reads it in `kubectl describe pod`,
in a status condition or in the log, and is translated once, at the edge: into a gRPC answer, an NRI status or a
condition. Rooms define their own subclasses.
"""


class DriverError(Exception):
    """Base of everything that this driver refuses or could not do."""


class ClaimError(DriverError):
    """A claim cannot be prepared or unprepared; the kubelet shows the message on the pod and tries again."""


class NotReadyError(ClaimError):
    """Nothing is wrong with the claim: the node cannot serve it at the moment."""


class PlacementError(DriverError):
    """A container must not run as asked; the runtime fails its creation and the kubelet tries again."""


class SettingsRefusedError(DriverError):
    """Settings that this node cannot apply; it stays on its last good ones."""
