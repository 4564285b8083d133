"""What can go wrong between the agent and the API server, as types that callers can tell apart."""

from dracpu_api.errors import DriverError


class ClusterConfigError(DriverError):
    """Nothing tells how to reach the API server, or what tells it is wrong or not supported."""
