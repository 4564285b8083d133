"""The schema accepts every status that an agent writes."""

from dataclasses import replace

import pytest
from machine_answers import topology_of
from nodes import SAFE_RUNTIME, spec, well

from dracpu_agent.cluster.status_plan import OWN_FIELDS, with_transition_times
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.node import NodeState
from dracpu_agent.report import node_status as status
from dracpu_agent.report.conditions import conditions_of
from dracpu_api.cpuset import CpuSet
from dracpu_api.objects.models import CpuNodeStatus
from dracpu_api.settings import MemorySettings, ProvisionedPages, decode_settings
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.machines.presets import LAB, PRESETS


@pytest.mark.parametrize("machine", PRESETS.values(), ids=lambda machine: machine.name)
def test_the_status_of_any_machine_fits_the_schema(machine: Machine) -> None:
    node = NodeState("vm1", topology_of(machine))
    node.containers.runtime = SAFE_RUNTIME
    written = status.status_of(node, conditions_of(node, well()), "0.1.0")
    stamped = with_transition_times(written, {}, "2026-01-02T03:04:05Z")
    taken = CpuNodeStatus.model_validate(stamped, by_alias=True, by_name=False)
    assert taken.model_dump(mode="json", by_alias=True, exclude_none=True) == stamped


def test_the_revision_that_was_applied_and_ignored_settings_fit_the_schema() -> None:
    node = NodeState("vm1", topology_of(LAB))
    node.configure(replace(spec(revision="r7"), settings=decode_settings({"turbo": 1})))
    written = status.status_of(node, conditions_of(node, well()), "0.1.0", "r7")
    stamped = with_transition_times(written, {}, "2026-01-02T03:04:05Z")
    taken = CpuNodeStatus.model_validate(stamped, by_alias=True, by_name=False)
    assert (taken.applied_revision, taken.ignored_settings) == ("r7", ("settings.turbo",))
    assert written.keys() <= OWN_FIELDS


def test_the_memory_of_a_machine_fits_the_schema() -> None:
    pages = (Pages(2 * 2**20, 300, 300),)
    driver = MemoryDriver("vm1", Inventory((NumaMemory(0, CpuSet((0,)), 2**32, 4, pages),)), topology_of(LAB))
    node = NodeState("vm1", topology_of(LAB), [driver])
    wanted = (ProvisionedPages(0, 2 * 2**20, 512), ProvisionedPages(0, 32 * 2**20, 2))
    node.configure(spec(memory=MemorySettings(enabled=True, provision=wanted)))
    written = status.status_of(node, conditions_of(node, well()), "0.1.0")
    stamped = with_transition_times(written, {}, "2026-01-02T03:04:05Z")
    taken = CpuNodeStatus.model_validate(stamped, by_alias=True, by_name=False)
    assert taken.model_dump(mode="json", by_alias=True, exclude_none=True) == stamped
    shown = {place.kind: place.provisioned for place in taken.memory or ()}
    assert {kind: (pages.got, pages.wanted) for kind, pages in shown.items() if pages} == {
        "hugepages_2Mi": (300, 512),
        "hugepages_32Mi": (0, 2),
    }


def test_every_field_of_the_status_is_the_agents_or_the_operators() -> None:
    names = {field.alias for field in CpuNodeStatus.model_fields.values()}
    assert names == OWN_FIELDS | {"agent"}
