"""The parameters of claims of memory: what is read, what is refused, and what belongs to the allocation."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodes import NODE, claim_object, ref, share

from dracpu_agent.claims.memory_asks import MemoryRequest, read_memory_request
from dracpu_agent.claims.memory_parameters import MemoryParameters, read_memory_parameters
from dracpu_agent.claims.opaque import ParametersError
from dracpu_agent.claims.request import ClaimRefusedError
from dracpu_agent.errors import ClaimError
from dracpu_agent.memory.binding import Binding

DRIVER = "dra.memory"
MI = 1024**2
PAGES = "hugepages-2mi-numa000"


def parameters(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "dra.cpu/v1alpha1", "kind": "MemoryClaimParameters", **fields}


def config(value: Any, source: str = "FromClaim", requests: Sequence[str] = ()) -> dict[str, Any]:
    return {"source": source, "requests": list(requests), "opaque": {"driver": DRIVER, "parameters": value}}


def some(device: str, request: str = "main", size: str = "1Gi") -> dict[str, Any]:
    return share(device, 1, request) | {"driver": DRIVER, "consumedCapacity": {"size": size}}


def read(results: Sequence[Mapping[str, Any]], *configs: Mapping[str, Any]) -> MemoryRequest:
    return read_memory_request(ref(1), claim_object(1, results, configs), NODE)


def asked(results: Sequence[Mapping[str, Any]], *configs: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(ask.binding.value, ask.mount) for ask in read(results, *configs).asks]


def test_without_parameters_memory_is_bound_and_nothing_is_mounted() -> None:
    assert asked([some("memory-numa000"), some(PAGES, "pages")]) == [("Strict", ""), ("Strict", "")]


def test_the_claim_overrides_its_class_field_by_field() -> None:
    of_class = config(parameters(binding="Preferred", mount="/dev/hugepages"), "FromClass")
    assert asked([some(PAGES)], of_class) == [("Preferred", "/dev/hugepages")]
    assert asked([some(PAGES)], of_class, config(parameters(mount="/pages"))) == [("Preferred", "/pages")]
    assert asked([some(PAGES)], of_class, config(parameters(binding="Strict"))) == [("Strict", "/dev/hugepages")]
    assert asked([some(PAGES)], config(parameters(mount="")), of_class) == [("Preferred", "")]


def test_parameters_of_a_request_apply_to_it_and_its_subrequests_alone() -> None:
    results = [some(PAGES, "pages/small"), some("memory-numa000", "memory")]
    mounted = config(parameters(mount="/dev/hugepages"), requests=["pages"])
    assert asked(results, mounted) == [("Strict", "/dev/hugepages"), ("Strict", "")]


def test_parameters_for_another_driver_are_ignored() -> None:
    other = config({"nonsense": True})
    other["opaque"]["driver"] = "dra.cpu"
    assert asked([some(PAGES)], other) == [("Strict", "")]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (parameters(bindings="Strict"), r"parameters\.bindings is an unknown field; known fields are .*binding, mount"),
        (parameters(binding="strict"), "parameters.binding must be one of Strict, Preferred, got 'strict'"),
        (parameters(binding=True), "parameters.binding must be one of"),
        (parameters(mount=["/dev/hugepages"]), "parameters.mount must be a path like"),
        (parameters() | {"kind": "CpuClaimParameters"}, "kind must be MemoryClaimParameters, got 'CpuClaimParameters'"),
        (parameters() | {"apiVersion": "v1alpha1"}, "apiVersion must be"),
        ("Preferred", "the parameters for driver dra.memory must be an object"),
        (None, "the parameters for driver dra.memory must be an object"),
    ],
)
def test_parameters_that_are_not_understood_are_refused_by_name(value: Any, message: str) -> None:
    with pytest.raises(ParametersError, match=message):
        read([some("memory-numa000")], config(value))


@pytest.mark.parametrize(
    "path",
    [
        *("dev/hugepages", " /a", "-/a", "/", "/dev", "/proc", "/proc/1", "/sys", "/sys/fs"),
        *("/a/../b", "/a//b", "/a/", "/.", "//", "/a\n", "/\ud800", "/" + "x" * 4096),
    ],
)
def test_hugepages_are_mounted_at_clean_absolute_paths_that_are_free(path: str) -> None:
    with pytest.raises(ParametersError, match="no hugepages can be mounted at"):
        read([some(PAGES)], config(parameters(mount=path)))


@pytest.mark.parametrize("path", ["/dev/hugepages", "/mnt/huge 1G", "/procedures", "/dev/hugepages/1G"])
def test_other_paths_are_taken_as_they_are(path: str) -> None:
    assert asked([some(PAGES)], config(parameters(mount=path))) == [("Strict", path)]


def test_ordinary_memory_is_not_mounted() -> None:
    with pytest.raises(ClaimRefusedError, match="request memory: ordinary memory cannot be mounted at /dev/hugepages"):
        read([some(PAGES, "pages"), some("memory-numa000", "memory")], config(parameters(mount="/dev/hugepages")))


def test_a_mount_has_pages_of_one_size() -> None:
    results = [some(PAGES, "pages"), some("hugepages-1gi-numa000", "pages")]
    with pytest.raises(ClaimRefusedError, match="request pages: it has hugepages of several sizes"):
        read(results, config(parameters(mount="/dev/hugepages")))
    several_nodes = [some(PAGES, "pages"), some("hugepages-2mi-numa001", "pages")]
    assert len(asked(several_nodes, config(parameters(mount="/dev/hugepages")))) == 2


def test_parameters_belong_to_the_allocation() -> None:
    results = [some(PAGES)]
    values = [
        parameters(),
        parameters(binding="Preferred"),
        parameters(mount="/a"),
        parameters(mount="/b"),
        parameters(binding="Preferred", mount="/a"),
    ]
    digests = [read(results, config(value)).digest for value in values]
    assert len(set(digests)) == len(digests)
    defaults = parameters(binding="Strict", mount="")
    assert {read(results).digest, read(results, config(defaults)).digest} == {digests[0]}


def test_an_allocation_without_parameters_keeps_the_digest_of_agents_that_knew_none() -> None:
    (result,) = results = [some(PAGES)]
    known = [[result["request"], result["pool"], result["device"], result["shareID"], 1024 * MI]]
    assert read(results).digest == hashlib.sha256(json.dumps(known, separators=(",", ":")).encode()).hexdigest()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(
    st.dictionaries(st.sampled_from(["binding", "mount", "kind", "apiVersion", "size"]), values, max_size=3)
    | st.fixed_dictionaries({}, optional={"binding": st.sampled_from(["Strict", "Preferred"]), "mount": st.text()})
)
def test_any_parameters_are_read_whole_or_refused(fields: dict[str, Any]) -> None:
    try:
        found = read_memory_parameters(parameters() | fields)
    except ClaimError:
        return
    assert set(fields) <= {"binding", "mount", "kind", "apiVersion"}
    binding, mount = fields.get("binding") or None, fields.get("mount")
    assert found == MemoryParameters(None if binding is None else Binding(binding), mount)
