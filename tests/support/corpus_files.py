"""Good and bad objects, which the models, the sandbox's API server and a real one must accept or refuse alike."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).with_name("corpus")
_KINDS: Final = {"config": "CpuDriverConfig", "node": "CpuNode"}


@dataclass(frozen=True)
class Case:
    """An object, and whether it is accepted."""

    what: str
    object: Mapping[str, Any]
    refused: str | None = None  # a regular expression that the message matches; None: accepted
    becomes: Mapping[str, Any] | None = None  # the spec with its defaults filled in

    def __str__(self) -> str:
        return f"{self.object['kind']}: {self.what}"


def good() -> list[Case]:
    """Returns the objects that must be accepted."""
    return _read("good")


def bad() -> list[Case]:
    """Returns the objects that must be refused."""
    return _read("bad")


def _read(verdict: str) -> list[Case]:
    cases = []
    for stem, kind in _KINDS.items():
        for entry in yaml.safe_load((FOLDER / f"{stem}-{verdict}.yaml").read_text()):
            whole = {"apiVersion": "dra.cpu/v1alpha1", "kind": kind, **entry.pop("object")}
            cases.append(Case(object=whole, **entry))
    assert all((case.refused is not None) == (verdict == "bad") for case in cases)
    return cases
