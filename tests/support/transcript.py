"""Reads the commands and their output from a document's console blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_AGE: Final = re.compile(r"\b(\d+[dhms])+$", re.MULTILINE)
# the suffix of generateName, and the hash of a node's slices before it
_SUFFIX: Final = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b")


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and its output in the document."""

    command: str
    printed: str


def steps(document: Path, section: str) -> Iterator[Step]:
    """The commands of a section's console blocks, in order: after `$ `, continued after a backslash."""
    _, heading, rest = document.read_text().partition(f"\n## {section}\n")
    assert heading, f"{document} has no section {section}"
    for block in _BLOCK.findall(rest.partition("\n## ")[0]):
        for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = session.splitlines()
            length = next(number for number, line in enumerate(lines, 1) if not line.endswith("\\"))
            yield Step("\n".join(lines[:length]), "\n".join(lines[length:]))


def comparable(printed: str) -> list[str]:
    """Lines of output without the parts that differ between runs: ages, random names, the width of columns."""
    named = _SUFFIX.sub("-xxxxx", _AGE.sub("AGE", printed.rstrip()))
    return [" ".join(line.split()) for line in named.splitlines() if line.strip()]
