"""Tests that a requestPolicy rounds and rejects amounts as Kubernetes 1.37 does."""

import pytest
from dra_objects import CPU, grouped, request, slice_of

from dracpu_sandbox.scheduler.capacity import CapacityError, consumption
from dracpu_sandbox.scheduler.devices import read_slice
from dracpu_sandbox.scheduler.requests import read_claim


def amount(asked, value=32, policy=None):
    device = read_slice(slice_of("n1", [grouped("g", value, policy)])).devices[0]
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request(cpus=asked)]}}}
    found = consumption(device, read_claim(claim).requests[0].ways[0])
    return None if found is None else found[CPU][1]


PAIRS = {"default": "2", "validRange": {"min": "2", "step": "2"}}
ONES = {"default": "1", "validRange": {"min": "1", "step": "1"}}
HALVES = {"default": "500m", "validRange": {"min": "500m", "step": "500m"}}


@pytest.mark.parametrize(
    "asked, consumed",
    [("3", "4"), ("2500m", "4"), ("31", "32"), ("1", "2"), ("0", "2"), ("500m", "2"), (None, "2"), ("33", None)],
)
def test_amounts_are_rounded_up_to_steps(asked, consumed) -> None:
    assert amount(asked, 32, PAIRS) == consumed


@pytest.mark.parametrize("asked, consumed", [("31", None), ("30", "30")])
def test_a_capacity_between_two_steps_cannot_be_consumed_completely(asked, consumed) -> None:
    assert amount(asked, 31, PAIRS) == consumed


@pytest.mark.parametrize("asked, consumed", [("7", "8"), ("9", None)])
def test_amounts_above_the_maximum_are_rejected(asked, consumed) -> None:
    assert amount(asked, 32, {"default": "2", "validRange": {"min": "2", "step": "2", "max": "8"}}) == consumed


@pytest.mark.parametrize("asked, consumed", [("500m", "1"), ("1500m", "2"), ("-8", "1")])
def test_amounts_below_the_minimum_are_raised_to_it(asked, consumed) -> None:
    assert amount(asked, 32, ONES) == consumed


@pytest.mark.parametrize("asked, consumed", [("500m", "1"), ("1200m", "2"), (None, "500m")])
def test_steps_count_in_whole_units(asked, consumed) -> None:
    assert amount(asked, 32, HALVES) == consumed


@pytest.mark.parametrize("asked, consumed", [("1", "2"), ("3", "8"), ("8", "8"), ("9", None), (None, "2"), ("-1", "2")])
def test_amounts_are_rounded_up_to_valid_values(asked, consumed) -> None:
    assert amount(asked, 32, {"default": "2", "validValues": ["2", "8"]}) == consumed


@pytest.mark.parametrize(
    "asked, consumed",
    [("500m", "500m"), ("0", "0"), (None, "32"), ("08", "08"), ("1e1", "10"), (8, "8"), ("33", None)],
)
def test_amounts_are_not_rounded_without_a_policy(asked, consumed) -> None:
    assert amount(asked) == consumed


@pytest.mark.parametrize(
    "asked, step, consumed",
    [("08", "1", "8"), ("3Ki", "1", "3072"), ("3000", "2", "3k"), ("1500Ki", "1Mi", "2Mi"), ("2097152", "1Mi", "2Mi")],
)
def test_an_amount_in_steps_is_written_like_the_step(asked, step, consumed) -> None:
    assert amount(asked, "1Gi", {"default": step, "validRange": {"min": step, "step": step}}) == consumed


def test_a_negative_amount_that_no_policy_raises_is_an_error() -> None:
    with pytest.raises(CapacityError, match=f'capacity "{CPU}" of device g: capacity value is negative'):
        amount("-8")


def test_a_negative_amount_of_an_exclusive_device_is_an_error() -> None:
    device = read_slice(slice_of("n1", [{"name": "a", "capacity": {CPU: {"value": "8"}}}])).devices[0]
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request(cpus=-1)]}}}
    with pytest.raises(CapacityError, match="capacity value is negative"):
        consumption(device, read_claim(claim).requests[0].ways[0])


def test_an_amount_that_has_no_steps_in_64_bits_is_an_error() -> None:
    assert amount("10E") is None
    with pytest.raises(CapacityError, match="a request of 10E cannot be rounded up to a step"):
        amount("10E", 32, ONES)


def test_keys_match_by_exact_string() -> None:
    device = read_slice(slice_of("n1", [grouped("g", 32)])).devices[0]
    short = {"deviceClassName": "dra.cpu", "capacity": {"requests": {"cpu": "8"}}}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "main", "exactly": short}]}}}
    assert consumption(device, read_claim(claim).requests[0].ways[0]) is None


def test_a_capacity_that_is_not_requested_is_consumed_completely() -> None:
    body = grouped("g", 32)
    body["capacity"]["dra.cpu/other"] = {"value": "5"}
    device = read_slice(slice_of("n1", [body])).devices[0]
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request(cpus=1)]}}}
    found = consumption(device, read_claim(claim).requests[0].ways[0])
    assert {key: text for key, (_, text) in (found or {}).items()} == {CPU: "1", "dra.cpu/other": "5"}
