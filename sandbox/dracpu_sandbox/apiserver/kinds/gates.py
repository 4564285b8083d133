"""Feature gates of the API server: it drops the fields of a gate that is off, without an error or a warning.

A real server keeps such fields in objects that have them already; here the next write drops them.
"""

from collections.abc import Collection
from typing import Final

Gates = Collection[str]  # the names of the gates that are on

CONSUMABLE_CAPACITY: Final = "DRAConsumableCapacity"
DEVICE_TAINTS: Final = "DRADeviceTaints"
LIST_ATTRIBUTES: Final = "DRAListTypeAttributes"
NODE_ALLOCATABLE: Final = "DRANodeAllocatableResources"
COMPATIBILITY_GROUPS: Final = "DRADeviceCompatibilityGroups"
PARTITION_TYPES: Final = "DRAPartitionableDevicesType"
NODE_OPERATIONS: Final = "DRAOptionalNodeOperations"
DERIVED_ATTRIBUTES: Final = "DRADerivedAttributes"

ON_BY_DEFAULT: Final[frozenset[str]] = frozenset({CONSUMABLE_CAPACITY, DEVICE_TAINTS})  # in 1.36 and 1.37
