"""The allocator beside the Go original: the same questions, time per call, and how many times faster."""

import statistics
import time
from collections.abc import Callable

import vectors
from dracpu_agent.allocation.distributed import distributed
from dracpu_agent.allocation.machine import Machine
from dracpu_agent.allocation.packed import packed
from vectors import Case

CALLS = 50


def test_allocation_speed() -> None:
    machines = {name: Machine.of(topology) for name, topology in vectors.topologies().items()}
    lines = [f"{'case':40} {'Go us':>10} {'ours us':>10} {'ratio':>8}"]
    ratios: list[float] = []
    for case in vectors.bench():
        ask = question(machines[case.topology], case)
        assert ask() == case.cpus.mask, case.id
        ours = best_of(CALLS, ask)
        ratios.append(case.go_ns / ours)
        lines.append(f"{case.id:40} {case.go_ns / 1000:10.1f} {ours / 1000:10.1f} {ratios[-1]:8.1f}")
    lines.append(f"median {statistics.median(ratios):.1f} (budget 10), worst {min(ratios):.1f} (budget 3)")
    print("", *lines, sep="\n")  # the table is what this is for


def question(machine: Machine, case: Case) -> Callable[[], int]:
    available = case.available.mask
    if case.mode == "numa-packed":
        return lambda: packed(machine, available, case.count, prefer_uncore=case.prefer_uncore, spread=case.spread)
    return lambda: distributed(machine, available, case.count, case.group_size, spread=case.spread)


def best_of(calls: int, call: Callable[[], int]) -> int:
    """Nanoseconds of the fastest call: what the code takes when the machine does nothing else."""
    times: list[int] = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return min(times)
