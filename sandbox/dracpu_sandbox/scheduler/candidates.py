"""Which devices could satisfy a request if nobody had them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dracpu_sandbox.cel.expressions import CelError
from dracpu_sandbox.scheduler.capacity import Consumed, consumption
from dracpu_sandbox.scheduler.devices import Device
from dracpu_sandbox.scheduler.nodes import tolerated
from dracpu_sandbox.scheduler.requests import DeviceClass, Wanted
from dracpu_sandbox.scheduler.selectors import matches


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device, and what the request would consume of it."""

    device: Device
    consumed: Consumed


@dataclass(frozen=True, slots=True)
class Candidates:
    """Devices in the order in which they are tried."""

    devices: Sequence[Candidate]
    places: Mapping[Device, int]
    matching: int = 0  # how many the selectors mean, tainted and small ones too
    error: str = ""  # a selector failed on the device that comes after these: whoever gets that far has no answer

    def after(self, device: Device) -> int:
        """The place after the device's."""
        return self.places[device] + 1


def candidates(wanted: Wanted, device_class: DeviceClass, devices: Sequence[Device]) -> Candidates:
    """The candidates of one way to satisfy a request."""
    selectors = (*device_class.selectors, *wanted.selectors)
    found, matching, problem = [], 0, ""
    for device in devices:
        try:
            if not matches(device, selectors):
                continue
        except CelError as error:
            problem = str(error)
            break
        matching += 1
        consumed = consumption(device, wanted)
        if consumed is not None and _tolerates(wanted, device):
            found.append(Candidate(device, consumed))
    return Candidates(found, {one.device: place for place, one in enumerate(found)}, matching, problem)


def _tolerates(wanted: Wanted, device: Device) -> bool:
    return all(
        tolerated({"key": one.key, "value": one.value, "effect": one.effect}, wanted.tolerations)
        for one in device.taints
        if one.effect in {"NoSchedule", "NoExecute"}
    )
