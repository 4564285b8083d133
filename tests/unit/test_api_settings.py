"""A spec is decoded, keeps the fields that this version does not know, or is refused with the name of the field."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from node_specs import settings, specs

from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import (
    Allocation,
    CpuNodeSpec,
    GroupBy,
    MemorySettings,
    Mode,
    OutstandingClaim,
    OutstandingDevice,
    ProvisionedPages,
    Publish,
    ReservedMemory,
    Settings,
    SettingsError,
    changed_fields,
    decode_settings,
    decode_spec,
    encode_settings,
    encode_spec,
)


def a_spec(**changes: Any) -> dict[str, Any]:
    return {"config": {"name": "default", "generation": 1}, "settings": {}, "revision": "r1"} | changes


@given(specs)
def test_a_spec_reads_back_as_it_was_written(spec: CpuNodeSpec) -> None:
    assert decode_spec(encode_spec(spec)) == spec


@given(settings)
def test_settings_read_back_as_they_were_written(written: Settings) -> None:
    assert decode_settings(encode_settings(written)) == written


def test_missing_fields_have_their_defaults() -> None:
    decoded = decode_spec(a_spec())
    assert decoded.settings == Settings()
    assert decoded.outstanding == ()


def test_reserved_cpus_are_read_as_a_set() -> None:
    assert decode_spec(a_spec(settings={"reservedCPUs": "0-1,4"})).settings.reserved_cpus == CpuSet([0, 1, 4])


MIB, GIB = 1024**2, 1024**3


def test_memory_is_read_in_bytes_and_in_order() -> None:
    entries = [
        {"numaNode": 2, "memory": "1.5Gi"},
        {"numaNode": 0, "memory": "1Gi", "hugepages_2Mi": "64Mi", "hugepages_1Gi": "2Gi"},
    ]
    pages = [(1, "2Mi", 512), (0, "64Ki", 1), (0, "2Mi", 7)]
    written = {
        "enabled": True,
        "publish": "WithCPUs",
        "hugepages": ["1Gi", "2Mi"],
        "reserved": entries,
        "provision": [{"numaNode": numa_node, "size": size, "pages": count} for numa_node, size, count in pages],
        "cpulessNodes": True,
    }
    assert decode_settings({"memory": written}).memory == MemorySettings(
        enabled=True,
        publish=Publish.WITH_CPUS,
        hugepages=(2 * MIB, GIB),
        reserved=(
            ReservedMemory(0, (("hugepages_1Gi", 2 * GIB), ("hugepages_2Mi", 64 * MIB), ("memory", GIB))),
            ReservedMemory(2, (("memory", GIB + GIB // 2),)),
        ),
        provision=(
            ProvisionedPages(0, 65536, 1),
            ProvisionedPages(0, 2 * MIB, 7),
            ProvisionedPages(1, 2 * MIB, 512),
        ),
        cpuless_nodes=True,
    )


def test_an_empty_list_of_hugepages_is_not_the_same_as_none() -> None:
    assert decode_settings({"memory": {"hugepages": []}}).memory.hugepages == ()
    assert decode_settings({"memory": {}}).memory.hugepages is None


# as operators wrote settings before there was memory
WITHOUT_MEMORY: dict[str, Any] = {
    "mode": "grouped",
    "groupBy": "numanode",
    "reservedCPUs": "",
    "allocation": {"strategy": "packed", "fullCores": False, "preferUncoreCache": True},
    "exposePCIeRoots": False,
    "nodeAllocatable": False,
}


@pytest.mark.parametrize(
    "memory",
    [
        None,
        {},
        {"enabled": False},
        {"enabled": False, "publish": "Devices", "reserved": [], "provision": [], "cpulessNodes": False},
    ],
)
def test_settings_without_memory_are_written_as_before_there_was_memory(memory: dict[str, Any] | None) -> None:
    read = decode_settings({} if memory is None else {"memory": memory})
    assert encode_settings(read) == WITHOUT_MEMORY


@pytest.mark.parametrize(
    "memory",
    [
        {"enabled": True},
        {"publish": "WithCPUs"},
        {"hugepages": []},
        {"hugepages": ["2Mi", "1Gi"]},
        {"reserved": [{"numaNode": 1, "memory": "1Gi"}]},
        {"provision": [{"numaNode": 0, "size": "2Mi", "pages": 512}]},
        {"cpulessNodes": True},
    ],
)
def test_a_field_of_memory_is_written_only_where_it_differs_from_its_default(memory: dict[str, Any]) -> None:
    assert encode_settings(decode_settings({"memory": memory})) == WITHOUT_MEMORY | {"memory": memory}


def newer_memory() -> dict[str, Any]:
    """The second entry of `reserved` reserves only a kind that this version does not know."""
    reserved = [{"numaNode": 0, "memory": "1Gi", "new": 1}, {"numaNode": 1, "far": "2Gi", "new": 2}]
    pages = {"size": "2Mi", "pages": 512}
    provision = [{"numaNode": 0, **pages, "new": 3}, {"numaNode": 1, **pages, "near": 4}]
    return {"enabled": True, "reserved": reserved, "provision": provision, "makeRoom": True}


@pytest.mark.parametrize("memory", [newer_memory(), {"makeRoom": True}], ids=["among others", "alone"])
def test_unknown_fields_of_memory_are_kept(memory: dict[str, Any]) -> None:
    assert encode_settings(decode_settings({"memory": memory})) == WITHOUT_MEMORY | {"memory": memory}


@pytest.mark.parametrize("name", ["reserved", "provision"])
def test_unknown_fields_of_an_entry_stay_with_their_numa_node_in_any_order(name: str) -> None:
    first, second = newer_memory()[name]
    assert encode_settings(decode_settings({"memory": {name: [second, first]}})) == encode_settings(
        decode_settings({"memory": {name: [first, second]}})
    )


def test_unknown_fields_of_memory_are_listed_by_their_paths() -> None:
    assert decode_settings({"memory": newer_memory(), "turbo": 1}).ignored == (
        "settings.memory.makeRoom",
        "settings.memory.provision.near",
        "settings.memory.provision.new",
        "settings.memory.reserved.far",
        "settings.memory.reserved.new",
        "settings.turbo",
    )


def newer_spec() -> dict[str, Any]:
    devices = [{"name": "d", "cpus": 1}, {"name": "e", "cpus": 2, "new": 1}]
    claim = {"uid": "u", "namespace": "n", "name": "c", "devices": devices, "new": {"a": 1}}
    written = encode_spec(decode_spec(a_spec(outstanding=[claim])))
    written["settings"] |= {"mode": "individual", "turbo": [1], "power": {"limit": 5}}
    written["settings"]["allocation"]["new"] = True
    written["config"]["uid"] = "u"
    written["new"] = None
    return written


def test_outstanding_claims_without_memory_are_written_as_before_there_was_memory() -> None:
    devices = (OutstandingDevice("cpudevnuma000", 2), OutstandingDevice("cpudevnuma000", 1))
    written = encode_spec(CpuNodeSpec("c", 1, Settings(), "r", (OutstandingClaim("u", "n", "c", devices),)))
    assert json.dumps(written["outstanding"]) == (
        '[{"uid": "u", "namespace": "n", "name": "c", "devices": '
        '[{"name": "cpudevnuma000", "cpus": 2}, {"name": "cpudevnuma000", "cpus": 1}]}]'
    )


def test_memory_of_outstanding_claims_is_written_beside_their_cpus_and_each_device_has_a_number_of_them() -> None:
    devices = (
        OutstandingDevice("cpudevnuma000", 2, amounts=(("hugepages_2Mi", 2 * MIB), ("memory", GIB))),
        OutstandingDevice("memory-numa001", 0, "dra.memory", (("memory", GIB),)),
    )
    claim = OutstandingClaim("u", "n", "c", devices)
    written = encode_spec(CpuNodeSpec("c", 1, Settings(), "r", (claim,)))
    assert written["outstanding"][0]["devices"] == [
        {"name": "cpudevnuma000", "cpus": 2, "amounts": {"hugepages_2Mi": 2 * MIB, "memory": GIB}},
        {"name": "memory-numa001", "cpus": 0, "driver": "dra.memory", "amounts": {"memory": GIB}},
    ]
    del written["outstanding"][0]["devices"][1]["cpus"]
    assert decode_spec(written).outstanding == (claim,)


def test_unknown_fields_are_kept_at_every_level() -> None:
    read = decode_spec(newer_spec())
    assert read.settings.mode is Mode.INDIVIDUAL
    assert encode_spec(read) == newer_spec()


def test_unknown_settings_are_listed_by_their_paths() -> None:
    ignored = decode_spec(newer_spec()).settings.ignored
    assert ignored == ("settings.allocation.new", "settings.power", "settings.turbo")
    assert Settings().ignored == ()


def test_unknown_fields_of_a_spec_are_not_ignored_settings() -> None:
    assert decode_spec(a_spec(new=1)).settings.ignored == ()


def test_settings_with_unknown_fields_can_be_members_of_a_set() -> None:
    settings = decode_settings({"turbo": [1]})
    assert {settings, decode_settings({"turbo": [1]})} == {settings}
    assert settings != Settings()


def test_later_fields_are_encoded_only_where_they_differ_from_their_defaults() -> None:
    later = {"fullCores": "full_cores", "preferUncoreCache": "prefer_uncore_cache"}
    assert changed_fields(Allocation(), later) == {}
    assert changed_fields(Allocation(full_cores=True), later) == {"fullCores": True}
    assert changed_fields(Allocation(prefer_uncore_cache=False), later) == {"preferUncoreCache": False}


def test_a_word_is_encoded_as_a_plain_text() -> None:
    publish = encode_settings(Settings(memory=MemorySettings(publish=Publish.WITH_CPUS)))["memory"]["publish"]
    assert publish == "WithCPUs"
    assert type(publish) is str


def test_an_unknown_field_becomes_a_later_one_without_a_change_of_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that does not know a field, and one that does, write it in the same place."""
    former = encode_settings(decode_settings({"allocation": {"later": 3}, "later": 4}))
    default = encode_settings(Settings())

    @dataclasses.dataclass(frozen=True)
    class NextAllocation(Allocation):
        later: int = 0

    @dataclasses.dataclass(frozen=True)
    class NextSettings(Settings):
        later: int = 0

    for names in ("_LATER_SETTINGS", "_LATER_ALLOCATION"):
        monkeypatch.setattr(f"dracpu_api.settings.{names}", {"later": "later"})
    assert encode_settings(NextSettings(allocation=NextAllocation(later=3), later=4)) == former
    assert encode_settings(NextSettings(allocation=NextAllocation())) == default


def reserving(*entries: dict[str, Any]) -> dict[str, Any]:
    """A spec that reserves these amounts, all on one NUMA node."""
    return a_spec(settings={"memory": {"reserved": [{"numaNode": 0, **entry} for entry in entries]}})


def test_group_by_distinguishes_representations_in_grouped_mode_only() -> None:
    by_socket, by_machine = GroupBy.SOCKET, GroupBy.MACHINE
    assert Settings(group_by=by_socket).representation != Settings(group_by=by_machine).representation
    individual = Mode.INDIVIDUAL
    assert Settings(individual, by_socket).representation == Settings(individual, by_machine).representation


@pytest.mark.parametrize(
    ("settings", "published"),
    [
        (Settings(), None),
        (Settings(memory=MemorySettings(publish=Publish.WITH_CPUS)), None),
        (Settings(memory=MemorySettings(enabled=True)), Publish.DEVICES),
        (Settings(Mode.INDIVIDUAL, memory=MemorySettings(enabled=True)), Publish.DEVICES),
        (Settings(memory=MemorySettings(enabled=True, publish=Publish.WITH_CPUS)), Publish.WITH_CPUS),
        (Settings(Mode.INDIVIDUAL, memory=MemorySettings(True, Publish.WITH_CPUS)), Publish.DEVICES),
        (Settings(group_by=GroupBy.SOCKET, memory=MemorySettings(True, Publish.WITH_CPUS)), Publish.DEVICES),
    ],
)
def test_memory_is_published_with_cpus_only_where_a_device_is_a_numa_node(
    settings: Settings, published: Publish | None
) -> None:
    assert settings.memory_representation is published


def provisioning(*entries: dict[str, Any]) -> dict[str, Any]:
    """A spec that provisions these pages."""
    pages = {"numaNode": 0, "size": "2Mi", "pages": 512}
    return a_spec(settings={"memory": {"provision": [{**pages, **entry} for entry in entries]}})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (None, "spec must be an object, got nothing"),
        ([], "spec must be an object"),
        ({}, "spec.config must be an object, got nothing"),
        (a_spec(settings=None), "spec.settings must be an object, got nothing"),
        (a_spec(revision=""), "spec.revision must be a non-empty text"),
        (a_spec(config={"name": "default"}), "spec.config.generation must be a whole number, got nothing"),
        (a_spec(config={"name": "default", "generation": True}), "spec.config.generation must be a whole number"),
        (a_spec(settings={"mode": "numa"}), "spec.settings.mode must be one of grouped, individual"),
        (a_spec(settings={"mode": ["grouped"]}), "spec.settings.mode must be one of grouped, individual"),
        (a_spec(settings={"reservedCPUs": "3-0"}), 'spec.settings.reservedCPUs: "3-0" is reversed: write "0-3"'),
        (a_spec(settings={"reservedCPUs": 3}), 'spec.settings.reservedCPUs must be a cpuset like "0-3,8", got 3'),
        (a_spec(settings={"allocation": []}), "spec.settings.allocation must be an object"),
        (a_spec(settings={"allocation": {"fullCores": 1}}), "spec.settings.allocation.fullCores must be true or false"),
        (a_spec(settings={"memory": True}), "spec.settings.memory must be an object, got True"),
        (a_spec(settings={"memory": {"enabled": "yes"}}), "spec.settings.memory.enabled must be true or false"),
        (a_spec(settings={"memory": {"hugepages": "2Mi"}}), "spec.settings.memory.hugepages must be a list of sizes"),
        (a_spec(settings={"memory": {"hugepages": [2]}}), "powers of two from 16Ki to 16Gi, got [2]"),
        (a_spec(settings={"memory": {"hugepages": ["2Mi", "3Mi"]}}), "powers of two from 16Ki to 16Gi, got ['2Mi',"),
        (a_spec(settings={"memory": {"hugepages": [[]]}}), "powers of two from 16Ki to 16Gi, got [[]]"),
        (a_spec(settings={"memory": {"reserved": {}}}), "spec.settings.memory.reserved must be a list, got {}"),
        (
            a_spec(settings={"memory": {"reserved": [{"memory": "1Gi"}]}}),
            "spec.settings.memory.reserved[0].numaNode must be a whole number, got nothing",
        ),
        (reserving({"memory": "1Gi"}, {"memory": "1Gi"}), "must be a list that names each NUMA node once"),
        (a_spec(settings={"memory": {"reserved": [{"numaNode": -1}]}}), "spec.settings.memory.reserved must be"),
        (reserving({"memory": 5}), "spec.settings.memory.reserved[0].memory must be an amount of memory"),
        (reserving({"memory": "much"}), "like \"512Mi\", a whole number of bytes above 0, got 'much'"),
        (reserving({"memory": "0"}), "spec.settings.memory.reserved[0].memory must be an amount of memory"),
        (reserving({"memory": "-1Gi"}), "spec.settings.memory.reserved[0].memory must be an amount of memory"),
        (reserving({"memory": "0.3Ki"}), "spec.settings.memory.reserved[0].memory must be an amount of memory"),
        (reserving({"memory": "9Ei"}), "spec.settings.memory.reserved[0].memory must be an amount of memory"),
        (reserving({"hugepages_2Mi": "2MB"}), "spec.settings.memory.reserved[0].hugepages_2Mi must be an amount"),
        (a_spec(settings={"memory": {"publish": "Both"}}), "settings.memory.publish must be one of Devices, WithCPUs"),
        (provisioning({"size": "3Mi"}), "spec.settings.memory.provision[0].size must be a size like"),
        (provisioning({"size": 2097152}), "a power of two from 16Ki to 16Gi, got 2097152"),
        (provisioning({"pages": "512"}), "spec.settings.memory.provision[0].pages must be a whole number, got '512'"),
        (provisioning({"pages": 0}), "spec.settings.memory.provision must be a list of 1 or more pages"),
        (provisioning({"numaNode": -1}), "spec.settings.memory.provision must be a list of 1 or more pages"),
        (provisioning({}, {"numaNode": 1}, {"pages": 5}), "must be a list that names each NUMA node and size once"),
        (a_spec(outstanding={}), "spec.outstanding must be a list"),
        (a_spec(outstanding=[{}]), "spec.outstanding[0].uid must be a non-empty text"),
        (
            a_spec(outstanding=[{"uid": "u", "namespace": "n", "name": "c", "devices": [{"name": "d", "cpus": "2"}]}]),
            "spec.outstanding[0].devices[0].cpus must be a whole number, got '2'",
        ),
        (
            a_spec(outstanding=[{"uid": "u", "namespace": "n", "name": "c", "devices": [{"name": "d", "amounts": 2}]}]),
            "spec.outstanding[0].devices[0].amounts must be an object, got 2",
        ),
    ],
)
def test_a_spec_that_cannot_be_decoded_is_refused_with_the_name_of_the_field(spec: object, message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        decode_spec(spec)
    assert message in str(refused.value)
