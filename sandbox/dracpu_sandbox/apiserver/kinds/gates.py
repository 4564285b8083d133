"""Feature gates of the API server: it drops the fields of a gate that is off, without an error or a warning.

An object that has such fields already would keep them in a real server; here they go with the next write.
"""

from collections.abc import Collection
from typing import Final

Gates = Collection[str]  # those that are on

CONSUMABLE_CAPACITY: Final = "DRAConsumableCapacity"
DEVICE_TAINTS: Final = "DRADeviceTaints"
LIST_ATTRIBUTES: Final = "DRAListTypeAttributes"
NODE_ALLOCATABLE: Final = "DRANodeAllocatableResources"

ON_BY_DEFAULT: Final[frozenset[str]] = frozenset({CONSUMABLE_CAPACITY, DEVICE_TAINTS})  # in 1.36
