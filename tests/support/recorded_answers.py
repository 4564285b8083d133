"""What a real API server answered to good and bad objects (recorded/*.jsonl): `make record` asks it again.

The questions in these files are written by hand, the answers are not.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).with_name("recorded")
CRDS: Final = Path(__file__).parents[2] / "crds"


@dataclass(frozen=True)
class Recorded:
    """One object that was sent, and the answer."""

    what: str
    kind: str  # the plural
    new: Mapping[str, Any]
    answer: Mapping[str, Any]  # code and fields, or stored
    old: Mapping[str, Any] | None = None  # the object that `new` replaced; None: it was created
    old_status: Mapping[str, Any] | None = None
    subresource: str = ""
    validation: str = "Ignore"  # the query's fieldValidation

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"

    @property
    def stored(self) -> Any:
        """The object as it was stored; None when it was refused."""
        return self.answer.get("stored")


def recorded(name: str) -> list[Recorded]:
    """The objects of a file."""
    return [Recorded(**entry) for entry in lines(name)]


def lines(name: str) -> list[dict[str, Any]]:
    """The entries of a file of JSON lines."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]


def things() -> dict[str, Any]:
    """The definition of the kind that the objects in custom.jsonl are of."""
    definition: dict[str, Any] = yaml.safe_load((FOLDER / "things.yaml").read_text())
    return definition


def definitions() -> list[dict[str, Any]]:
    """The definitions of all custom kinds that are asked about."""
    own = [yaml.safe_load((CRDS / f"{name}.yaml").read_text()) for name in ("cpudriverconfigs", "cpunodes")]
    return [things(), *own]
