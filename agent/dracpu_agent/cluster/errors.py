"""The error of a configuration with which the API server cannot be reached."""

from dracpu_api.errors import DriverError


class ClusterConfigError(DriverError):
    """The configuration for the access to the API server is missing, wrong or not supported."""
