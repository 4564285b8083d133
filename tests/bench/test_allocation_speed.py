"""Measures the time of an allocation, compared with the kubelet's Go code, and of the longest searches for equal parts.
Asserts no times."""

import statistics
import time
from collections.abc import Callable

import vectors
from dracpu_agent.allocation.balance import balance
from dracpu_agent.allocation.distributed import distributed
from dracpu_agent.allocation.machine import Machine
from dracpu_agent.allocation.packed import packed
from vectors import Case

CALLS = 50

# (free CPUs of each group, count, chunk, fewest groups): no division reaches the bounds, so that the search would have
# to try all divisions.
HARD = {
    "16 NUMA nodes": ([2, 6, 6, 6, 8, 8, 2, 6, 4, 4, 4, 6, 4, 2, 8, 8], 46, 2, 12),
    "16 large NUMA nodes": ([64, 64, 61, 61, 62, 63, 62, 64, 64, 64, 64, 61, 62, 62, 64, 62], 959, 1, 15),
    "24 L3 groups": ([8, 6, 4, 4, 8, 4, 6, 4, 6, 6, 2, 6, 6, 6, 6, 6, 6, 6, 4, 4, 6, 8, 4, 6], 105, 1, 14),
    "64 L3 groups": ([size for size in range(1, 17) for _ in range(4)], 88, 1, 32),
}


def test_allocation_speed() -> None:
    machines = {name: Machine.of(topology) for name, topology in vectors.topologies().items()}
    lines = [f"{'case':40} {'Go us':>10} {'ours us':>10} {'ratio':>8}"]
    ratios: dict[str, list[float]] = {}
    for case in vectors.bench():
        ask = question(machines[case.topology], case)
        assert ask() == case.cpus.mask, case.id
        ours = best_of(CALLS, ask)
        ratio = case.go_ns / ours
        ratios.setdefault(case.topology, []).append(ratio)
        lines.append(f"{case.id:40} {case.go_ns / 1000:10.1f} {ours / 1000:10.1f} {ratio:8.1f}")
    lines += ["", f"{'machine':40} {'cases':>10} {'median':>10} {'worst':>8}"]
    everything = [ratio for found in ratios.values() for ratio in found]
    for name, found in [*ratios.items(), ("all (budget: median 10, worst 3)", everything)]:
        lines.append(f"{name:40} {len(found):10} {statistics.median(found):10.1f} {min(found):8.1f}")
    print("", *lines, sep="\n")  # the result of the benchmark


def test_the_longest_searches() -> None:
    print(f"\n{'search for equal parts':40} {'CPU ms':>10}")
    for name, asked in HARD.items():
        start = time.process_time()
        parts = balance(*asked)
        busy = (time.process_time() - start) * 1000
        assert parts is not None
        assert sum(part.base + part.chunks * asked[2] for part in parts) == asked[1]
        print(f"{name:40} {busy:10.1f}")


def question(machine: Machine, case: Case) -> Callable[[], int]:
    available = case.available.mask
    if case.mode == "numa-packed":
        return lambda: packed(machine, available, case.count, prefer_uncore=case.prefer_uncore, spread=case.spread)
    return lambda: distributed(machine, available, case.count, case.group_size, spread=case.spread)


def best_of(calls: int, call: Callable[[], int]) -> int:
    """Nanoseconds of the fastest call, which other processes disturb least."""
    times: list[int] = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return min(times)
