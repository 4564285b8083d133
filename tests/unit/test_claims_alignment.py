"""PCIe roots are published, found for a claim's constraints, and preferred for its CPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from nodes import NODE, claim_object, machine, node, outstanding, ref, request, share, spec, uid

from dracpu_agent.claims.alignment import Alignment, Neighbour, alignments_of, matched, roots_of
from dracpu_agent.claims.cpu_asks import read_cpu_request
from dracpu_agent.claims.cpu_asks import with_roots as close_to_roots
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import Allocation, GroupBy, Mode

MACHINE = "cpudevmachine"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"


def with_roots(**roots: str) -> Topology:
    """Two sockets of two cores, and PCIe roots by bus, "p<bus>", close to these CPUs."""
    return replace(machine(), pcie_roots={f"pci0000:{name[1:]}": CpuSet.parse(cpus) for name, cpus in roots.items()})


TWO_ROOTS = with_roots(p00="0-3", p80="4-7")


# ---- published attributes


def published(topology: Topology, **settings: Any) -> dict[str, Any]:
    state = node(topology=topology)
    applied = spec(**settings)
    state.configure(replace(applied, settings=replace(applied.settings, expose_pcie_roots=True)))
    return {device.name: device.attributes.get(PCIE_ROOT) for device in state.devices()}


def test_roots_are_published_as_lists_if_the_settings_enable_them():
    assert published(TWO_ROOTS) == {"cpudevnuma000": ("pci0000:00",), "cpudevnuma001": ("pci0000:80",)}
    assert published(TWO_ROOTS, group_by=GroupBy.MACHINE) == {MACHINE: ("pci0000:00", "pci0000:80")}
    individual = published(with_roots(p80="4-7", p00="0-4"), mode=Mode.INDIVIDUAL)
    assert (individual["cpudev003"], individual["cpudev004"]) == (("pci0000:00",), ("pci0000:00", "pci0000:80"))
    assert not any(PCIE_ROOT in device.attributes for device in node(topology=TWO_ROOTS).devices())


def test_a_root_that_is_close_only_to_reserved_cpus_is_not_published():
    assert published(with_roots(p00="0-1", p80="2-3")) == {"cpudevnuma000": ("pci0000:80",), "cpudevnuma001": None}


def test_a_device_has_at_most_as_many_attribute_values_as_the_api_server_accepts():
    many = replace(machine(), pcie_roots={f"pci0000:{bus:02x}": CpuSet(range(8)) for bus in range(60)})
    for settings in ({"mode": Mode.INDIVIDUAL}, {}, {"group_by": GroupBy.MACHINE}):
        state = node(topology=many)
        applied = spec(**settings)
        state.configure(replace(applied, settings=replace(applied.settings, expose_pcie_roots=True)))
        for device in state.devices():
            values = [value if isinstance(value, tuple) else (value,) for value in device.attributes.values()]
            assert sum(map(len, values)) == 48


# ---- the roots of a claim's constraints


def claim(results: Sequence[Mapping[str, Any]], *constraints: Mapping[str, Any]) -> dict[str, Any]:
    made = claim_object(1, results)
    return made | {"spec": {"devices": {"constraints": list(constraints)}}}


def of_other(request: str = "nic", device: str = "nic-0", driver: str = "dra.net") -> dict[str, Any]:
    return {"request": request, "driver": driver, "pool": "pool", "device": device}


CPUS = share(MACHINE, 2, "cpus")
NIC = Neighbour("dra.net", "pool", "nic-0")


def test_a_constraint_names_the_devices_of_other_drivers():
    constraint = {"requests": ["cpus", "nic"], "matchAttribute": PCIE_ROOT}
    found = alignments_of(claim([CPUS, of_other(), of_other("gpu", "gpu-0")], constraint))
    assert found == (Alignment(frozenset({"cpus"}), (NIC,)),)


def test_a_constraint_without_requests_applies_to_all_requests_and_subrequests():
    results = [share(MACHINE, 2, "cpus/many"), of_other("nic/fast")]
    (found,) = alignments_of(claim(results, {"matchAttribute": PCIE_ROOT}))
    assert found == Alignment(frozenset({"cpus/many"}), (NIC,))
    assert alignments_of(claim(results, {"requests": ["cpus", "nic"], "matchAttribute": PCIE_ROOT})) == (found,)


@pytest.mark.parametrize(
    "constraint",
    [
        {"matchAttribute": "resource.kubernetes.io/numaNode"},
        {"distinctAttribute": PCIE_ROOT},
        {"requests": ["cpus"], "matchAttribute": PCIE_ROOT},
        {"requests": ["nic"], "matchAttribute": PCIE_ROOT},
    ],
)
def test_other_constraints_are_ignored(constraint):
    assert alignments_of(claim([CPUS, of_other()], constraint)) == ()


def test_claims_without_a_spec_or_an_allocation_have_no_constraints():
    assert alignments_of({}) == alignments_of({"spec": {}, "status": {}}) == alignments_of(claim([])) == ()


def slice_of(device: str, value: Mapping[str, Any], pool: str = "pool", generation: int = 1) -> dict[str, Any]:
    made = {"name": device, "attributes": {PCIE_ROOT: value} if value else {}}
    return {"spec": {"pool": {"name": pool, "generation": generation}, "devices": [made]}}


def test_the_root_is_read_from_the_newest_slices_of_the_other_driver():
    assert roots_of([slice_of("nic-0", {"string": "pci0000:80"})], NIC) == {"pci0000:80"}
    assert roots_of([slice_of("nic-0", {"strings": ["a", "b"]})], NIC) == {"a", "b"}
    old, new = slice_of("nic-0", {"string": "old"}), slice_of("nic-0", {"string": "new"}, generation=2)
    assert roots_of([old, new], NIC) == {"new"}


@pytest.mark.parametrize(
    "slices",
    [
        [],
        [slice_of("nic-0", {})],
        [slice_of("nic-1", {"string": "x"})],
        [slice_of("nic-0", {"string": "x"}, "other pool")],
    ],
)
def test_a_root_that_the_slices_do_not_name_is_unknown(slices):
    assert roots_of(slices, NIC) == frozenset()


def test_devices_with_unknown_roots_are_ignored():
    assert matched([frozenset("ab"), frozenset(), frozenset("bc")]) == {"b"}
    assert matched([frozenset()]) == matched([]) == frozenset()


# ---- the CPUs that are preferred


def granted(state: Any, wanted: Any) -> str:
    return str(state.claims.grant(wanted).claim.cpus)


def request_close_to(root: str, amount: int, number: int = 1) -> Any:
    return close_to_roots(request(number, share(MACHINE, amount, "cpus")), {"cpus": frozenset({root})})


def test_cpus_close_to_the_matched_root_are_preferred():
    def state():
        return node(topology=TWO_ROOTS, group_by=GroupBy.MACHINE)

    assert granted(state(), request_close_to("pci0000:80", 2)) == "4-5"
    assert granted(state(), request_close_to("pci0000:00", 2)) == "2-3"
    assert granted(state(), request_close_to("pci0000:80", 4)) == "4-7"


def test_a_claim_for_which_too_few_cpus_are_close_is_allocated_as_without_roots():
    state = node(topology=TWO_ROOTS, group_by=GroupBy.MACHINE)
    assert granted(state, request_close_to("pci0000:00", 4)) == "4-7"
    assert granted(state, request_close_to("pci0000:ff", 2, number=2)) == "2-3"


def test_a_cpuset_takes_precedence_over_closeness():
    state = node(topology=TWO_ROOTS, group_by=GroupBy.MACHINE)
    parameters = {"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": "2-3"}}
    config = [{"source": "FromClaim", "requests": [], "opaque": {"driver": "dra.cpu", "parameters": parameters}}]
    asked = read_cpu_request(ref(1), claim_object(1, [CPUS], config), NODE)
    assert granted(state, close_to_roots(asked, {"cpus": frozenset({"pci0000:80"})})) == "2-3"


def test_an_earmark_takes_precedence_over_closeness():
    state = node(topology=TWO_ROOTS, mode=Mode.INDIVIDUAL, outstanding=[outstanding(1, (MACHINE, 2))])
    kept = {f"cpudev{cpu:03d}" for cpu in range(2, 8)} - {device.name for device in state.devices()}
    assert kept == {"cpudev002", "cpudev003"}
    assert granted(state, request_close_to("pci0000:80", 2)) == "2-3"


def test_closeness_does_not_change_the_digest_of_the_allocation():
    assert request_close_to("pci0000:80", 2).digest == request(1, share(MACHINE, 2, "cpus")).digest
    state = node(topology=TWO_ROOTS, group_by=GroupBy.MACHINE, allocation=Allocation(full_cores=True))
    first = granted(state, request_close_to("pci0000:80", 2))
    assert granted(state, request(1, share(MACHINE, 2, "cpus"))) == first == "4-5"
    assert uid(1) in state.claims
