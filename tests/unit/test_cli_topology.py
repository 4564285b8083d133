"""The table that `dracpu-agent topology` prints."""

from dataclasses import replace
from textwrap import dedent

from machine_answers import topology_of

from dracpu_agent.cli.topology import WIDTH, table
from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.machines.presets import EPYC_512, HYBRID, LAB, PPC64_SMT8, TINY


def test_a_machine_with_a_reserved_cpu() -> None:
    assert table(topology_of(LAB), CpuSet((0,))) == dedent("""\
        8 CPUs online (0-7): 2 sockets, 2 NUMA nodes, 2 L3 groups, 4 cores of 2 threads
        1 reserved (0), marked *

        SOCKET  NUMA  L3  TYPE      CPUS  CORES
             0     0   0  standard     4  0*,1 2-3
             1     1   1  standard     4  4-5 6-7
        """)


def test_the_smallest_machine() -> None:
    assert table(topology_of(TINY)) == dedent("""\
        1 CPU online (0): 1 socket, 1 NUMA node, 1 L3 group, 1 core, no SMT

        SOCKET  NUMA  L3  TYPE      CPUS  CORES
             0     0   0  standard     1  0
        """)


def test_each_core_type_has_its_own_row() -> None:
    text = table(topology_of(HYBRID))
    assert "16 cores of 1 to 2 threads" in text
    assert [line.split()[2:5] for line in text.splitlines()[3:]] == [
        ["-", "lp-e-core", "2"],
        ["0", "p-core", "12"],
        ["0", "e-core", "8"],
    ]


def test_offline_isolated_and_incomplete_cpus_are_listed_below_the_table() -> None:
    topology = replace(
        topology_of(PPC64_SMT8),
        isolated=CpuSet((1,)),
        nohz_full=CpuSet((2,)),
        incomplete={64: "sysfs has no topology/core_id"},
    )
    assert table(topology).splitlines()[-4:] == [
        "offline: 4-7,12-15,20-23,28-31,36-39,44-47,52-55,60-63",
        "isolated (isolcpus), offered like other CPUs: 1",
        "without timer tick (nohz_full), offered like other CPUs: 2",
        "CPU 64 is online but not offered: sysfs has no topology/core_id",
    ]


def test_long_lists_of_cores_continue_on_the_next_line() -> None:
    topology = topology_of(replace(EPYC_512, l3_groups=2))
    lines = table(topology).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert all(f"{core},{core + 256}" in " ".join(lines).split() for core in range(256))
