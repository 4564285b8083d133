"""The operator's own errors. Each message is written for the person who reads it in the log or at the terminal."""

from dracpu_api.errors import DriverError


class AccessError(DriverError):
    """It is not known how to reach the API server, or the kubeconfig is wrong."""


class WatchError(DriverError):
    """A watch has ended for good: a new process has to list everything again."""


class LeadershipError(DriverError):
    """Another operator leads, or may lead soon: this process must not write any more."""


class ManifestError(DriverError):
    """A file cannot be read, or does not hold the expected object."""


class HeldError(DriverError):
    """Claims still hold CPUs, so the driver must not be uninstalled."""
