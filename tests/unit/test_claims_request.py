import pytest
from nodes import NODE, claim_object, ref, share, whole

from dracpu_agent.claims.cpu_asks import read_cpu_request
from dracpu_agent.claims.opaque import ParametersError
from dracpu_agent.claims.request import ClaimRefusedError
from dracpu_agent.errors import ClaimError
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import Allocation, Strategy


def opaque(parameters, source="FromClaim", requests=(), driver="dra.cpu"):
    return {"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


def theirs(cpuset):
    return {"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": cpuset}}


def ours(**fields):
    return {"apiVersion": "dra.cpu/v1alpha1", "kind": "CpuClaimParameters", **fields}


@pytest.mark.parametrize("amount", ["500m", "1500m", "0", "-8"])
def test_an_amount_that_is_not_a_whole_number_is_refused_by_its_value(amount):
    with pytest.raises(ClaimRefusedError, match=f"asks for {amount} of dra.cpu/cpu"):
        read_cpu_request(ref(1), claim_object(1, [share("cpudevnuma000", amount)]), NODE)


def test_a_shared_device_without_an_amount_of_our_capacity_is_refused():
    result = share("cpudevnuma000", 2) | {"consumedCapacity": {"cpu": "2"}}
    with pytest.raises(ClaimRefusedError, match="DRAConsumableCapacity"):
        read_cpu_request(ref(1), claim_object(1, [result]), NODE)


def test_results_and_config_of_other_drivers_are_ignored():
    foreign = {"request": "gpu", "driver": "gpu.example.com", "pool": "elsewhere", "device": "gpu-0"}
    config = [opaque({"nonsense": True}, driver="gpu.example.com")]
    asked = read_cpu_request(ref(1), claim_object(1, [foreign, share("cpudevnuma000", 2)], config), NODE)
    assert [ask.device for ask in asked.asks] == ["cpudevnuma000"]


def test_a_claim_without_a_device_of_ours_is_refused():
    with pytest.raises(ClaimRefusedError, match="no device of driver dra.cpu"):
        read_cpu_request(ref(1), claim_object(1, []), NODE)


def test_a_claim_that_is_not_allocated_is_refused():
    with pytest.raises(ClaimRefusedError, match="not allocated"):
        read_cpu_request(ref(1), {"metadata": {"uid": ref(1).uid}, "status": {}}, NODE)


def test_a_claim_that_was_created_again_is_refused():
    with pytest.raises(ClaimRefusedError, match="deleted and created again"):
        read_cpu_request(ref(1), claim_object(2, [whole(2)]), NODE)


def test_a_device_of_another_node_is_refused():
    with pytest.raises(ClaimRefusedError, match='of node "other"'):
        read_cpu_request(ref(1), claim_object(1, [whole(2) | {"pool": "other"}]), NODE)


def test_the_digest_depends_on_the_allocation_and_not_on_the_pods():
    first = read_cpu_request(ref(1), claim_object(1, [whole(2)], pods=["a"]), NODE)
    second = read_cpu_request(ref(1), claim_object(1, [whole(2)], pods=["a", "b"]), NODE)
    other = read_cpu_request(ref(1), claim_object(1, [whole(3)], pods=["a"]), NODE)
    assert first.digest == second.digest != other.digest
    assert second.consumers == {"a", "b"}


def test_both_forms_of_parameters_name_a_cpuset():
    for parameters in (theirs("2-3"), ours(cpuset="2-3")):
        claim = claim_object(1, [share("cpudevnuma000", 2)], [opaque(parameters)])
        assert read_cpu_request(ref(1), claim, NODE).asks[0].parameters.cpuset == CpuSet([2, 3])


def test_the_claim_overrides_the_class_field_by_field_and_both_override_the_node():
    config = [
        opaque(ours(strategy="distributed", fullCores=True), source="FromClass"),
        opaque(ours(fullCores=False)),
    ]
    ask = read_cpu_request(ref(1), claim_object(1, [share("cpudevnuma000", 2)], config), NODE).asks[0]
    assert ask.parameters.applied_to(Allocation(prefer_uncore_cache=False)) == Allocation(
        Strategy.DISTRIBUTED, full_cores=False, prefer_uncore_cache=False
    )


def test_a_cpuset_from_a_class_is_refused():
    claim = claim_object(1, [share("cpudevnuma000", 2)], [opaque(theirs("2-3"), source="FromClass")])
    with pytest.raises(ParametersError, match="set it in the claim"):
        read_cpu_request(ref(1), claim, NODE)


def test_config_of_a_request_applies_only_to_it_and_its_subrequests():
    results = [share("cpudevnuma000", 2, "a/small"), share("cpudevnuma000", 1, "b", 1)]
    claim = claim_object(1, results, [opaque(theirs("2-3"), requests=["a"])])
    asks = read_cpu_request(ref(1), claim, NODE).asks
    assert [ask.parameters.cpuset for ask in asks] == [CpuSet([2, 3]), None]


def test_one_cpuset_for_several_devices_is_refused():
    claim = claim_object(1, [whole(2), whole(3)], [opaque(theirs("2-3"))])
    with pytest.raises(ClaimRefusedError, match="cannot apply to several devices"):
        read_cpu_request(ref(1), claim, NODE)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (ours(cpuSet="2"), "cpuSet is an unknown field"),
        (theirs("2") | {"mode": "x"}, "mode is an unknown field"),
        ({"apiVersion": "v1alpha1", "cpuConfig": {"cpus": "2"}}, "cpuConfig.cpus is an unknown field"),
        ({"apiVersion": "v1alpha1"}, "cpuConfig must be an object"),
        ({"apiVersion": "v2"}, "apiVersion must be"),
        (ours(strategy="spread"), "packed, distributed"),
        (ours(fullCores="yes"), "fullCores must be true or false"),
        (ours() | {"kind": "Other"}, "kind must be CpuClaimParameters"),
        (theirs("3-2"), 'write "2-3"'),
        ("2-3", "must be an object"),
    ],
)
def test_invalid_parameters_are_refused_by_name(parameters, message):
    claim = claim_object(1, [share("cpudevnuma000", 2)], [opaque(parameters)])
    with pytest.raises(ClaimError, match=message):
        read_cpu_request(ref(1), claim, NODE)
