"""`dracpu-agent state`: prints the claims, CPUs, memory and conditions of this node's agent, running or not."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from dracpu_agent.checkpoint.statefile import load
from dracpu_agent.observe.state import StateError, read_state
from dracpu_agent.report.document import document_of_checkpoint
from dracpu_api.conditions import REMARKS
from dracpu_api.names import DRIVER
from dracpu_api.quantity import whole_number

_MIB: Final = 1024**2


def print_state(parsed: Namespace) -> None:
    """The command."""
    document = _document(Path(parsed.state_dir))
    print(json.dumps(document, indent=2) + "\n" if parsed.output == "json" else table(document), end="")


def table(document: Mapping[str, Any]) -> str:
    """The state document as text for a terminal."""
    containers = document.get("containers")
    lines = [
        f"node {document['node']}, revision {document['revision'] or 'none'}",
        f"reserved   {document['reserved'] or '-'}",
        f"exclusive  {document['exclusive'] or '-'}",
    ]
    if containers:
        lines.append(f"shared     {document['shared'] or '-'}")
        lines.append(f"containers {containers['total']}, of them {containers['pinned']} on claims")
    lines.append("")
    of_cpus = [claim for claim in document["claims"] if claim["driver"] == DRIVER]
    lines += _columns(("CLAIM", "CPUS", "STATE", "UID"), [(claim, claim["cpus"]) for claim in of_cpus])
    others = [claim for claim in document["claims"] if claim["driver"] != DRIVER]
    if others:
        rows = [(claim, claim["holds"], _used(claim)) for claim in others]
        lines += ["", *_columns(("CLAIM", "HOLDS", "USED", "STATE", "UID"), rows)]
    problems = [
        condition for condition in document["conditions"] if condition["status"] is (condition["type"] in REMARKS)
    ]
    lines += [""] if problems else []
    lines += [f"{condition['type']}: {condition['reason']}: {condition['message']}" for condition in problems]
    return "\n".join(lines) + "\n"


def _columns(head: tuple[str, ...], claims: Iterable[tuple[Any, ...]]) -> list[str]:
    """A line for each claim, whose own cells are between its name and its state."""
    rows = [head]
    rows += [(f"{claim['namespace']}/{claim['name']}", *own, claim["state"], claim["uid"]) for claim, *own in claims]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _used(claim: Mapping[str, Any]) -> str:
    """How much of the claim containers use, in whole MiB and in the order of its kinds; "-" if that is not known."""
    return ", ".join(f"{(whole_number(part['used']) or 0) // _MIB}Mi" for part in claim.get("used", ())) or "-"


def _document(state_dir: Path) -> Mapping[str, Any]:
    """The state that the running agent reports, or the one in its last checkpoint."""
    try:
        document = read_state(state_dir)
    except StateError as error:
        loaded = load(state_dir)
        if loaded.checkpoint is None:
            damage = f" ({loaded.damage})" if loaded.damage else ""
            raise StateError(f"no usable checkpoint in {state_dir}{damage}, and {error}") from error
        print(f"dracpu-agent: this is the last checkpoint: {error}", file=sys.stderr)
        return document_of_checkpoint(loaded.checkpoint)
    assert isinstance(document, dict)
    return document
