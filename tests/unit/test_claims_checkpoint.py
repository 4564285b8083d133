"""A checkpoint of a newer agent, with unknown fields and kinds: no claim is lost, and no CPU is given away.

"Random checkpoints" are those of a node with claims, changed as a newer agent could have written them.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from newer_agent import body_of, cdi_record, checkpoint, rewritten
from nodes import NODE, machine, node, outstanding, request, share, spec, uid

from dracpu_agent.cdi.files import CdiDirectory
from dracpu_agent.cdi.spec import decode as decode_file
from dracpu_agent.checkpoint.statefile import Loaded
from dracpu_agent.claims.checkpoint import CheckpointError, NewerCheckpointError, decode, encode
from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.errors import ClaimError
from dracpu_agent.node import NodeState
from dracpu_agent.work.recovery import recover
from dracpu_api.cpuset import CpuSet, union

Json = dict[str, Any]

DEVICES = ("cpudevnuma000", "cpudevnuma001")
UNKNOWN = st.dictionaries(
    st.sampled_from(["futureField", "driver", "tier"]),
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
        lambda values: st.lists(values, max_size=2) | st.dictionaries(st.text(max_size=3), values, max_size=2),
        max_leaves=4,
    ),
    min_size=1,
)


def a_new_kind(record: Json) -> None:
    record["grants"][0]["kind"] = "cpu-by-weight"


def another_name(record: Json) -> None:
    record["parts"] = record.pop("grants")


def a_missing_field(record: Json) -> None:
    del record["digest"]


def another_type(record: Json) -> None:
    record["consumers"] = {"pods": record["consumers"]}


def texts_become_lists(record: Json) -> None:
    for grant in record["grants"]:
        grant["cpus"], grant["cpuset"] = [grant["cpus"]], grant["cpus"]


CHANGES: tuple[Callable[[Json], None], ...] = (
    a_new_kind,
    another_name,
    a_missing_field,
    another_type,
    texts_become_lists,
)


@st.composite
def newer(draw: st.DrawFn) -> tuple[bytes, dict[str, bytes], dict[str, CpuSet], frozenset[str]]:
    """A checkpoint, CDI files by claim UID, the CPUs of each claim, and which claims this agent cannot decode."""
    state = node(machine(sockets=2, cores=6), outstanding=[outstanding(9, (DEVICES[0], 1))])
    with tempfile.TemporaryDirectory() as directory:
        cdi = CdiDirectory(Path(directory), CpuClaim)
        for number in range(1, draw(st.integers(1, 4)) + 1):
            parts = draw(st.lists(st.sampled_from(DEVICES), min_size=1, max_size=2))
            results = [share(device, 1, f"part-{index}", index) for index, device in enumerate(parts)]
            cdi.write(state.claims.grant(request(number, *results, pods=["pod"])).claim)
        files = {number: path.read_bytes() for number, path in by_uid(Path(directory)).items()}
    held = {number: claim.cpus for number, claim in state.claims.items()}
    changes = {number: draw(st.none() | st.sampled_from(CHANGES)) for number in held}

    def change_record(record: Json) -> None:
        if change := changes[record["uid"]]:
            change(record)
        if draw(st.booleans()):
            record.update(draw(UNKNOWN))
        for grant in record.get("grants", ()):
            grant.update(draw(UNKNOWN))

    def change_all(body: Json) -> None:
        for record in body["claims"]:
            change_record(record)
        body.update(draw(UNKNOWN))
        for part in (body["spec"], body["spec"]["settings"], body["spec"]["outstanding"][0]):
            part.update(draw(UNKNOWN))
        if draw(st.booleans()):
            body["spec"]["settings"]["mode"] = "by-weight"
        if draw(st.booleans()):
            body["earmarks"][uid(9)] = {"cpudevweight": {"weight": 3}}
        body["claims"] = draw(st.permutations(body["claims"]))

    data = rewritten(encode(state.checkpoint()), change_all)
    kept = {number: content for number, content in files.items() if draw(st.booleans())}
    changed = {number: cdi_record(content, change_record) for number, content in kept.items() if draw(st.booleans())}
    return data, kept | changed, held, frozenset(number for number, change in changes.items() if change)


def by_uid(directory: Path) -> dict[str, Path]:
    return {path.stem.partition("_")[2]: path for path in directory.iterdir()}


def as_set(claims: list[Json]) -> set[str]:
    return {json.dumps(claim, sort_keys=True) for claim in claims}


@settings(max_examples=50)
@given(newer())
def test_a_newer_checkpoint_is_written_as_it_was_read(written):
    data, *_ = written
    before, after = body_of(data), body_of(encode(decode(data)))
    assert as_set(before.pop("claims")) == as_set(after.pop("claims"))
    assert before == after


@settings(max_examples=50)
@given(newer())
def test_no_claim_of_a_newer_checkpoint_is_lost_and_none_of_its_cpus_is_given_away(written):
    data, files, held, frozen = written
    with tempfile.TemporaryDirectory() as directory:
        for number, content in files.items():
            (Path(directory) / f"dra.k8s.io-cpu_{number}.json").write_bytes(content)
        state = NodeState(NODE, machine(sockets=2, cores=6))
        recover(state, Loaded(decode(data)), CdiDirectory(Path(directory), CpuClaim))
        assert {name: path.read_bytes() for name, path in by_uid(Path(directory)).items()} == files

    assert {number: claim.cpus for number, claim in state.claims.items()} == held
    assert {number for number, claim in state.claims.items() if claim.frozen} == frozen
    before, after = body_of(data), body_of(encode(state.checkpoint()))
    assert as_set(before["claims"]) == as_set(after["claims"])
    assert after["spec"] == before["spec"]

    state.configure(spec())
    state.containers.synchronize([])
    for number in range(10, 36):  # more than fit
        try:
            cpus = state.claims.grant(request(number, share(DEVICES[number % 2], 1))).claim.cpus
        except ClaimError:
            continue
        assert cpus.isdisjoint(union(held.values()))

    for number in held:
        assert state.claims.release(number)
    assert state.division.exclusive.isdisjoint(union(held.values()))
    assert not frozen & {record.get("uid") for record in body_of(encode(state.checkpoint()))["claims"]}


FIELDS = st.sampled_from(
    [
        "version",
        "node",
        "spec",
        "claims",
        "former",
        "earmarks",
        "withheld",
        "uid",
        "grants",
        "kind",
        "cpus",
        "consumers",
        "annotations",
        "devices",
        "name",
        "containerEdits",
        "env",
        "cdiVersion",
        "dra.cpu/claim",
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.floats() | st.text(max_size=2) | st.just("DRA_CPUSET_u=1"),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(FIELDS, values, max_size=6),
    max_leaves=12,
)


@given(st.fixed_dictionaries({"version": st.just(1), "node": st.just(NODE), "claims": ANYTHING}), ANYTHING)
def test_any_content_with_a_valid_checksum_is_read_or_refused(known, others):
    body = (others if isinstance(others, dict) else {}) | known
    try:
        decoded = decode(checkpoint(body))
    except CheckpointError:
        assert not isinstance(body["claims"], list)
        return
    assert len(decoded.claims) == len(body["claims"])
    state = NodeState(NODE, machine())
    with tempfile.TemporaryDirectory() as directory:
        recover(state, Loaded(decoded), CdiDirectory(Path(directory), CpuClaim))
    assert len(body_of(encode(state.checkpoint()))["claims"]) == sum(entry is not None for entry in body["claims"])


@given(ANYTHING)
def test_any_content_of_a_cdi_file_gives_a_claim(content):
    spec = content | {"kind": "dra.k8s.io/cpu", "cdiVersion": "0.6.0"} if isinstance(content, dict) else content
    assert decode_file(CpuClaim, json.dumps(spec).encode(), uid(1)).ref.uid == uid(1)


@pytest.mark.parametrize("entry", [7, "text", [], {}, {"uid": ""}, {"uid": 3, "cpus": "2-3"}])
def test_an_entry_that_names_no_claim_is_kept_as_it_is(entry):
    state = node()
    state.claims.grant(request(1, share(DEVICES[1], 2)))
    data = rewritten(encode(state.checkpoint()), lambda body: body["claims"].append(entry))
    assert entry in body_of(encode(decode(data)))["claims"]
    assert [claim.ref.uid for claim in decode(data).claims if not claim.frozen] == [uid(1)]


def test_another_entry_of_a_known_claim_is_kept_beside_it():
    state = node()
    state.claims.grant(request(1, share(DEVICES[1], 2)))
    memory = {"driver": "dra.memory", "uid": uid(1), "grants": [{"kind": "memory", "bytes": 4096}]}
    data = rewritten(encode(state.checkpoint()), lambda body: body["claims"].insert(0, memory))
    decoded = decode(data)
    assert [(claim.ref.uid, bool(claim.frozen)) for claim in decoded.claims] == [(uid(1), False), (f"{uid(1)}#0", True)]
    assert memory in body_of(encode(decoded))["claims"]


def test_settings_from_the_api_server_replace_those_that_were_kept():
    state = node()
    data = rewritten(encode(state.checkpoint()), lambda body: body["spec"]["settings"].update(mode="by-weight"))
    revived = NodeState(NODE, machine())
    revived.resume(decode(data))
    assert revived.spec is None
    assert body_of(encode(revived.checkpoint()))["spec"]["settings"]["mode"] == "by-weight"
    revived.deconfigure()
    assert body_of(encode(revived.checkpoint()))["spec"] is None
    revived.resume(decode(data))
    revived.configure(spec())
    assert body_of(encode(revived.checkpoint()))["spec"]["settings"]["mode"] == "grouped"


def test_a_newer_version_of_the_format_is_distinguished_from_damage():
    data = encode(node().checkpoint())
    with pytest.raises(NewerCheckpointError, match="version 2"):
        decode(rewritten(data, lambda body: body.update(version=2)))
    for damaged in (
        data[:-9],
        data.replace(b"grouped", b"grOuped"),
        b"[" * 100_000,
        checkpoint({}),
        rewritten(data, lambda body: body.update(version=0)),
        rewritten(data, lambda body: body.update(claims={"a": 1})),
    ):
        with pytest.raises(CheckpointError) as error:
            decode(damaged)
        assert not isinstance(error.value, NewerCheckpointError)
