"""What a real API server answered to good and bad objects (recorded/*.jsonl), to be compared with what ours answers."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).with_name("recorded")


@dataclass(frozen=True)
class Recorded:
    """One object that was sent, and the answer."""

    what: str
    kind: str  # the plural
    new: Mapping[str, Any]
    answer: Mapping[str, Any]  # code and message, or stored
    old: Mapping[str, Any] | None = None  # what was there before; None: it was a create
    old_status: Mapping[str, Any] | None = None
    subresource: str = ""
    validation: str = "Ignore"  # the query's fieldValidation

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"

    @property
    def stored(self) -> Any:
        """What became of the object; None when it was refused."""
        return self.answer.get("stored")


def recorded(name: str) -> list[Recorded]:
    """The objects of a file."""
    return [Recorded(**entry) for entry in lines(name)]


def lines(name: str) -> list[dict[str, Any]]:
    """What stands in a file of JSON lines."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]


def things() -> dict[str, Any]:
    """The definition of the kind that the objects in custom.jsonl are of."""
    definition: dict[str, Any] = yaml.safe_load((FOLDER / "things.yaml").read_text())
    return definition


# what a definition that cannot be stored has in its status
_CONSEQUENCE: Final = "status.storedVersions: "


def essence(message: str) -> tuple[str, frozenset[str]]:
    """A message without what need not be equal: order of errors, dumps of Go's records, words of compilers."""
    whole = re.sub(r"(compilation failed: |but isn't: ).*?(?=$|, spec\.|\]$)", r"\1...", message, flags=re.DOTALL)
    head, found, rest = whole.partition(" is invalid: ")
    if not found:
        return whole, frozenset()
    errors = rest[1:-1] if rest.startswith("[") else rest
    told = _NEXT.split(_without_records(errors))
    return head, frozenset(one for one in told if not one.startswith(_CONSEQUENCE))


def _without_records(text: str) -> str:
    """Each JSON object or list that is told as a value becomes {}: Go tells fields that we have not."""
    out, position = "", 0
    for match in re.finditer(r"Invalid value: (?=[\[{])", text):
        if match.end() < position:
            continue
        _, length = json.JSONDecoder().raw_decode(text[match.end() :])
        out += text[position : match.end()] + "{}"
        position = match.end() + length
    return out + text[position:]


_NEXT: Final = re.compile(
    r", (?=(?:<nil>|[a-zA-Z][\w.\[\]/-]*): (?:Invalid|Required|Unsupported|Duplicate|Forbidden|Too|Not found))"
)
