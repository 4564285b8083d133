"""The memory of simulated machines, as an agent reads it from their files."""

from pathlib import Path

import pytest

from dracpu_agent.host.memory import read_memory
from dracpu_sandbox.machines.description import Machine, Memory
from dracpu_sandbox.machines.memory_files import memory_files, write_over
from dracpu_sandbox.machines.presets import LAB, PPC64_SMT8, PRESETS
from dracpu_sandbox.machines.tree import directory, write_tree


def files(root: Path) -> dict[str, str]:
    """Returns all files below a folder, through links to folders as well."""
    found: dict[str, str] = {}
    for path in root.iterdir():
        below = files(path) if path.is_dir() else {"": path.read_text()}
        found |= {f"{path.name}/{name}": text for name, text in below.items()}
    return found


@pytest.mark.parametrize("machine", PRESETS.values(), ids=lambda machine: machine.name)
def test_every_machine_has_memory_for_its_cpus_beside_its_hugepages(machine: Machine) -> None:
    with directory() as root:
        found = read_memory(*write_tree(machine, root))
    with_cpus = [node for node in found.nodes if node.cpus]
    assert len(with_cpus) == len({place.numa for place in machine.places})
    assert all(node.total > 2 * sum(pages.size * pages.count for pages in node.pages) for node in with_cpus)


def test_the_memory_of_gpus_is_a_slower_tier_without_cpus() -> None:
    with directory() as root:
        found = read_memory(*write_tree(PPC64_SMT8, root))
    assert {node.numa: node.tier for node in found.nodes if not node.cpus} == {252: 22, 253: 22, 254: 22, 255: 22}


def test_other_files_about_memory_replace_those_of_a_tree_and_nothing_else(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    write_tree(LAB, before)
    one = dict(memory_files(Machine("one", memory=(Memory(0, 1024, ((2048, 3, 2, 1),)),))))
    write_over(before, after, one)
    former, found = files(before / "sys/devices/system"), files(after / "sys/devices/system")
    changed = {name for name, text in found.items() if former.get(name) != text}
    own = {name.removeprefix("sys/devices/system/") for name in one if name.startswith("sys/devices/system/")}
    assert {name.rstrip("/") for name in changed} <= own
    assert found["node/node0/hugepages/hugepages-2048kB/free_hugepages/"] == "2\n"
    assert found["node/node1/hugepages/hugepages-2048kB/free_hugepages/"] == "128\n"
    assert found.keys() == former.keys()
