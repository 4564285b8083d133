import pytest
from newer_agent import body_of, cdi_record, rewritten
from nodes import NODE, SAFE_RUNTIME, container, machine, node, ref, request, share, spec, uid
from nodes import cdi as claim_device

from dracpu_agent.cdi.files import CdiDirectory
from dracpu_agent.checkpoint.statefile import Loaded
from dracpu_agent.claims.checkpoint import Checkpoint, decode, encode
from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.node import NodeState
from dracpu_agent.work.recovery import recover

NUMA1 = "cpudevnuma001"


def prepared(cdi, *numbers):
    """A node with claims of one CPU and their CDI files."""
    state = node()
    for number in numbers:
        cdi.write(state.claims.grant(request(number, share(NUMA1, 1))).claim)
    return state


def test_a_sound_checkpoint_is_restored_and_cdi_files_of_other_claims_are_deleted(tmp_path):
    cdi = CdiDirectory(tmp_path, CpuClaim)
    state = prepared(cdi, 1, 2)
    state.claims.release(uid(2))
    revived = NodeState(NODE, machine())
    assert recover(revived, Loaded(state.checkpoint()), cdi) == ""
    assert revived.claims == state.claims
    assert cdi.uids() == {uid(1)}


def test_claims_that_a_damaged_checkpoint_lacks_come_from_their_cdi_files(tmp_path):
    cdi = CdiDirectory(tmp_path, CpuClaim)
    old = prepared(cdi, 1).checkpoint()
    state = prepared(cdi, 1, 2)
    revived = NodeState(NODE, machine())
    assert recover(revived, Loaded(old, "checksum"), cdi) == "checksum"
    assert revived.claims == state.claims


def test_without_any_checkpoint_the_claims_come_from_their_cdi_files(tmp_path):
    cdi = CdiDirectory(tmp_path, CpuClaim)
    state = prepared(cdi, 1, 2)
    revived = NodeState(NODE, machine())
    recover(revived, Loaded(None), cdi)
    assert revived.claims == state.claims


def test_cdi_files_that_contradict_each_other_never_grant_a_cpu_twice(tmp_path):
    cdi = CdiDirectory(tmp_path, CpuClaim)
    prepared(cdi, 1)
    prepared(cdi, 2)  # another node's ledger chose the same CPU
    revived = NodeState(NODE, machine())
    recover(revived, Loaded(None), cdi)
    assert [claim.ref for claim in revived.claims.values()] == [ref(1)]


def test_files_of_other_programs_are_not_touched(tmp_path):
    (tmp_path / "vendor.json").write_text("{}")
    revived = NodeState(NODE, machine())
    recover(revived, Loaded(None), CdiDirectory(tmp_path, CpuClaim))
    assert revived.claims == {}
    assert (tmp_path / "vendor.json").exists()


@pytest.mark.parametrize("checkpoint", [None, node().checkpoint()])
@pytest.mark.parametrize("content", [b"", b"not JSON", b"{}", b"[1]", b"[" * 100_000])
def test_a_cdi_file_that_cannot_be_read_stays_and_its_claim_is_frozen(tmp_path, content, checkpoint):
    path = tmp_path / f"dra.k8s.io-cpu_{uid(9)}.json"
    path.write_bytes(content)
    revived = NodeState(NODE, machine())
    recover(revived, Loaded(checkpoint), CdiDirectory(tmp_path, CpuClaim))
    assert path.read_bytes() == content
    assert [str(claim.ref) for claim in revived.claims.values() if claim.frozen] == [f"UID {uid(9)}"]


def test_a_claim_known_only_from_a_cdi_file_of_a_newer_agent_gets_into_the_checkpoint_as_it_is(tmp_path):
    cdi = CdiDirectory(tmp_path, CpuClaim)
    state = prepared(cdi, 1)
    (path,) = tmp_path.iterdir()
    path.write_bytes(cdi_record(path.read_bytes(), lambda record: record["grants"][0].update(kind="future")))
    revived = NodeState(NODE, machine())
    recover(revived, Loaded(None, "damaged"), cdi)
    assert revived.division.exclusive == state.division.exclusive
    (entry,) = body_of(encode(revived.checkpoint()))["claims"]
    assert entry["grants"][0]["kind"] == "future"


def test_containers_of_a_frozen_claim_stay_on_its_cpus_and_can_be_created_again(tmp_path):
    cdi = CdiDirectory(tmp_path, CpuClaim)
    state = prepared(cdi, 1)
    held = state.claims[uid(1)].cpus
    newer = rewritten(encode(state.checkpoint()), lambda body: body["claims"][0]["grants"][0].update(kind="future"))
    revived = NodeState(NODE, machine())
    recover(revived, Loaded(decode(newer)), cdi)
    revived.containers.connected(SAFE_RUNTIME)
    pinned, shared = container("pinned", claim_device(1), cpus=held), container("shared", cpus=held)
    updates, unproven = revived.containers.synchronize([pinned, shared])
    assert unproven == ()
    assert [update.container_id for update in updates] == ["shared"]
    revived.containers.ended("pinned")
    env = f"DRA_CPUSET_{uid(1)}={held}"
    assert revived.containers.create(container("restarted", claim_device(1), env=[env])).cpus == held


def test_claims_of_a_sound_checkpoint_that_name_the_same_cpu_are_both_kept(tmp_path):
    cdi = CdiDirectory(tmp_path, CpuClaim)
    state = prepared(cdi, 1, 2)

    def share_cpus(body):
        first, second = body["claims"]
        second["grants"][0]["cpus"] = first["grants"][0]["cpus"]

    newer = rewritten(encode(state.checkpoint()), share_cpus)
    revived = NodeState(NODE, machine())
    recover(revived, Loaded(decode(newer)), cdi)
    assert [(claim.ref, bool(claim.frozen)) for claim in revived.claims.values()] == [(ref(1), False), (ref(2), True)]
    assert body_of(encode(revived.checkpoint()))["claims"] == body_of(newer)["claims"]
    cpus = revived.claims[uid(1)].cpus
    assert revived.claims.release(uid(2)) is False  # the runtime is not synchronized
    revived.containers.synchronize([])
    assert revived.division.exclusive == cpus


def test_the_checkpoint_of_another_node_is_rejected(tmp_path):
    cdi = CdiDirectory(tmp_path, CpuClaim)
    state = prepared(cdi, 1)
    foreign = Checkpoint("other", spec(), tuple(state.claims.values()))
    revived = NodeState(NODE, machine())
    assert "node other" in recover(revived, Loaded(foreign), CdiDirectory(tmp_path / "empty", CpuClaim))
    assert revived.claims == {}


def test_claims_are_kept_when_the_settings_do_not_fit_the_machine_any_more(tmp_path):
    cdi = CdiDirectory(tmp_path, CpuClaim)
    state = node(topology=machine(sockets=2, cores=4), reserved="15")
    state.claims.grant(request(1, share(NUMA1, 1)))
    smaller = NodeState(NODE, machine(sockets=2, cores=3))
    recover(smaller, Loaded(state.checkpoint()), cdi)
    assert set(smaller.claims) == {uid(1)}
    assert smaller.spec is None
