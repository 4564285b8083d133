"""Objects of the API that a scheduler reads again and again: what has not changed is not read twice."""

import logging
from collections.abc import Iterable, Mapping

from dracpu_sandbox.cel.quantity import QuantityError
from dracpu_sandbox.resources import JsonObject
from dracpu_sandbox.scheduler.devices import Slice, read_slice
from dracpu_sandbox.scheduler.pools import Inventory
from dracpu_sandbox.scheduler.requests import DeviceClass, read_class

_log = logging.getLogger(__name__)


def read_classes(bodies: Iterable[JsonObject]) -> Mapping[str, DeviceClass]:
    """Classes by name."""
    return {body["metadata"]["name"]: read_class(body) for body in bodies}


class SliceReader:
    """Turns slices into pools. Devices stay the same as long as their slice does: answers are remembered by device."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Slice | None] = {}  # by UID and version; None: it could not be read
        self._inventory = Inventory(())

    def inventory(self, bodies: Iterable[JsonObject]) -> Inventory:
        """The pools of all slices."""
        current = {(body["metadata"]["uid"], body["metadata"]["resourceVersion"]): body for body in bodies}
        if current.keys() != self._known.keys():
            self._known = {key: self._read(key, body) for key, body in current.items()}
            self._inventory = Inventory(one for one in self._known.values() if one is not None)
        return self._inventory

    def _read(self, key: tuple[str, str], body: JsonObject) -> Slice | None:
        if key in self._known:
            return self._known[key]
        try:
            return read_slice(body)
        except (KeyError, TypeError, ValueError, QuantityError) as error:
            _log.warning("ResourceSlice %s is left out: %s", body["metadata"]["name"], error)
            return None
