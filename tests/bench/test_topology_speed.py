"""Measures how long it takes to read a machine; the budget is 60 ms for 512 CPUs. Asserts no times."""

from time import perf_counter, process_time

from machine_answers import topology_of

from dracpu_agent.host.sysfs import read, read_online
from dracpu_sandbox.machines.description import Machine, Quirk, uniform
from dracpu_sandbox.machines.presets import EPYC_512, EPYC_NPS4, HYBRID, LAB, XEON_SNC2
from dracpu_sandbox.machines.tree import directory, write_tree

NO_SMT = Machine("512 cores, no SMT", arch="aarch64", sockets=2, cores=uniform(256), numa_nodes=8, l3_groups=0)
MACHINES = (LAB, HYBRID, XEON_SNC2, EPYC_NPS4, EPYC_512, NO_SMT.with_quirks(Quirk.NO_L3_IDS, Quirk.CAPACITY))
REPEATS = 10


def test_time_to_read_a_machine() -> None:
    # Other processes lengthen the wall-clock time, but not the CPU time.
    print(f"\n{'machine':<20}{'CPUs':>6}{'best ms':>9}{'worst ms':>10}{'best CPU ms':>13}{'poll µs':>9}")
    for machine in MACHINES:
        with directory() as root:
            sysfs, procfs = write_tree(machine, root)
            wall, busy = [], []
            for _ in range(REPEATS):
                start, start_busy = perf_counter(), process_time()
                topology = read(sysfs, procfs)
                wall.append((perf_counter() - start) * 1e3)
                busy.append((process_time() - start_busy) * 1e3)
            start = perf_counter()
            online = read_online(sysfs)
            poll = (perf_counter() - start) * 1e6
        assert topology == topology_of(machine)
        assert online == machine.online
        times = f"{min(wall):>9.1f}{max(wall):>10.1f}{min(busy):>13.1f}{poll:>9.0f}"
        print(f"{machine.name:<20}{len(topology.cpus):>6}{times}")
