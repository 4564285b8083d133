from nodes import NODE, machine, node, ref, request, share, spec, uid

from dracpu_agent.cdi.files import CdiDirectory
from dracpu_agent.checkpoint.statefile import Loaded
from dracpu_agent.claims.checkpoint import Checkpoint
from dracpu_agent.node import NodeState
from dracpu_agent.work.recovery import recover

NUMA1 = "cpudevnuma001"


def prepared(cdi, *numbers):
    """A node with claims of one CPU and their CDI files."""
    state = node()
    for number in numbers:
        cdi.write(state.grant(request(number, share(NUMA1, 1))).claim)
    return state


def test_a_sound_checkpoint_is_restored_and_cdi_files_of_other_claims_are_deleted(tmp_path):
    cdi = CdiDirectory(tmp_path)
    state = prepared(cdi, 1, 2)
    state.release(uid(2))
    revived = NodeState(NODE, machine())
    assert recover(revived, Loaded(state.checkpoint()), cdi) == ""
    assert revived.claims == state.claims
    assert cdi.uids() == {uid(1)}


def test_claims_that_a_damaged_checkpoint_lacks_come_from_their_cdi_files(tmp_path):
    cdi = CdiDirectory(tmp_path)
    old = prepared(cdi, 1).checkpoint()
    state = prepared(cdi, 1, 2)
    revived = NodeState(NODE, machine())
    assert recover(revived, Loaded(old, "checksum"), cdi) == "checksum"
    assert revived.claims == state.claims


def test_without_any_checkpoint_the_claims_come_from_their_cdi_files(tmp_path):
    cdi = CdiDirectory(tmp_path)
    state = prepared(cdi, 1, 2)
    revived = NodeState(NODE, machine())
    recover(revived, Loaded(None), cdi)
    assert revived.claims == state.claims


def test_cdi_files_that_contradict_each_other_never_grant_a_cpu_twice(tmp_path):
    cdi = CdiDirectory(tmp_path)
    prepared(cdi, 1)
    prepared(cdi, 2)  # another node's ledger chose the same CPU
    revived = NodeState(NODE, machine())
    recover(revived, Loaded(None), cdi)
    assert [claim.ref for claim in revived.claims.values()] == [ref(1)]


def test_files_of_other_programs_are_not_touched(tmp_path):
    (tmp_path / "vendor.json").write_text("{}")
    (tmp_path / f"dra.k8s.io-cpu_{uid(9)}.json").write_text("not a record")
    cdi = CdiDirectory(tmp_path)
    revived = NodeState(NODE, machine())
    recover(revived, Loaded(None), cdi)
    assert revived.claims == {}
    assert (tmp_path / "vendor.json").exists()


def test_the_checkpoint_of_another_node_is_rejected(tmp_path):
    cdi = CdiDirectory(tmp_path)
    state = prepared(cdi, 1)
    foreign = Checkpoint("other", spec(), tuple(state.claims.values()))
    revived = NodeState(NODE, machine())
    assert "node other" in recover(revived, Loaded(foreign), CdiDirectory(tmp_path / "empty"))
    assert revived.claims == {}


def test_claims_are_kept_when_the_settings_do_not_fit_the_machine_any_more(tmp_path):
    cdi = CdiDirectory(tmp_path)
    state = node(topology=machine(sockets=2, cores=4), reserved="15")
    state.grant(request(1, share(NUMA1, 1)))
    smaller = NodeState(NODE, machine(sockets=2, cores=3))
    recover(smaller, Loaded(state.checkpoint()), cdi)
    assert set(smaller.claims) == {uid(1)}
    assert smaller.spec is None
