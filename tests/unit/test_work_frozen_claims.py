"""Claims that a newer agent has prepared, and whose records this agent cannot decode, over whole transactions."""

from pathlib import Path

import pytest
from newer_agent import cdi_record, rewritten
from nodes import claim_object, container, ref, share, uid
from transacting import Agent, Claims, files

from dracpu_agent.checkpoint.statefile import load
from dracpu_agent.errors import ClaimError
from dracpu_agent.work.recovery import recover

NUMA1 = "cpudevnuma001"


def a_newer_agent_writes(root: Path, number: int) -> None:
    """Changes a claim's record in the checkpoint and in its CDI file into one that this agent cannot decode."""

    def change(record):
        record["grants"][0]["kind"] = "future"

    def change_entry(body):
        change(next(record for record in body["claims"] if record["uid"] == uid(number)))

    checkpoint, cdi = root / "state" / "checkpoint.json", root / "cdi" / f"dra.k8s.io-cpu_{uid(number)}.json"
    checkpoint.write_bytes(rewritten(checkpoint.read_bytes(), change_entry))
    cdi.write_bytes(cdi_record(cdi.read_bytes(), change))


async def test_a_frozen_claim_is_not_prepared_and_its_end_gives_back_everything(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 4)]), claim_object(2, [share(NUMA1, 4)]))
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
    a_newer_agent_writes(tmp_path, 1)
    async with Agent(tmp_path, claims).alive() as agent:
        for _ in range(2):
            with pytest.raises(ClaimError, match=r"default/claim-1 .* newer agent.* \(a grant has the kind future.*\)"):
                await agent.transactions.prepare(ref(1))
            claims.away = True
        claims.away = False
        with pytest.raises(ClaimError):
            await agent.transactions.prepare(ref(2))
        assert len(files(tmp_path)) == 1
        await agent.transactions.unprepare(ref(1))
        assert files(tmp_path) == []
        await agent.transactions.prepare(ref(2))
    saved = load(tmp_path / "state").checkpoint
    assert saved is not None
    assert [claim.ref for claim in saved.claims] == [ref(2)]


async def test_a_frozen_claim_that_ends_while_its_container_runs_lingers_over_a_restart(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 4)]), claim_object(2, [share(NUMA1, 1)]))
    pinned = container("c", f"claim-{uid(1)}")
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
    a_newer_agent_writes(tmp_path, 1)
    async with Agent(tmp_path, claims).alive([pinned]) as agent:
        await agent.transactions.unprepare(ref(1))
        assert files(tmp_path) == []
    async with Agent(tmp_path, claims).alive([pinned]) as agent:
        with pytest.raises(ClaimError):
            await agent.transactions.prepare(ref(2))
        agent.node.containers.stopped("c")
        await agent.transactions.prepare(ref(2))


async def test_a_checkpoint_in_a_newer_format_is_set_aside_and_the_claims_come_from_their_cdi_files(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 2)]), claim_object(2, [share(NUMA1, 2)]))
    state = tmp_path / "state"
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        await agent.transactions.prepare(ref(2))
        held = {claim.ref: claim.cpus for claim in agent.node.claims.values()}
    newer = rewritten((state / "checkpoint.json").read_bytes(), lambda body: body.update(version=2, claims="future"))
    for name in ("checkpoint.json", "checkpoint.previous.json"):
        (state / name).write_bytes(newer)
    a_record = tmp_path / "cdi" / f"dra.k8s.io-cpu_{uid(2)}.json"
    a_record.write_bytes(cdi_record(a_record.read_bytes(), lambda record: record["grants"][0].update(kind="future")))
    revived = Agent(tmp_path, claims)
    loaded = revived.state_file.load()
    assert (loaded.checkpoint, "version 2" in loaded.damage) == (None, True)
    recover(revived.node, loaded, revived.cdi)
    assert {claim.ref: claim.cpus for claim in revived.node.claims.values()} == held
    assert [claim.ref for claim in revived.node.claims.values() if claim.frozen] == [ref(2)]
    assert (state / "checkpoint.newer.json").read_bytes() == newer
    assert not (state / "checkpoint.json").exists()
