"""Reads the answers of a real API server to valid and invalid objects, for comparison with the sandbox's answers.

The objects in recorded/*.jsonl are written by hand. `make record` sends them to a server and writes its answers.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from dra_objects import device_class, slice_of

FOLDER: Final = Path(__file__).with_name("recorded")
CRDS: Final = Path(__file__).parents[2] / "crds"


@dataclass(frozen=True)
class Recorded:
    """An object that was sent to a real API server, and the server's answer."""

    what: str
    kind: str  # the plural name
    new: Mapping[str, Any]
    answer: Mapping[str, Any]  # either `code` and `fields`, or `stored`
    old: Mapping[str, Any] | None = None  # the object before an update; None for a create
    old_status: Mapping[str, Any] | None = None
    subresource: str = ""
    validation: str = "Ignore"  # the query parameter fieldValidation

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"

    @property
    def stored(self) -> Any:
        """Returns the stored object, or None when the server refused it."""
        return self.answer.get("stored")


def recorded(name: str) -> list[Recorded]:
    """Returns the objects and answers in a file."""
    return [Recorded(**entry) for entry in lines(name)]


def lines(name: str) -> list[dict[str, Any]]:
    """Returns the entries of a file of JSON lines."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]


def offered(question: Mapping[str, Any], node: str) -> list[dict[str, Any]]:
    """Returns the slices of a question in scheduler.jsonl: its `devices` are of the driver dra.cpu, and those in
    `others` of the drivers that it names."""
    drivers = {"dra.cpu": question["devices"], **question.get("others", {})}
    return [slice_of(node, devices, driver=driver) for driver, devices in drivers.items() if devices]


def classes(question: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the DeviceClasses of a question; those in `drivers` select the devices of another driver than dra.cpu."""
    drivers = question.get("drivers", {})
    return [
        device_class(name, driver=drivers.get(name, "dra.cpu"), config=config)
        for name, config in question["classes"].items()
    ]


def allocated(allocation: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parts of an allocation that do not depend on the node's name and on chance."""
    devices = allocation["devices"]
    kept = ("request", "device", "consumedCapacity", "tolerations")
    results = [{name: result[name] for name in kept if name in result} for result in devices["results"]]
    return {"results": results, "config": devices.get("config", [])}


def things() -> dict[str, Any]:
    """Returns the CustomResourceDefinition of the objects in custom.jsonl."""
    definition: dict[str, Any] = yaml.safe_load((FOLDER / "things.yaml").read_text())
    return definition


def definitions() -> list[dict[str, Any]]:
    """Returns the CustomResourceDefinitions of all custom kinds of which objects are recorded."""
    own = [yaml.safe_load((CRDS / f"{name}.yaml").read_text()) for name in ("cpudriverconfigs", "cpunodes")]
    return [things(), *own]
