"""Named machines, for `--machine NAME` and for tests."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.machines.description import Machine, Memory, Quirk, equipped, uniform

LAB = Machine("lab", sockets=2, cores=uniform(2, 2), memory=equipped(range(2), 4, small=128, large=1))
TINY = Machine("tiny", cores=uniform(1), memory=equipped([0], 2))
XEON_SNC2 = Machine(
    "xeon-snc2",
    sockets=2,
    cores=uniform(32, 2),
    numbering="scattered",
    numa_nodes=4,
    memory=equipped(range(4), 128, small=1024, large=8),
)
EPYC_NPS4 = Machine(
    "epyc-nps4",
    sockets=2,
    cores=uniform(64, 2),
    numbering="split",
    numa_nodes=8,
    l3_groups=16,
    memory=equipped(range(8), 96, small=1024, large=4),
)
EPYC_512 = Machine(
    "epyc-512",
    sockets=2,
    cores=uniform(128, 2),
    numbering="split",
    numa_nodes=8,
    l3_groups=32,
    memory=equipped(range(8), 192, small=1024, large=4),
)
HYBRID = Machine(
    "hybrid-desktop",
    cores=(("p-core", 6, 2), ("e-core", 8, 1), ("lp-e-core", 2, 1)),
    memory=equipped([0], 32),
)
ARM64 = Machine(
    "arm64-no-l3-ids",
    arch="aarch64",
    sockets=2,
    cores=uniform(64),
    numa_nodes=4,
    l3_groups=4,
    memory=equipped(range(4), 64, small=512),
).with_quirks(Quirk.NO_L3_IDS, Quirk.CLUSTER_UNKNOWN)
BIG_LITTLE = Machine(
    "big-little",
    arch="aarch64",
    cores=(("e-core", 4, 1), ("p-core", 4, 1)),
    l3_groups=0,
    memory=tuple(replace(memory, tier=None) for memory in equipped([0], 8)),
).with_quirks(Quirk.CAPACITY, Quirk.NO_NUMA)
PPC64_SMT8 = Machine(
    "ppc64-smt8",
    arch="ppc64le",
    sockets=2,
    cores=uniform(4, 8),
    l3_groups=8,
    socket_ids=(0, 8),
    numa_ids=(0, 8),
    empty_nodes=(252, 253, 254, 255),
    # with the memory of four GPUs, which is slower for CPUs
    memory=(*equipped((0, 8), 256, small=256), *(Memory(node, 16 << 20, tier=22) for node in (252, 253, 254, 255))),
    offline=CpuSet.parse("4-7,12-15,20-23,28-31,36-39,44-47,52-55,60-63"),
)
CPU0_OFFLINE = Machine(
    "cpu0-offline",
    sockets=2,
    cores=uniform(4, 2),
    numbering="split",
    offline=CpuSet((0,)),
    memory=equipped(range(2), 16, small=64),
)

# Small enough that a terminal shows every core.
XEON = Machine(
    "xeon",
    sockets=2,
    cores=uniform(16, 2),
    numbering="split",
    numa_nodes=4,  # sub-NUMA clustering
    pcie=(("pci0000:00", 0), ("pci0000:37", 1), ("pci0000:80", 2), ("pci0000:b7", 3)),
    memory=equipped(range(4), 64, small=512, large=4),
)
EPYC = Machine(
    "epyc",
    cores=uniform(32, 2),
    numbering="split",
    numa_nodes=4,  # NPS4
    l3_groups=8,
    memory=equipped(range(4), 32, small=512, large=2),
)
DEFAULT_MACHINES: Final = (XEON, EPYC, HYBRID)


def named_nodes(machines: Sequence[Machine], count: int) -> dict[str, Machine]:
    """Names `count` nodes and assigns the machines to them in turn."""
    return {f"node-{number + 1}": machines[number % len(machines)] for number in range(count)}


PRESETS: Final[Mapping[str, Machine]] = {
    machine.name: machine
    for machine in (
        XEON,
        EPYC,
        HYBRID,
        LAB,
        TINY,
        XEON_SNC2,
        EPYC_NPS4,
        EPYC_512,
        ARM64,
        BIG_LITTLE,
        PPC64_SMT8,
        CPU0_OFFLINE,
    )
}
