"""Wrong, missing or contradictory files in sysfs are refused with a reason, or do no harm."""

from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest
from machine_answers import topology_of

from dracpu_agent.host.sysfs import read, read_online
from dracpu_agent.topology.topology import TopologyError
from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.machines.presets import HYBRID, LAB
from dracpu_sandbox.machines.tree import directory, write_tree


class Tree:
    """The lab's node: 2 sockets, 2 cores each, 2 threads each, numbered adjacently."""

    def __init__(self, root: Path, machine: Machine = LAB) -> None:
        self.sysfs, self.procfs = write_tree(machine, root)

    def cpu(self, cpu: int, path: str) -> Path:
        return self.sysfs / f"devices/system/cpu/cpu{cpu}" / path

    def node(self, node: int, path: str) -> Path:
        return self.sysfs / f"devices/system/node/node{node}" / path


@pytest.fixture
def tree() -> Iterator[Tree]:
    with directory() as root:
        yield Tree(root)


@pytest.mark.parametrize("path", ["core_cpus_list", "core_id", "physical_package_id", "package_cpus_list"])
@pytest.mark.parametrize("cpu", [2, 3], ids=["first thread", "second thread"])
def test_a_cpu_without_a_file_that_others_have_is_not_offered(tree: Tree, cpu: int, path: str) -> None:
    tree.cpu(cpu, f"topology/{path}").unlink()
    # Older names of the same list are no substitute: a kernel uses the same names for all CPUs.
    tree.cpu(cpu, "topology/thread_siblings_list").unlink(missing_ok=True)
    topology = read(tree.sysfs, tree.procfs)
    assert path in topology.incomplete[cpu]
    assert topology.online == CpuSet(range(8)) - CpuSet((cpu,))
    assert len(topology.cores) == 4


def test_a_machine_of_incomplete_cpus_is_refused_with_the_missing_files(tree: Tree) -> None:
    for cpu in range(8):
        rmtree(tree.cpu(cpu, "topology"))
    with pytest.raises(TopologyError, match="none of the 8 online CPUs.*CPU 0: .*topology/core_cpus_list"):
        read(tree.sysfs, tree.procfs)


def test_a_root_without_sysfs_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"cpu/online cannot be read.*--sysfs-root"):
        read(tmp_path, tmp_path)
    with pytest.raises(TopologyError, match=r"--sysfs-root"):
        read_online(tmp_path)


def test_a_machine_without_online_cpus_is_refused(tree: Tree) -> None:
    (tree.sysfs / "devices/system/cpu/online").write_text("\n")
    with pytest.raises(TopologyError, match="no online CPU"):
        read(tree.sysfs, tree.procfs)


@pytest.mark.parametrize("path", ["online", "present", "isolated", "nohz_full", "cpu0/topology/core_cpus_list"])
def test_an_invalid_list_is_refused_with_its_path(tree: Tree, path: str) -> None:
    (tree.sysfs / "devices/system/cpu" / path).write_text("0-x\n")
    with pytest.raises(TopologyError, match=f'{path}: "0-x" is not a cpuset'):
        read(tree.sysfs, tree.procfs)


def test_an_invalid_number_is_refused_with_its_path(tree: Tree) -> None:
    tree.cpu(0, "topology/core_id").write_text("zero\n")
    with pytest.raises(TopologyError, match='cpu0/topology/core_id: "zero" is not a number'):
        read(tree.sysfs, tree.procfs)


def test_a_cpu_that_its_own_list_omits_while_it_goes_offline_is_not_offered(tree: Tree) -> None:
    tree.cpu(4, "topology/core_cpus_list").write_text("\n")
    tree.cpu(5, "topology/core_cpus_list").write_text("5\n")
    topology = read(tree.sysfs, tree.procfs)
    assert topology.incomplete == {4: "the kernel lists it in no core"}
    assert topology.cores[5] == CpuSet((5,))


def test_a_cpu_in_no_numa_node_is_not_offered_where_there_are_nodes(tree: Tree) -> None:
    tree.node(1, "cpulist").write_text("4-6\n")
    for link in tree.cpu(7, ".").glob("node*"):
        link.unlink()
    topology = read(tree.sysfs, tree.procfs)
    assert topology.incomplete == {7: "the kernel lists it in no NUMA node"}


def test_a_machine_whose_node_directories_list_no_cpu_is_one_node(tree: Tree) -> None:
    for node in (0, 1):
        tree.node(node, "cpulist").write_text("\n")
    assert read(tree.sysfs, tree.procfs).numa_nodes == {0: CpuSet(range(8))}


def test_a_cpu_that_several_nodes_list_belongs_to_the_lowest(tree: Tree) -> None:
    tree.node(0, "cpulist").write_text("0-7\n")
    assert read(tree.sysfs, tree.procfs).numa_nodes == {0: CpuSet(range(8))}


def test_lists_that_contradict_each_other_never_put_a_cpu_in_two_cores(tree: Tree) -> None:
    tree.cpu(0, "topology/core_cpus_list").write_text("0-2\n")
    topology = read(tree.sysfs, tree.procfs)
    assert {core: str(threads) for core, threads in topology.cores.items()} == {0: "0-2", 3: "3", 4: "4-5", 6: "6-7"}


def test_an_l3_cache_with_an_empty_list_is_not_a_group(tree: Tree) -> None:
    for cpu in range(4):
        tree.cpu(cpu, "cache/index2/shared_cpu_list").write_text("\n")
    assert read(tree.sysfs, tree.procfs).l3_groups == {1: CpuSet(range(4, 8))}


def test_the_l3_cache_is_found_under_another_index(tree: Tree) -> None:
    for cpu in range(4, 8):
        tree.cpu(cpu, "cache/index2").rename(tree.cpu(cpu, "cache/index7"))
    assert read(tree.sysfs, tree.procfs) == topology_of(LAB)


def test_a_low_power_core_without_a_separate_list_is_an_e_core() -> None:
    """A kernel without that list puts low-power cores into the list of the e-cores."""
    with directory() as root:
        tree = Tree(root, HYBRID)
        rmtree(tree.sysfs / "devices/cpu_lowpower")
        types = [cpu.type for cpu in read(tree.sysfs, tree.procfs).cpus]
    assert types == ["p-core"] * 12 + ["e-core"] * 10


def test_the_architecture_comes_from_cpuinfo_on_older_kernels(tree: Tree) -> None:
    (tree.procfs / "sys/kernel/arch").unlink()
    (tree.procfs / "cpuinfo").write_text("processor\t: 0\nCPU architecture: 8\n\n" + "padding " * 2000)
    assert read(tree.sysfs, tree.procfs).arch == "aarch64"
    (tree.procfs / "cpuinfo").unlink()
    assert not read(tree.sysfs, tree.procfs).arch


def test_a_list_longer_than_a_page_is_read_whole(tree: Tree) -> None:
    isolated = CpuSet(range(0, 8192, 4))
    assert len(str(isolated)) > 2 * 4096
    (tree.sysfs / "devices/system/cpu/isolated").write_text(f"{isolated}\n")
    assert read(tree.sysfs, tree.procfs).isolated == isolated
