"""Rare machines, some by name and some drawn by hypothesis, for tests that read or draw a machine."""

from dataclasses import replace
from typing import Final

from hypothesis import strategies as st

from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_sandbox.machines.description import Machine, Quirk, uniform
from dracpu_sandbox.machines.presets import HYBRID

TWO_SOCKETS: Final = Machine("two sockets", sockets=2, cores=uniform(4, 2))
SPECIALS: Final = (
    Machine("threads numbered apart", sockets=2, cores=uniform(4, 2), numbering="split"),
    Machine("cores numbered around the sockets", sockets=2, cores=uniform(4, 2), numbering="scattered"),
    Machine("SMT4 with threads offline", cores=uniform(4, 4), offline=CpuSet.parse("1,4,6-7,12-14")),
    Machine("sparse CPU numbers", cores=uniform(3, 2), cpu_ids=(0, 1, 8, 9, 300, 301)),
    Machine("sparse sockets and nodes", sockets=4, socket_ids=(0, 2, 36, 8442), numa_ids=(0, 33, 72, 250)),
    Machine("nodes with memory only", sockets=2, empty_nodes=(1000, 2), numa_ids=(0, 3)),
    Machine("core ids repeat across dies", cores=uniform(8, 2), dies=4, numa_nodes=2),
    Machine("core ids repeat across clusters", arch="aarch64", cores=uniform(8), dies=2).with_quirks(
        Quirk.CLUSTER_UNKNOWN
    ),
    Machine(
        "ppc64 SMT4",
        arch="ppc64le",
        sockets=2,
        cores=uniform(3, 4),
        socket_ids=(0, 8),
        offline=CpuSet.parse("3,6-7,12-15"),
    ),
    Machine("highest CPU numbers", cores=uniform(2, 2), cpu_ids=(0, 4095, 4096, 8191), numa_ids=(1023,)),
    Machine("L3 across NUMA nodes", cores=uniform(8), numa_nodes=4, l3_groups=2),
    Machine("NUMA node across sockets", sockets=4, numa_nodes=2),
    Machine("no L3", cores=uniform(4, 2), l3_groups=0),
    Machine("isolated", isolated=CpuSet.parse("2-3"), nohz_full=CpuSet.parse("3")),
    Machine("a node is offline, its CPUs are not", sockets=2, hidden_nodes=(0,)),
    Machine("a whole socket offline", sockets=2, cores=uniform(2), offline=CpuSet.parse("0-1")),
    replace(TWO_SOCKETS, name="undescribed CPUs", undescribed=CpuSet.parse("0,5")),
    Machine("s390 books", arch="s390x", sockets=6, numa_nodes=1).with_quirks(Quirk.PACKAGE_REPEATS),
    Machine("s390 without ids", arch="s390x", sockets=6, numa_nodes=1).with_quirks(Quirk.PACKAGE_UNKNOWN),
    replace(HYBRID, name="hybrid with P-cores offline", offline=CpuSet.parse("0-11")),
    Machine("L3 ids repeat", sockets=2, cores=uniform(8), l3_groups=4).with_quirks(Quirk.L3_IDS_REPEAT),
    *(replace(TWO_SOCKETS.with_quirks(quirk), name=quirk.name) for quirk in Quirk),
)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    sockets = draw(st.integers(1, 4))
    counts = st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 4]))
    hybrid = draw(st.booleans())
    strong, weak = draw(counts), draw(counts)
    quirks = draw(st.frozensets(st.sampled_from(Quirk), max_size=5))
    if Quirk.NO_PACKAGE_LISTS in quirks:
        quirks -= {Quirk.PACKAGE_REPEATS}  # otherwise nothing distinguishes the sockets
    machine = Machine(
        "random",
        sockets=sockets,
        cores=(("p-core", *strong), ("e-core", *weak)) if hybrid else (("standard", *strong),),
        numbering=draw(st.sampled_from(["adjacent", "split", "scattered"])),
        dies=sockets * draw(st.integers(1, 2)) if not hybrid and strong[0] % 2 == 0 else 0,
        numa_nodes=draw(st.integers(1, 8)),
        l3_groups=draw(st.sampled_from([None, 0, 1, 2, 4])),
        quirks=quirks,
    )
    some = st.sets(st.sampled_from([place.cpu for place in machine.places])).map(CpuSet)
    machine = replace(machine, offline=draw(some), undescribed=draw(some), isolated=draw(some))
    if Quirk.NULL_NOHZ_FULL not in quirks:
        machine = replace(machine, nohz_full=draw(some))
    undescribed = machine.undescribed - machine.offline
    if not machine.online - undescribed:
        return replace(machine, offline=EMPTY, undescribed=EMPTY)
    return replace(machine, undescribed=undescribed)
