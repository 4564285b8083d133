"""The error of the tools that record what a real Kubernetes does."""


class RecordError(Exception):
    """The fixtures cannot be recorded; the message says why."""
