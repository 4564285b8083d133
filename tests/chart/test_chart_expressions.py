"""The CEL of the chart, evaluated: what the DeviceClasses of memory select, and what the policies allow an agent."""

import pytest
from dra_objects import slice_of
from helm_chart import Manifest, render
from hypothesis import given
from hypothesis import strategies as st
from nodes import machine

from dracpu_agent.cluster.slices.render import render_device
from dracpu_agent.devices.memory import publish_memory
from dracpu_agent.memory.inventory import Inventory, NumaMemory
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.work import memory_counted, memory_kills, memory_use
from dracpu_api import names
from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.cel.expressions import compile_expression
from dracpu_sandbox.resources import JsonObject
from dracpu_sandbox.scheduler.devices import read_slice
from dracpu_sandbox.scheduler.selectors import matches

ON = "agent.memory.enabled=true"
KI, MI, GI = 1024, 1024**2, 1024**3
NODE, OTHER = "n1", "n2"
POD_REASONS = (memory_kills.REASON, memory_use.REASON, memory_counted.REASON)  # of the agent's Events about pods
REQUEST = ("request", "object", "oldObject", "variables")  # what the expressions of policies may use


# ---- DeviceClasses


def published(kinds: list[Kind], base_page: int = 4 * KI) -> list[JsonObject]:
    """Returns a node's devices of these kinds, as the agent publishes them."""
    inventory = Inventory((NumaMemory(0, CpuSet((0,)), 64 * GI),), base_page)
    capacities = {Place(0, kind): 4 * max(kind.page, 16 * MI) for kind in kinds}
    return [render_device(device) for device in publish_memory(inventory, machine(), capacities, ())]


def selected(name: str, devices: list[JsonObject], driver: str = names.DRIVER_MEMORY) -> list[str]:
    """Returns the names of the devices that a DeviceClass of the chart selects."""
    spec = render(ON).named("DeviceClass", name)["spec"]
    selectors = [selector["cel"]["expression"] for selector in spec["selectors"]]
    found = read_slice(slice_of(NODE, devices, driver=driver)).devices
    return [device.name for device in found if matches(device, selectors)]


@given(
    base_page=st.sampled_from([4 * KI, 16 * KI, 64 * KI]),
    sizes=st.sets(st.sampled_from([64 * KI, 2 * MI, 16 * MI, 32 * MI, 512 * MI, GI, 16 * GI])),
)
def test_each_class_of_memory_selects_its_kind_on_machines_of_every_page_size(base_page: int, sizes: set[int]) -> None:
    kinds = [MEMORY, *(Kind(size) for size in sizes)]
    devices = published(kinds, base_page)
    assert len(devices) == len(kinds)
    assert selected("dra.memory", devices) == ["memory-numa000"]
    assert selected("dra.hugepages-2m", devices) == (["hugepages-2mi-numa000"] if 2 * MI in sizes else [])
    assert selected("dra.hugepages-1g", devices) == (["hugepages-1gi-numa000"] if GI in sizes else [])


@pytest.mark.parametrize("name", ["dra.memory", "dra.hugepages-2m", "dra.hugepages-1g"])
def test_a_device_without_the_attributes_is_not_selected_and_is_no_error(name: str) -> None:
    """An error in a selector would keep the scheduler from placing any pod of the claim."""
    devices: list[JsonObject] = [
        {"name": "nothing"},
        {"name": "numa", "attributes": {names.ATTRIBUTE_NUMA_NODE: {"int": 0}}},
        {"name": "size", "attributes": {names.ATTRIBUTE_PAGE_SIZE: {"string": "2Mi"}}},
        {"name": "text", "attributes": {names.ATTRIBUTE_HUGE_TLB: {"string": "false"}}},
    ]
    assert selected(name, devices) == []


@pytest.mark.parametrize("name", ["dra.memory", "dra.hugepages-2m", "dra.hugepages-1g"])
def test_devices_of_other_drivers_are_not_selected(name: str) -> None:
    devices = published([MEMORY, Kind(2 * MI), Kind(GI)])
    assert len(selected(name, devices)) == 1
    assert selected(name, devices, driver="memory.example.com") == []


@pytest.mark.parametrize(
    ("name", "size"),
    [("dra.memory", "4Ki"), ("dra.hugepages-2m", "2Mi"), ("dra.hugepages-1g", "1Gi")],
)
def test_devices_of_the_sibling_driver_are_selected(name: str, size: str) -> None:
    attributes = {
        names.ATTRIBUTE_PAGE_SIZE: {"string": size},
        names.ATTRIBUTE_HUGE_TLB: {"bool": size != "4Ki"},
        names.ATTRIBUTE_NUMA_NODE: {"int": 0},
    }
    assert selected(name, [{"name": "some-x1y2z3", "attributes": attributes}]) == ["some-x1y2z3"]


# ---- admission policies


def request_of(operation: str = "CREATE", node: str | None = NODE) -> JsonObject:
    """Returns a request of the agent of a node; None: with a token that names no node."""
    extra = {} if node is None else {"authentication.kubernetes.io/node-name": [node]}
    return {"operation": operation, "userInfo": {"username": "agent", **({"extra": extra} if extra else {})}}


def variables_of(policy: Manifest, facts: JsonObject) -> JsonObject:
    """Evaluates the variables of a policy in their order, each with those before it."""
    found: JsonObject = {}
    for variable in policy["spec"]["variables"]:
        expression = compile_expression(variable["expression"], REQUEST)
        found[variable["name"]] = expression.evaluate(**facts, variables=found)
    return found


def refusals(name: str, request: JsonObject, new: JsonObject | None, old: JsonObject | None, *values: str) -> list[str]:
    """Returns the messages of the validations that fail. The Python library of CEL has no macros with two variables:
    the validation with such a macro is evaluated in tests/cluster alone."""
    policy = render(*values).named("ValidatingAdmissionPolicy", name)
    facts: JsonObject = {"request": request, "object": new, "oldObject": old}
    facts["variables"] = variables_of(policy, facts)
    messages = []
    for validation in policy["spec"]["validations"]:
        if "(index, entry," in validation["expression"]:
            continue
        if not compile_expression(validation["expression"], REQUEST).evaluate(**facts):
            made = validation.get("messageExpression")
            messages.append(compile_expression(made, REQUEST).evaluate(**facts) if made else validation["message"])
    return messages


SLICES, CLAIMS = "dracpu-agent-own-slices", "dracpu-agent-own-claims"


class TestSlices:
    def refused(self, operation: str, body: JsonObject, *values: str, node: str | None = NODE) -> list[str]:
        new, old = (None, body) if operation == "DELETE" else (body, body if operation == "UPDATE" else None)
        return refusals(SLICES, request_of(operation, node), new, old, *values)

    @pytest.mark.parametrize("driver", [names.DRIVER, names.DRIVER_MEMORY])
    @pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
    def test_of_both_drivers_are_allowed_on_the_agents_node(self, operation: str, driver: str) -> None:
        assert self.refused(operation, slice_of(NODE, [], driver=driver), ON) == []

    @pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
    def test_of_memory_are_refused_where_the_agents_do_not_serve_it(self, operation: str) -> None:
        message = "the agent cannot write a ResourceSlice of driver dra.memory"
        assert self.refused(operation, slice_of(NODE, [], driver=names.DRIVER_MEMORY)) == [message]

    def test_of_other_drivers_are_refused(self) -> None:
        message = "the agent cannot write a ResourceSlice of driver dra.net"
        assert self.refused("CREATE", slice_of(NODE, [], driver="dra.net"), ON) == [message]

    @pytest.mark.parametrize("driver", [names.DRIVER, names.DRIVER_MEMORY])
    def test_of_other_nodes_and_pools_are_refused_for_both_drivers(self, driver: str) -> None:
        words = f"the agent of node {NODE} cannot write a ResourceSlice of"
        elsewhere = slice_of(OTHER, [], driver=driver, pool=NODE)
        assert self.refused("CREATE", elsewhere, ON) == [f"{words} node {OTHER}"]
        pool = slice_of(NODE, [], driver=driver, pool=OTHER)
        assert self.refused("UPDATE", pool, ON) == [f"{words} pool {OTHER}: a pool is named like its node"]
        assert self.refused("DELETE", pool, ON) == []  # of its own node, and never valid

    def test_are_refused_for_a_token_that_names_no_node(self) -> None:
        made = slice_of(NODE, [], driver=names.DRIVER_MEMORY)
        assert "the agent's token names no node" in self.refused("CREATE", made, ON, node=None)[0]


class TestEvents:
    def refused(self, node: str | None = NODE, reporter: str = NODE, **fields: object) -> list[str]:
        regarding = {"kind": "Pod", "namespace": "default", "name": "p"}
        event = {"regarding": regarding, "reason": memory_kills.REASON, "reportingInstance": reporter, **fields}
        return refusals("dracpu-agent-own-events", request_of(node=node), event, None, ON)

    @pytest.mark.parametrize("reason", POD_REASONS)
    def test_about_pods_are_allowed_for_what_the_agent_reports_on_claims_of_memory(self, reason: str) -> None:
        assert self.refused(reason=reason) == []

    def test_about_the_agents_cpu_node_are_allowed(self) -> None:
        assert self.refused(regarding={"kind": "CpuNode", "name": NODE}, reason="ClaimReleased") == []

    def test_of_a_node_with_a_long_name_are_allowed(self) -> None:
        assert self.refused(node="n" * 200, reporter="n" * 128) == []

    @pytest.mark.parametrize(
        "fields",
        [
            {"reason": "Killing"},
            {"regarding": {"kind": "Node", "name": NODE}},
            {"regarding": {"kind": "CpuNode", "name": OTHER}},
            {"regarding": {}},
        ],
    )
    def test_about_anything_else_are_refused(self, fields: JsonObject) -> None:
        (message,) = self.refused(**fields)
        assert message.startswith("the agent creates Events about its CpuNode")

    @pytest.mark.parametrize("node", [OTHER, None])
    def test_in_the_name_of_another_reporter_are_refused(self, node: str | None) -> None:
        (message,) = self.refused(node=node)
        assert message.endswith("cannot create an Event of another reporter")


def allocated(*devices: tuple[str, str], entries: tuple[tuple[str, str], ...] = ()) -> JsonObject:
    """Returns a claim with allocated devices and entries of drivers, each with its driver and pool."""
    results = [{"request": "main", "driver": driver, "pool": pool, "device": "d"} for driver, pool in devices]
    written = [{"driver": driver, "pool": pool, "device": "d", "data": {}} for driver, pool in entries]
    status = {"allocation": {"devices": {"results": results}}, **({"devices": written} if written else {})}
    return {"metadata": {"name": "c"}, "status": status}


class TestClaims:
    def refused(self, new: JsonObject, old: JsonObject, *values: str) -> list[str]:
        return refusals(CLAIMS, request_of("UPDATE"), new, old, *values)

    @pytest.mark.parametrize("driver", [names.DRIVER, names.DRIVER_MEMORY])
    def test_with_a_device_of_the_node_may_be_written_for_both_drivers(self, driver: str) -> None:
        device = (driver, NODE)
        assert self.refused(allocated(device, entries=(device,)), allocated(device), ON) == []

    @pytest.mark.parametrize(
        ("device", "values"),
        [
            ((names.DRIVER_MEMORY, OTHER), (ON,)),
            (("dra.net", NODE), (ON,)),
            ((names.DRIVER_MEMORY, NODE), ()),  # the agents do not serve this driver
        ],
    )
    def test_without_a_device_of_the_agent_are_refused(self, device: tuple[str, str], values: tuple[str, ...]) -> None:
        (message,) = self.refused(allocated(device, entries=(device,)), allocated(device), *values)
        assert message == f"the agent of node {NODE} cannot write the status of a claim that has none of its devices"

    def test_keep_their_allocation(self) -> None:
        memory = (names.DRIVER_MEMORY, NODE)
        (message,) = self.refused(allocated(memory, (names.DRIVER, NODE)), allocated(memory), ON)
        assert message == "the agent cannot write anything but devices into the status of a claim"

    def test_keep_the_entries_of_other_drivers_and_nodes(self) -> None:
        """What the policy compares before and after the write: all entries but those of the agent's own devices."""
        devices = ((names.DRIVER, NODE), (names.DRIVER_MEMORY, NODE), (names.DRIVER_MEMORY, OTHER), ("dra.net", NODE))
        policy = render(ON).named("ValidatingAdmissionPolicy", CLAIMS)
        before, after = allocated(*devices, entries=devices), allocated(*devices, entries=devices[2:])
        found = variables_of(policy, {"request": request_of("UPDATE"), "object": after, "oldObject": before})
        for compared in (found["othersBefore"], found["othersAfter"]):
            assert [(entry["driver"], entry["pool"]) for entry in compared] == list(devices[2:])
