"""Tests that claims are allocated, or rejected, as recorded from kube-scheduler 1.37."""

import pytest
from dra_allocating import Shop
from dra_objects import CPU, NUMA, claim, device_class, grouped, request, single, slice_of

from dracpu_sandbox.scheduler.allocator import AllocationError

PAIR = [grouped("g0", 12), grouped("g1", 12)]


def cpus(count, numas=2):
    """Returns `count` individual CPUs, divided into NUMA nodes."""
    return [single(number, number * numas // count) for number in range(count)]


def test_devices_are_taken_in_listed_order() -> None:
    shop = Shop(slice_of("n1", [single(3), single(1), single(2)]))
    assert shop.devices(claim("a", request(count=2))) == ["cpudev003", "cpudev001"]
    assert shop.devices(claim("b", request())) == ["cpudev002"]
    assert shop.devices(claim("c", request())) is None


def test_slices_are_tried_by_object_name_and_pools_by_pool_name() -> None:
    shop = Shop(
        slice_of("n1", [single(0)], name="z", pool="a"),
        slice_of("n1", [single(1)], name="y", pool="b", slices=2),
        slice_of("n1", [single(2)], name="x", pool="b", slices=2),
    )
    assert shop.devices(claim("a", request(count=3))) == ["cpudev000", "cpudev002", "cpudev001"]


def test_the_result_for_a_share_has_an_id_and_the_consumed_capacity() -> None:
    shop = Shop(slice_of("n1", PAIR))
    assert shop.allocate(claim("a", request(cpus=8))) == [
        {
            "devices": {
                "results": [
                    {
                        "request": "main",
                        "driver": "dra.cpu",
                        "pool": "n1",
                        "device": "g0",
                        "shareID": "share-0",
                        "consumedCapacity": {CPU: "8"},
                    }
                ]
            },
            "nodeSelector": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
            },
        }
    ]


def test_a_device_is_shared_until_its_capacity_is_consumed() -> None:
    shop = Shop(slice_of("n1", PAIR))
    assert shop.devices(claim("a", request(cpus=8))) == ["g0"]
    assert shop.devices(claim("b", request(cpus=5))) == ["g1"]
    assert shop.devices(claim("c", request(cpus=4))) == ["g0"]
    assert shop.devices(claim("d", request(cpus=8))) is None
    assert shop.devices(claim("e", request(cpus=0))) == ["g0"]  # a request for 0 fits into a full device
    shop.release("a")
    assert shop.devices(claim("d", request(cpus=8))) == ["g0"]


def test_a_device_whose_capacity_was_lowered_below_its_usage_rejects_a_request_for_zero() -> None:
    shop = Shop(slice_of("n1", [grouped("g0", 32)]))
    shop.allocate(claim("a", request(cpus=16)))
    shop.change(slice_of("n1", [grouped("g0", 8)]))
    assert shop.devices(claim("b", request(cpus=0))) is None


def test_a_count_needs_distinct_devices_and_two_requests_do_not() -> None:
    shop = Shop(slice_of("n1", [grouped("g0", 12)]))
    assert shop.devices(claim("a", request(cpus=1, count=2))) is None
    assert shop.devices(claim("b", request("x", cpus=1), request("y", cpus=1))) == ["g0", "g0"]


def test_a_device_must_match_the_selectors_of_class_and_request() -> None:
    shop = Shop(
        slice_of("n1", [single(0)], driver="other"),
        slice_of("n1", [single(1), single(2, numa=1)]),
    )
    of_numa_1 = request(cel='device.attributes["resource.kubernetes.io"].numaNode == 1')
    assert shop.devices(claim("a", of_numa_1)) == ["cpudev002"]
    assert shop.devices(claim("b", request())) == ["cpudev001"]


@pytest.mark.parametrize(
    "expression",
    [
        'device.capacity["dra.cpu"].cpu.compareTo(quantity("20")) > 0',
        'device.capacity["dra.cpu"].cpu == quantity("32") && device.allowMultipleAllocations',
        'device.attributes["dra.cpu"].?socketID.orValue(0) == 1',
        '!has(device.attributes["example.com"].here) && device.attributes["dra.cpu"].socketID > 0',
    ],
)
def test_expressions_access_attributes_and_capacity_by_domain(expression) -> None:
    shop = Shop(slice_of("n1", [grouped("g0", 16, socketID=0), grouped("g1", 32, socketID=1)]))
    assert shop.devices(claim("a", request(cpus=1, cel=expression))) == ["g1"]


def test_a_failing_expression_is_an_error() -> None:
    shop = Shop(slice_of("n1", [single(0)]))
    with pytest.raises(AllocationError, match="Key not found in map"):
        shop.devices(claim("a", request(cel='device.attributes["dra.cpu"].absent == 1')))


def test_match_attribute_selects_a_group_in_which_all_devices_fit() -> None:
    shop = Shop(slice_of("n1", cpus(16, numas=4)))
    assert shop.devices(claim("a", request())) == ["cpudev000"]
    together = claim("b", request(count=4), constraints=[{"matchAttribute": NUMA}])
    assert shop.devices(together) == ["cpudev004", "cpudev005", "cpudev006", "cpudev007"]


def test_distinct_attribute_selects_a_device_of_each_value() -> None:
    shop = Shop(slice_of("n1", cpus(16, numas=4)))
    spread = claim("a", request(count=4), constraints=[{"distinctAttribute": NUMA}])
    assert shop.devices(spread) == ["cpudev000", "cpudev004", "cpudev008", "cpudev012"]


def test_constraints_combine_and_apply_only_to_the_requests_they_name() -> None:
    shop = Shop(slice_of("n1", cpus(8)))
    two = claim(
        "a",
        request("x", count=2),
        request("y", count=2),
        request("z"),
        constraints=[
            {"requests": ["x", "y"], "matchAttribute": NUMA},
            {"requests": ["y", "z"], "distinctAttribute": "dra.cpu/cpuID"},
            {"requests": ["x", "z"], "matchAttribute": NUMA},
        ],
    )
    assert shop.devices(two) is None  # five devices of a NUMA node that has four
    two["spec"]["devices"]["constraints"].pop()
    assert shop.devices(two) == ["cpudev000", "cpudev001", "cpudev002", "cpudev003", "cpudev004"]


def test_a_device_without_the_attribute_does_not_match() -> None:
    shop = Shop(slice_of("n1", [{"name": "bare"}]))
    for constraint in ("matchAttribute", "distinctAttribute"):
        assert shop.devices(claim("a", request(), constraints=[{constraint: NUMA}])) is None


def test_attributes_with_several_values_match_if_they_share_a_value() -> None:
    root = "resource.kubernetes.io/pcieRoot"
    devices = [
        {"name": name, "attributes": {root: {"strings": values}}}
        for name, values in (("a", ["r0", "r1"]), ("b", ["r1", "r2"]), ("c", ["r2", "r0"]), ("d", ["r3"]))
    ]
    shop = Shop(slice_of("n1", devices))
    assert shop.devices(claim("x", request(count=3), constraints=[{"matchAttribute": root}])) is None
    assert shop.devices(claim("x", request(count=2), constraints=[{"matchAttribute": root}])) == ["a", "b"]
    assert shop.devices(claim("y", request(count=2), constraints=[{"distinctAttribute": root}])) == ["c", "d"]


def test_an_unqualified_attribute_is_in_the_drivers_domain() -> None:
    devices = [{"name": "a", "attributes": {"socketID": {"int": 0}}}]
    shop = Shop(slice_of("n1", devices))
    assert shop.devices(claim("x", request(), constraints=[{"matchAttribute": "dra.cpu/socketID"}])) == ["a"]


TAINT = {"key": "dra.cpu/offline", "value": "true", "effect": "NoSchedule"}
TOLERATION = {"key": "dra.cpu/offline", "operator": "Exists"}


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_tainted_device_is_allocated_only_with_a_toleration(effect) -> None:
    shop = Shop(slice_of("n1", [single(0, taints=[{**TAINT, "effect": effect}]), single(1)]))
    assert shop.devices(claim("a", request())) == ["cpudev001"]
    assert shop.devices(claim("b", request())) is None
    assert shop.devices(claim("c", request(tolerations=[{**TOLERATION, "effect": "None"}]))) is None
    found = shop.allocate(claim("d", request(tolerations=[TOLERATION])))
    assert found
    assert found[0]["devices"]["results"][0]["tolerations"] == [TOLERATION]


def test_mode_all_allocates_every_matching_device_or_none() -> None:
    everything = request(allocationMode="All")
    shop = Shop(slice_of("n1", cpus(4)))
    assert shop.devices(claim("a", everything, request("one"))) is None
    assert shop.devices(claim("a", request("one"), everything)) is None
    found = shop.devices(claim("a", everything))
    assert found == ["cpudev000", "cpudev001", "cpudev002", "cpudev003"]
    shop.release("a")
    shop.allocate(claim("b", request()))
    assert shop.devices(claim("a", everything)) is None
    nothing = request(allocationMode="All", cel='device.attributes["dra.cpu"].cpuID > 4')
    assert shop.devices(claim("c", nothing)) is None


def test_mode_all_ignores_devices_that_are_too_small_but_not_those_that_are_used_up() -> None:
    shop = Shop(slice_of("n1", [grouped("small", 2), grouped("g0", 8), grouped("g1", 8)]))
    assert shop.devices(claim("a", request(cpus=4, allocationMode="All"))) == ["g0", "g1"]
    assert shop.devices(claim("b", request(cpus=2))) == ["small"]
    assert shop.devices(claim("c", request(cpus=4))) == ["g0"]
    assert shop.devices(claim("d", request(cpus=4, allocationMode="All"))) is None


def test_a_request_that_cannot_be_computed_is_an_error_even_if_another_device_would_do() -> None:
    ones = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    shop = Shop(slice_of("n1", [grouped("g0", 32, ones), single(0)]))
    with pytest.raises(AllocationError, match='request "main": .* of device g0: a request of 10E cannot be rounded up'):
        shop.devices(claim("a", request(cpus="10E")))
    with pytest.raises(AllocationError, match="capacity value is negative"):
        Shop(slice_of("n1", PAIR)).devices(claim("a", request(cpus=-8)))


def test_mode_all_is_rejected_if_a_device_is_tainted() -> None:
    shop = Shop(slice_of("n1", [single(0), single(1, taints=[TAINT])]))
    assert shop.devices(claim("a", request(allocationMode="All"))) is None


@pytest.mark.parametrize(
    "asked",
    [
        [request(count=33)],
        [request("x", count=16), request("y", count=17)],
        [request(allocationMode="All")],
    ],
)
def test_a_claim_has_at_most_32_devices(asked) -> None:
    shop = Shop(slice_of("n1", cpus(40)))
    with pytest.raises(AllocationError, match="exceeds the claim limit of 32"):
        shop.devices(claim("a", *asked))


def first_available(*ways):
    return {
        "name": "main",
        "firstAvailable": [{"name": name, "deviceClassName": "dra.cpu", "count": count} for name, count in ways],
    }


def test_the_first_alternative_that_fits_is_used() -> None:
    shop = Shop(slice_of("n1", cpus(4)))
    found = shop.allocate(claim("a", first_available(("huge", 99), ("large", 5), ("small", 2), ("tiny", 1))))
    assert found
    assert [result["request"] for result in found[0]["devices"]["results"]] == ["main/small", "main/small"]


def test_an_alternative_is_given_up_if_later_requests_do_not_fit() -> None:
    shop = Shop(slice_of("n1", cpus(4)))
    found = shop.allocate(claim("a", first_available(("large", 4), ("small", 2)), request("more", count=2)))
    assert found
    assert [result["request"] for result in found[0]["devices"]["results"]] == ["main/small"] * 2 + ["more"] * 2


def test_constraints_can_name_a_request_or_one_of_its_alternatives() -> None:
    shop = Shop(slice_of("n1", cpus(4, numas=4)))
    both = first_available(("pair", 2), ("one", 1))
    for name, expected in (("main", ["cpudev000"]), ("main/one", ["cpudev000", "cpudev001"])):
        constraints = [{"requests": [name], "matchAttribute": NUMA}]
        assert shop.devices(claim("a", both, constraints=constraints)) == expected
        shop.release("a")


def opaque(driver, requests=None):
    config = {"opaque": {"driver": driver, "parameters": {"from": driver}}}
    return config if requests is None else {"requests": requests, **config}


def test_config_of_classes_precedes_config_of_the_claim() -> None:
    other = device_class("quick", config=[opaque("quick")])
    shop = Shop(slice_of("n1", cpus(8)), classes=[other, device_class("dull", config=[opaque("dull")])])
    names = {"deviceClassName": "quick"}
    found = shop.allocate(
        claim(
            "a",
            request("x", **names),
            request("y", **names),
            first_available(("big", 9), ("small", 1)),
            config=[
                opaque("everywhere"),
                opaque("x", ["x"]),
                opaque("main", ["main"]),
                opaque("big", ["main/big"]),
                opaque("small", ["main/small"]),
            ],
        )
    )
    assert found
    assert found[0]["devices"]["config"] == [
        {"source": "FromClass", "requests": ["x", "y"], **opaque("quick")},
        {"source": "FromClaim", **opaque("everywhere")},
        {"source": "FromClaim", **opaque("x", ["x"])},
        {"source": "FromClaim", **opaque("main", ["main"])},
        {"source": "FromClaim", **opaque("small", ["main/small"])},
    ]


def test_config_for_all_requests_names_none() -> None:
    quick = device_class("quick", config=[opaque("quick")])
    ways = first_available(("big", 9), ("small", 1))
    for way in ways["firstAvailable"]:
        way["deviceClassName"] = "quick"
    named = [opaque("x", ["x"]), opaque("all", ["x", "main"]), opaque("alternative", ["main/small", "x"])]
    shop = Shop(slice_of("n1", cpus(8)), classes=[quick])
    found = shop.allocate(claim("a", request("x", deviceClassName="quick"), ways, config=named))
    assert found
    assert found[0]["devices"]["config"] == [
        {"source": "FromClass", **opaque("quick")},
        {"source": "FromClaim", **opaque("x", ["x"])},
        {"source": "FromClaim", **opaque("all")},
        {"source": "FromClaim", **opaque("alternative")},
    ]


def test_an_allocated_device_is_not_allocated_again_when_it_becomes_shareable_or_exclusive() -> None:
    shared, own = slice_of("n1", [grouped("g", 8)]), slice_of("n1", [{"name": "g"}])
    shop = Shop(shared)
    shop.allocate(claim("a", request(cpus=1)))
    shop.change(own)
    assert shop.devices(claim("b", request())) is None
    shop.release("a")
    shop.allocate(claim("a", request()))
    shop.change(shared)
    assert shop.devices(claim("b", request(cpus=1))) is None


def test_several_claims_are_allocated_together_or_not_at_all() -> None:
    shop = Shop(slice_of("n1", cpus(4)))
    assert shop.devices(claim("a", request(count=2)), claim("b", request(count=3))) is None
    assert shop.devices(claim("a", request(count=3)), claim("b", request())) == [
        "cpudev000", "cpudev001", "cpudev002", "cpudev003",
    ]  # fmt: skip


def test_constraints_apply_to_a_single_claim() -> None:
    shop = Shop(slice_of("n1", cpus(2)))
    first, second = (claim(name, request(), constraints=[{"matchAttribute": NUMA}]) for name in ("a", "b"))
    assert shop.devices(first, second) == ["cpudev000", "cpudev001"]


def test_too_few_free_devices_are_detected_without_a_search() -> None:
    assert Shop(slice_of("n1", cpus(31))).devices(claim("a", request(count=32))) is None
    uneven = Shop(slice_of("n1", [single(number, numa=int(number >= 20)) for number in range(52)]))
    together = claim("a", request(count=24), constraints=[{"matchAttribute": NUMA}])
    assert uneven.devices(together) == [f"cpudev{number:03}" for number in range(20, 44)]


def test_a_search_that_takes_too_many_steps_ends_with_an_error() -> None:
    shop = Shop(slice_of("n1", cpus(12)))
    with pytest.raises(AllocationError, match="gave up after 5000 steps"):
        shop.devices(claim("a", *(request(f"r{number}") for number in range(13))))
