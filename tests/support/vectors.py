"""Loads the allocation vectors (tests/vectors/README.md) as typed records, and their machines as topologies."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from dracpu_agent.topology import described
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import EMPTY, CpuSet

VECTORS = Path(__file__).parents[1] / "vectors"


@dataclass(frozen=True, slots=True)
class Case:
    """A request in a situation, and the kubelet's answer."""

    id: str
    topology: str
    mode: Literal["numa-packed", "numa-distributed"]
    spread: bool
    prefer_uncore: bool
    group_size: int
    count: int
    available: CpuSet
    expect: Literal["exact", "valid", "refuse"]
    cpus: CpuSet
    go_ns: int  # 0: not measured


@cache
def topologies() -> Mapping[str, Topology]:
    """The machines by name."""
    return described.machines((VECTORS / "topologies.json").read_text())


def answers() -> list[Case]:
    """Every vector."""
    with gzip.open(VECTORS / "vectors.jsonl.gz", "rt") as lines:
        return [_case(json.loads(line)) for line in lines]


def bench() -> list[Case]:
    """The cases with the time that the kubelet's code takes."""
    return [_case(json.loads(line)) for line in (VECTORS / "bench.jsonl").read_text().splitlines()]


def _case(fields: dict[str, Any]) -> Case:
    return Case(
        id=fields["id"],
        topology=fields["topology"],
        mode=fields["mode"],
        spread=fields["strategy"] == "spread",
        prefer_uncore=fields["prefer_uncore"],
        group_size=fields["group_size"],
        count=fields["num"],
        available=CpuSet.parse(fields["available"]),
        expect=fields.get("expect", "exact"),
        cpus=CpuSet.parse(fields["cpus"]) if "cpus" in fields else EMPTY,
        go_ns=fields.get("go_ns", 0),
    )
