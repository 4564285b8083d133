"""The errors that leave a room. Each message is for the person who reads it in the log, a status or an Event."""

from dracpu_api.errors import DriverError


class AccessError(DriverError):
    """Nothing tells how to reach the API server, or what tells it is wrong."""


class WatchError(DriverError):
    """Nothing tells any more what changes: a new process has to look at everything anew."""


class ManifestError(DriverError):
    """A file cannot be read, or does not hold the expected object."""


class HeldError(DriverError):
    """Claims hold CPUs, and what was asked for would leave them alone with it."""


class ListenError(DriverError):
    """The address for probes and metrics is not one, or cannot be listened on."""
