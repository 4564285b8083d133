"""Errors of the API server that are reported to the person who starts it."""

from dracpu_sandbox.errors import SandboxError


class PortTakenError(SandboxError):
    """The requested port is not available."""
