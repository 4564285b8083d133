"""What a person is told when the API server cannot serve."""

from dracpu_sandbox.errors import SandboxError


class PortTakenError(SandboxError):
    """The port that was asked for cannot be had."""
