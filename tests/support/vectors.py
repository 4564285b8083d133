"""The allocation vectors (tests/vectors/README.md) as typed records, and their machines as topologies."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from dracpu_agent.topology.model import Cpu, Topology
from dracpu_api.cpuset import EMPTY, CpuSet

VECTORS = Path(__file__).parents[1] / "vectors"


@dataclass(frozen=True, slots=True)
class Case:
    """A situation, and what the kubelet answers."""

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
    machines = json.loads((VECTORS / "topologies.json").read_text())
    return {name: _topology(cpus) for name, cpus in machines.items()}


def answers() -> list[Case]:
    """Every vector."""
    with gzip.open(VECTORS / "vectors.jsonl.gz", "rt") as lines:
        return [_case(json.loads(line)) for line in lines]


def bench() -> list[Case]:
    """The cases with the time that the Go original takes."""
    return [_case(json.loads(line)) for line in (VECTORS / "bench.jsonl").read_text().splitlines()]


def _topology(described: list[dict[str, Any]]) -> Topology:
    def hardware_core(cpu: dict[str, Any]) -> tuple[int, int, int]:
        return cpu["socket"], cpu["cluster"], cpu["core"]

    ascending = sorted(described, key=lambda cpu: int(cpu["cpu"]))
    lowest: dict[tuple[int, int, int], int] = {}
    for cpu in ascending:
        lowest.setdefault(hardware_core(cpu), cpu["cpu"])
    return Topology(
        tuple(
            Cpu(
                id=cpu["cpu"],
                core=lowest[hardware_core(cpu)],
                core_id=cpu["core"],
                socket=cpu["socket"],
                numa=cpu["numa"],
                l3=cpu["uncore"],
                type=cpu["core_type"],
            )
            for cpu in ascending
        )
    )


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
