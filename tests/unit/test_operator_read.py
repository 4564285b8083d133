"""Objects of the API server become records."""

import json
from typing import Any

import pytest
from fleets import config
from hypothesis import given
from hypothesis import strategies as st
from node_specs import settings as any_settings

from dracpu_api.conditions import Phase
from dracpu_api.cpuset import CpuSet
from dracpu_api.memory_kinds import LIMIT
from dracpu_api.settings import Mode, Settings, encode_settings, encode_spec
from dracpu_operator.decide.records import MemoryBytes
from dracpu_operator.known.read import read_config, read_cpu_node, read_node, revision_of

TIME = "2026-01-01T00:00:00Z"
METADATA: dict[str, Any] = {"name": "x", "uid": "u", "resourceVersion": "7", "generation": 1}


def test_a_node_is_reduced_to_its_name_uid_and_labels() -> None:
    read = read_node({"metadata": METADATA})
    assert (read.name, read.uid, read.version, read.labels) == ("x", "u", 7, {})


def test_settings_have_neither_selector_nor_priority_nor_rollout() -> None:
    read = config(mode="individual", reservedCPUs="3,1-2", priority=5, rollout={"paused": True}).wanted
    assert read is not None
    assert read.settings == Settings(mode=Mode.INDIVIDUAL, reserved_cpus=CpuSet([1, 2, 3]))


def test_the_revision_depends_on_the_settings_alone() -> None:
    def revision(**spec: Any) -> str:
        wanted = config(**spec).wanted
        assert wanted is not None
        return wanted.revision

    assert revision(reservedCPUs="0,1") == revision(reservedCPUs="0-1", priority=3, rollout={"paused": True})
    assert revision(reservedCPUs="0-1") != revision(reservedCPUs="0-2")
    written = [{"numaNode": 1, "memory": "1024Mi"}, {"numaNode": 0, "memory": "2Gi", "hugepages_2Mi": "65536Ki"}]
    tidy = [{"numaNode": 0, "memory": "2Gi", "hugepages_2Mi": "64Mi"}, {"numaNode": 1, "memory": "1Gi"}]
    assert revision(memory={"reserved": written}) == revision(memory={"reserved": tidy})
    assert revision(memory={"hugepages": ["1Gi", "2Mi"]}) == revision(memory={"hugepages": ["2Mi", "1Gi"]})
    assert revision(memory={"enabled": True}) != revision() != revision(memory={"hugepages": []})


@given(any_settings, any_settings)
def test_revisions_are_equal_when_settings_are(settings, other) -> None:
    assert (revision_of(settings) == revision_of(other)) == (settings == other)
    assert 1 <= len(revision_of(settings)) <= 63


@pytest.mark.parametrize(
    "spec",
    [
        {"mode": "other"},
        {"reservedCPUs": "5-2"},
        {"nodeSelector": {"new": 1}},  # without it, other nodes would be selected
        {"rollout": {"paused": "yes"}},
    ],
)
def test_a_config_that_is_not_valid_is_read_with_its_problems(spec) -> None:
    read = config(**spec)
    assert read.wanted is None
    assert read.problems


def test_unknown_settings_of_a_config_are_copied_to_its_nodes() -> None:
    wanted = config(mode="individual", allocation={"new": 1}, turbo=True, rollout={"new": 1, "paused": True}).wanted
    assert wanted is not None
    assert wanted.settings.unknown == {"turbo": True, "allocation": {"new": 1}}
    assert wanted.spec.rollout.paused
    assert wanted.revision != revision_of(Settings(Mode.INDIVIDUAL))


def managed(spec: dict[str, Any], **entry: Any) -> dict[str, Any]:
    return {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": spec}} | entry


def unknown_of(managed_fields: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    wanted = read_config({"metadata": METADATA | {"managedFields": managed_fields}, "spec": spec}).wanted
    assert wanted is not None
    return dict(wanted.settings.unknown)


def test_unknown_settings_that_nobody_has_written_are_defaults_of_a_newer_crd() -> None:
    """The API server records who has written which field, and nobody has written a default."""
    of_user = managed({".": {}, "f:mode": {}, "f:allocation": {".": {}, "f:fullCores": {}, "f:new": {}}, "f:turbo": {}})
    defaulted = {"boost": 1, "allocation": {"fullCores": True, "other": 2}}
    assert unknown_of([of_user], **defaulted) == {}
    written = {"turbo": {}, "allocation": {"fullCores": True, "new": 1, "other": 2}, "boost": 1}
    assert unknown_of([of_user], **written) == {"turbo": {}, "allocation": {"new": 1}}


def test_an_unknown_object_has_the_fields_that_somebody_has_written() -> None:
    both = [managed({"f:power": {"f:limit": {}}}), managed({"f:power": {"f:floor": {}}}, manager="helm")]
    assert unknown_of(both, power={"limit": 1, "floor": 2, "step": 3}) == {"power": {"limit": 1, "floor": 2}}
    assert unknown_of([managed({"f:power": {}})], power={"limit": 1}) == {"power": {"limit": 1}}


def test_unknown_fields_of_memory_are_copied_where_somebody_has_written_them() -> None:
    """This version knows some fields of memory, so that an unknown one has a writer of its own."""
    of_user = managed({"f:memory": {".": {}, "f:enabled": {}, "f:reserved": {}, "f:zones": {}}})
    reserved = [{"numaNode": 0, "memory": "1Gi", "far": "2Gi"}]
    memory = {"enabled": True, "reserved": reserved, "zones": 1, "boost": 2}
    assert unknown_of([of_user], memory=memory) == {"memory": {"reserved": [{"far": "2Gi"}], "zones": 1}}
    assert unknown_of([managed({"f:memory": {"f:enabled": {}}})], memory=memory) == {}


def test_an_unknown_object_that_was_written_as_a_whole_is_copied_with_all_that_is_in_it() -> None:
    power = {"memory": {"limit": 1}, "allocation": {"limit": 2}}
    of_user = managed({"f:power": {"f:memory": {}, "f:allocation": {}}})
    assert unknown_of([of_user], power=power) == {"power": power}


def test_a_config_that_reserves_only_kinds_of_a_newer_version_is_valid_and_they_are_copied() -> None:
    reserved = [{"numaNode": 0, "far": "2Gi"}, {"numaNode": 1, "memory": "1Gi"}]
    read = config(memory={"reserved": reserved})
    assert read.problems == ()
    assert read.wanted is not None
    assert encode_settings(read.wanted.settings)["memory"] == {"reserved": reserved}


@pytest.mark.parametrize(
    ("memory", "field"),
    [
        ({"hugepages": ["2M"]}, "spec.memory.hugepages[0]: not a size of hugepages"),
        ({"reserved": [{"numaNode": 0, "memory": "much"}]}, "spec.memory.reserved[0].memory: not an amount"),
        ({"reserved": [{"numaNode": 0, "hugepages_2Mi": "3Mi"}]}, "spec.memory.reserved[0].hugepages_2Mi: not whole"),
        ({"reserved": ["1Gi"]}, "spec.memory.reserved[0]: "),
        ({"reserved": {"numaNode": 0}}, "spec.memory.reserved: "),
        (True, "spec.memory: "),
    ],
)
def test_wrong_settings_of_memory_are_problems_that_name_the_field(memory: Any, field: str) -> None:
    read = config(memory=memory)
    assert read.wanted is None
    assert any(problem.startswith(field) for problem in read.problems), read.problems


def test_a_write_of_the_status_does_not_make_anybody_the_writer_of_a_setting() -> None:
    entry = managed({"f:turbo": {}}, subresource="status")
    assert unknown_of([entry], turbo=False) == {}


def test_unknown_settings_count_where_it_is_not_recorded_who_wrote_them() -> None:
    assert unknown_of([], turbo=False) == {"turbo": False}


RECORDED_REVISIONS = [
    ({}, "ea047818bc560e38"),
    ({"memory": {}}, "ea047818bc560e38"),  # as without memory
    ({"memory": {"enabled": False, "reserved": [], "cpulessNodes": False}}, "ea047818bc560e38"),
    ({"mode": "individual"}, "c9cfb3b305a1013f"),
    ({"groupBy": "socket"}, "a36ece196699b674"),
    ({"groupBy": "machine", "reservedCPUs": "0-1,64"}, "cba7ba14dc9557eb"),
    ({"groupBy": "l3cache", "allocation": {"strategy": "distributed"}}, "8455f7c4f129768a"),
    ({"allocation": {"fullCores": True, "preferUncoreCache": False}}, "a8dd79f69c7505f0"),
    (
        {"exposePCIeRoots": True, "nodeAllocatable": True, "priority": 7, "rollout": {"maxUnavailable": 3}},
        "f7b4ec42d1834c52",
    ),
]


@pytest.mark.parametrize(("spec", "revision"), RECORDED_REVISIONS)
def test_revisions_stay_what_they_were_in_former_versions(spec: dict[str, Any], revision: str) -> None:
    """Another one would change every node in an upgrade."""
    wanted = config(**spec).wanted
    assert wanted is not None
    assert wanted.revision == revision


def test_a_status_of_a_newer_version_does_not_make_a_config_invalid() -> None:
    assert config(status={"new": "field"}).wanted is not None


SPEC: dict[str, Any] = {"config": {"name": "all", "generation": 1}, "settings": {}, "revision": "r"}


@pytest.mark.parametrize(
    ("raw", "config_name"),
    [
        ({}, ""),
        ({"spec": {"revision": 1}}, ""),
        ({"spec": {"config": "all"}}, ""),
        ({"spec": {"config": {"name": 1}}, "status": {}}, ""),
        ({"spec": SPEC | {"settings": {"mode": "by-weight"}}}, "all"),
    ],
)
def test_a_cpu_node_that_cannot_be_decoded_is_recorded_with_the_reason_and_its_config(raw, config_name) -> None:
    read = read_cpu_node({"metadata": METADATA, **raw})
    assert (read.spec, read.phase, read.config_name) == (None, None, config_name)
    assert read.unreadable.startswith("spec")


def test_unknown_fields_of_a_cpu_node_are_kept() -> None:
    read = read_cpu_node({"metadata": METADATA, "spec": SPEC | {"settings": {"turbo": 1}, "new": 2}})
    assert read.spec is not None
    assert not read.unreadable
    written = encode_spec(read.spec)
    assert (written["settings"]["turbo"], written["new"]) == (1, 2)


def test_a_cpu_node_has_what_its_annotations_and_its_status_say() -> None:
    annotations = {"dra.cpu/given-at": TIME, "dra.cpu/remove-after": "t2", "dra.cpu/agent-was-ready": "false"}
    agent = {"ready": True, "since": TIME}
    status = {"phase": "Ready", "ignoredSettings": ["settings.turbo"], "agent": agent}
    read = read_cpu_node({"metadata": METADATA | {"annotations": annotations}, "spec": SPEC, "status": status})
    assert (read.given_at, read.remove_after, read.was_ready) == (TIME, "t2", False)
    assert (read.ignored, read.reported_agent) == (("settings.turbo",), agent)
    bare = read_cpu_node({"metadata": METADATA, "spec": SPEC})
    assert (bare.given_at, bare.remove_after, bare.was_ready, bare.ignored) == ("", "", None, ())


@pytest.mark.parametrize(
    ("written", "usable"),
    [
        ("2026-01-01T00:00:00.5Z", TIME),
        ("2026-01-01T02:00:00+02:00", TIME),
        ("2026-01-01T00:00:00", ""),  # without a zone
        ("2026-01-01", ""),
        ("soon", ""),
        ("0000-01-01T00:00:00Z", ""),
        ("0001-01-01T00:00:00+01:00", ""),
        ("9999-12-31T23:59:59Z", ""),
        ("2026-01-01T00:00:00+99:00", ""),
    ],
)
def test_times_that_nothing_can_be_computed_with_count_as_missing(written: str, usable: str) -> None:
    """The API server accepts nearly all of them."""
    annotations = {"dra.cpu/given-at": written, "dra.cpu/devices-changed-at": written}
    raw = {
        "metadata": METADATA | {"annotations": annotations},
        "spec": SPEC,
        "status": {"phase": "Ready", "agent": {"ready": True, "reason": "Ready", "since": written}},
    }
    read = read_cpu_node(raw)
    assert {read.given_at, read.devices_changed_at, read.reported_agent["since"]} == {usable}


def test_numbers_of_an_agent_are_limited_so_that_their_sum_can_be_stored() -> None:
    status = {"phase": "Ready", "topology": {"counts": {"cpus": 2**63 - 1}}}
    assert read_cpu_node({"metadata": METADATA, "status": status}).cpus.total == 8192


def test_cpus_are_counted_once_and_are_available_only_when_settings_are_applied() -> None:
    status = {
        "phase": "Ready",
        "topology": {"counts": {"cpus": 8}},
        "cpus": {"reserved": "0-3", "exclusive": "2-4", "shared": "5-7"},
    }
    read = read_cpu_node({"metadata": METADATA, "status": {**status, "appliedRevision": "r"}}).cpus
    assert (read.total, read.reserved, read.exclusive, read.available) == (8, 4, 3, 3)
    assert read_cpu_node({"metadata": METADATA, "status": status}).cpus.available == 0


GIB = 1024**3


def memory_of(memory: Any, **status: Any) -> tuple[MemoryBytes, ...]:
    raw = {"metadata": METADATA, "status": {"phase": "Ready", "appliedRevision": "r", "memory": memory, **status}}
    return read_cpu_node(raw).memory


def test_memory_is_summed_over_the_numa_nodes_by_kind() -> None:
    places = [
        {"numaNode": 0, "kind": "memory", "total": "4Gi", "reserved": "1Gi", "promised": "1Gi", "used": "5Mi"},
        {"numaNode": 1, "kind": "memory", "total": "4Gi", "reserved": "1073741824", "promised": "0"},
        {"numaNode": 1, "kind": "hugepages_1Gi", "total": "2Gi", "reserved": "0", "promised": "2Gi", "used": "1Gi"},
    ]
    assert memory_of(places) == (
        MemoryBytes("memory", total=8 * GIB, reserved=2 * GIB, promised=GIB, available=5 * GIB),
        MemoryBytes("hugepages_1Gi", total=2 * GIB, reserved=0, promised=2 * GIB, available=0),
    )


def test_memory_is_available_only_when_settings_are_applied_and_never_below_zero() -> None:
    place = {"numaNode": 0, "kind": "memory", "total": "4Gi", "reserved": "1Gi", "promised": "1Gi"}
    assert memory_of([place], appliedRevision=None)[0].available == 0
    lost = place | {"numaNode": 1, "promised": "9Gi"}
    assert memory_of([place, lost])[0].available == 2 * GIB


@pytest.mark.parametrize("memory", [None, [], {}, "12Gi", 7, [None, 7, "memory", [], {}]])
def test_a_node_without_memory_that_can_be_understood_has_none(memory: Any) -> None:
    assert memory_of(memory) == ()


def test_kinds_of_a_newer_agent_are_left_out() -> None:
    kinds = ["far", "hugepages_3Mi", 7, None, ["memory"]]
    places = [{"numaNode": 0, "kind": kind, "total": "4Gi", "reserved": "0", "promised": "0"} for kind in kinds]
    assert memory_of([*places, {"numaNode": 0, "kind": "memory", "total": "1Gi"}]) == (
        MemoryBytes("memory", total=GIB, reserved=0, promised=0, available=GIB),
    )


@pytest.mark.parametrize(
    "amount", [None, 7, -1, "", "much", "-4Gi", "0", "1e-9", "0.5", "9" * 100, "0" * 40 + "1Gi", ["4Gi"], {}]
)
def test_an_amount_that_is_none_counts_as_nothing(amount: Any) -> None:
    assert memory_of([{"kind": "memory", "total": amount}]) == (MemoryBytes("memory", 0, 0, 0, 0),)


@pytest.mark.parametrize("amount", ["999999999999999999Ei", "1e99", "1025Ti"])
def test_amounts_of_an_agent_are_limited(amount: str) -> None:
    assert memory_of([{"kind": "memory", "total": amount}])[0].total == LIMIT


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "kind": st.sampled_from(["memory", "hugepages_2Mi", "far"]) | st.text(max_size=3) | st.none(),
                **dict.fromkeys(("total", "reserved", "promised", "used"), st.text(max_size=9) | st.integers()),
            },
        )
    )
)
def test_whatever_an_agent_reports_amounts_are_neither_negative_nor_more_than_there_is(memory: Any) -> None:
    for found in memory_of(memory):
        assert min(found[1:]) >= 0
        assert found.available <= found.total


def test_nodes_share_the_names_of_kinds() -> None:
    """15,000 nodes have a few of them each, and every decoded object has texts of its own."""
    first, second = (memory_of(json.loads('[{"kind": "memory", "total": "1Gi"}]')) for _ in range(2))
    assert first[0].kind is second[0].kind


def test_a_phase_of_a_newer_agent_counts_as_pending() -> None:
    assert read_cpu_node({"metadata": METADATA, "status": {"phase": "Resting"}}).phase is Phase.PENDING


def test_long_messages_of_an_agent_are_cut() -> None:
    condition = {"type": "SlicesPublished", "status": "False", "message": "x" * 10_000, "lastTransitionTime": "t"}
    refused = {"type": "ConfigApplied", "status": "False", "message": "y" * 10_000}
    read = read_cpu_node({"metadata": METADATA, "status": {"phase": "Failed", "conditions": [condition, refused]}})
    assert [len(trouble.message) for trouble in read.troubles] == [len(read.failure)] == [256]


def test_a_condition_without_a_message_is_reported_by_its_type() -> None:
    condition = {"type": "StateHealthy", "status": "False"}
    read = read_cpu_node({"metadata": METADATA, "status": {"phase": "Ready", "conditions": [condition]}})
    assert [(trouble.since, trouble.message) for trouble in read.troubles] == [("", "StateHealthy is False")]
