"""Prepare and Unprepare against real files; only the API server is played, by a dictionary."""

import asyncio
import shutil
from pathlib import Path

import pytest
from nodes import NODE, claim_object, container, ref, share, spec, uid, whole
from transacting import Agent, Claims, Silent, files

from dracpu_agent.cdi.files import CdiDirectory
from dracpu_agent.checkpoint.statefile import StateFile, load
from dracpu_agent.claims.audit import Finding
from dracpu_agent.claims.checkpoint import decode
from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.errors import ClaimError, NotReadyError
from dracpu_agent.work.transactions import ClaimTransactions

NUMA1 = "cpudevnuma001"


async def test_a_prepared_claim_is_answered_with_its_device_and_has_its_file(tmp_path):
    async with Agent(tmp_path, Claims(claim_object(1, [share(NUMA1, 2)]))).alive() as agent:
        (device,) = await agent.transactions.prepare(ref(1))
        assert device.cdi_ids == (f"dra.k8s.io/cpu=claim-{uid(1)}",)
        assert (device.requests, device.pool, device.device, device.share_id) == (("main",), NODE, NUMA1, uid(9000))
        assert files(tmp_path) == [f"dra.k8s.io-cpu_{uid(1)}.json"]
        text = (tmp_path / "cdi" / files(tmp_path)[0]).read_text()
        assert f"DRA_CPUSET_{uid(1)}={agent.node.claims[uid(1)].cpus}" in text


async def test_each_requests_id_stands_on_its_first_device_only(tmp_path):
    results = [share(NUMA1, 1, "a"), share("cpudevnuma000", 1, "b-c", 1), whole(3, "b-c")]
    async with Agent(tmp_path, Claims(claim_object(1, results))).alive() as agent:
        devices = await agent.transactions.prepare(ref(1))
    prefix = f"dra.k8s.io/cpu=claim-{uid(1)}"
    assert [device.cdi_ids for device in devices] == [(f"{prefix}-a",), (f"{prefix}-b-c",), ()]
    assert f"DRA_CPUSET_{uid(1)}_b_c=" in (tmp_path / "cdi" / files(tmp_path)[0]).read_text()


async def test_a_restarted_agent_answers_the_same_cpus_and_rewrites_a_lost_file(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 2)]), claim_object(2, [share(NUMA1, 2)]))
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        before = agent.node.claims[uid(1)].cpus
    (tmp_path / "cdi" / files(tmp_path)[0]).unlink()  # a reboot clears /var/run
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(2))
        await agent.transactions.prepare(ref(1))
        assert agent.node.claims[uid(1)].cpus == before
        assert agent.node.claims[uid(2)].cpus.isdisjoint(before)
        assert len(files(tmp_path)) == 2


async def test_an_unprepared_claim_leaves_nothing_behind_also_after_a_restart(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 2)]))
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        await agent.transactions.unprepare(ref(1))
        assert files(tmp_path) == []
    async with Agent(tmp_path, claims).alive() as agent:
        assert agent.node.claims == {}


async def test_an_unknown_claim_is_unprepared_without_an_error(tmp_path):
    async with Agent(tmp_path, Claims()).alive() as agent:
        await agent.transactions.unprepare(ref(7))


async def test_a_full_disk_does_not_prevent_that_an_unknown_claim_is_unprepared(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 2)]), claim_object(2, [share(NUMA1, 2)]))
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        await agent.transactions.prepare(ref(2))
        await agent.transactions.unprepare(ref(2))
    async with Agent(tmp_path, claims).alive() as agent:
        (tmp_path / "state" / ".checkpoint.json").mkdir()  # the next write fails
        await agent.transactions.unprepare(ref(7))
        await agent.transactions.unprepare(ref(2))


async def test_a_claim_that_the_disk_still_contains_is_unprepared_only_when_the_disk_can_be_written(tmp_path):
    async with Agent(tmp_path, Claims(claim_object(1, [share(NUMA1, 2)]))).alive() as agent:
        await agent.transactions.prepare(ref(1))
        blocker = tmp_path / "state" / ".checkpoint.json"
        blocker.mkdir()
        for _ in range(2):
            with pytest.raises(NotReadyError, match="cannot write the checkpoint"):
                await agent.transactions.unprepare(ref(1))
        blocker.rmdir()
        await agent.transactions.unprepare(ref(1))
    saved = load(tmp_path / "state").checkpoint
    assert saved is not None
    assert saved.claims == ()


async def test_without_the_api_server_a_known_claim_is_answered_and_an_unknown_one_refused(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 2)]), claim_object(2, [share(NUMA1, 2)]))
    async with Agent(tmp_path, claims).alive() as agent:
        first = await agent.transactions.prepare(ref(1))
        claims.away = True
        assert await agent.transactions.prepare(ref(1)) == first
        with pytest.raises(NotReadyError, match="does not answer"):
            await agent.transactions.prepare(ref(2))


async def test_a_cdi_file_that_cannot_be_written_leaks_no_cpu_and_the_retry_succeeds(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 4)]), claim_object(2, [share(NUMA1, 4)]))
    async with Agent(tmp_path, claims).alive() as agent:
        (tmp_path / "cdi").write_text("a file where the directory should be")
        with pytest.raises(ClaimError, match="cannot write the CDI file"):
            await agent.transactions.prepare(ref(1))
        assert agent.node.claims == {}
        (tmp_path / "cdi").unlink()
        await agent.transactions.prepare(ref(2))


async def test_a_cdi_file_that_cannot_be_deleted_keeps_the_cpus(tmp_path):
    async with Agent(tmp_path, Claims(claim_object(1, [share(NUMA1, 4)]))).alive() as agent:
        await agent.transactions.prepare(ref(1))
        path = tmp_path / "cdi" / files(tmp_path)[0]
        path.unlink()
        path.mkdir()
        with pytest.raises(ClaimError, match="cannot delete the CDI file"):
            await agent.transactions.unprepare(ref(1))
        assert uid(1) in agent.node.claims
        path.rmdir()
        await agent.transactions.unprepare(ref(1))
        assert agent.node.claims == {}


async def test_while_the_checkpoint_cannot_be_written_no_claim_is_prepared(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 4)]), claim_object(2, [share(NUMA1, 4)]))
    async with Agent(tmp_path, claims).alive() as agent:
        blocker = tmp_path / "state" / ".checkpoint.json"
        blocker.mkdir()
        with pytest.raises(NotReadyError, match="cannot write the checkpoint"):
            await agent.transactions.prepare(ref(1))
        assert agent.node.claims == {}
        with pytest.raises(NotReadyError, match="cannot write its checkpoint"):
            await agent.transactions.prepare(ref(2))
        blocker.rmdir()
        await agent.state_file.save()
        await agent.transactions.prepare(ref(2))


async def test_while_the_runtime_is_not_connected_no_claim_is_prepared(tmp_path):
    async with Agent(tmp_path, Claims(claim_object(1, [share(NUMA1, 4)]))).alive() as agent:
        agent.node.containers.disconnected()
        with pytest.raises(NotReadyError, match="not connected to its container runtime"):
            await agent.transactions.prepare(ref(1))


async def test_claims_prepared_at_once_share_checkpoint_writes_but_not_cpus(tmp_path):
    claims = Claims(*(claim_object(number, [share(NUMA1, 1)]) for number in range(1, 5)))
    writes = []
    agent = Agent(tmp_path, claims)
    agent.state_file = StateFile(tmp_path / "state", agent.node.checkpoint, lambda *_: writes.append(1))
    agent.transactions = ClaimTransactions(
        agent.node,
        agent.node.claims,
        claims,
        agent.state_file,
        agent.cdi,
        wait_until_settled=agent.push,
        observer=Silent(),
        look_at_pods=agent.lingering.look,
    )
    async with agent.alive():
        await asyncio.gather(*(agent.transactions.prepare(ref(number)) for number in range(1, 5)))
    assert len(agent.node.division.exclusive) == 4
    assert len(writes) <= 2


async def test_a_damaged_checkpoint_is_replaced_by_the_previous_copy_and_the_cdi_files(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 2)]), claim_object(2, [share(NUMA1, 2)]))
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        await agent.transactions.prepare(ref(2))
        held = {claim.ref: claim.cpus for claim in agent.node.claims.values()}
    current = tmp_path / "state" / "checkpoint.json"
    current.write_bytes(current.read_bytes().replace(b"4", b"5"))
    revived = Agent(tmp_path, claims)
    loaded = revived.state_file.load()
    assert "checksum" in loaded.damage
    assert loaded.checkpoint is not None
    assert [claim.ref for claim in loaded.checkpoint.claims] == [ref(1)]
    assert {claim.ref: claim.cpus for claim in revived.cdi.read_all()} == held


async def test_a_second_agent_on_the_node_is_refused(tmp_path):
    async with Agent(tmp_path, Claims()).alive():
        with pytest.raises(Exception, match="another dracpu-agent runs on this node"):
            Agent(tmp_path, Claims()).state_file.lock()


async def test_a_claim_unprepared_while_its_container_runs_lingers_over_a_restart(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 4)]), claim_object(2, [share(NUMA1, 1)]))
    pinned = container("c", f"claim-{uid(1)}")
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        agent.node.containers.create(pinned)
        agent.node.containers.created("c")
        await agent.transactions.unprepare(ref(1))
    async with Agent(tmp_path, claims).alive([pinned]) as agent:
        with pytest.raises(ClaimError):
            await agent.transactions.prepare(ref(2))
        agent.node.containers.stopped("c")
        await agent.transactions.prepare(ref(2))


class Photographed(CdiDirectory[CpuClaim]):
    """Copies all files of the agent before and after each step: what a kill at that moment would leave."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "cdi", CpuClaim)
        self._root = root
        self.shots: list[Path] = []

    def shoot(self) -> None:
        shot = self._root.parent / f"shot-{len(self.shots)}"
        shutil.copytree(self._root, shot)
        self.shots.append(shot)

    def write(self, claim):
        self.shoot()
        super().write(claim)
        self.shoot()

    def delete(self, uid):
        self.shoot()
        super().delete(uid)
        self.shoot()


async def test_a_repeated_prepare_succeeds_after_the_agent_was_killed_at_any_step(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 2)]), claim_object(2, [share(NUMA1, 2)]))
    root = tmp_path / "node"
    root.mkdir()
    first = Agent(root, claims)
    cdi = Photographed(root)
    first.transactions = ClaimTransactions(
        first.node,
        first.node.claims,
        claims,
        first.state_file,
        cdi,
        wait_until_settled=first.push,
        observer=Silent(),
        look_at_pods=first.lingering.look,
    )
    async with first.alive():
        await first.transactions.prepare(ref(2))
        held = first.node.claims[uid(2)].cpus
        steps = len(cdi.shots)
        await first.transactions.prepare(ref(1))
        preparing = cdi.shots[steps:]
        steps = len(cdi.shots)
        await first.transactions.unprepare(ref(1))
        cdi.shoot()
        unpreparing = cdi.shots[steps:]
    assert len(preparing) == 2
    assert len(unpreparing) == 3

    for shot in preparing:  # the kubelet had no answer, so it asks again
        async with Agent(shot, claims).alive() as revived:
            assert revived.node.claims[uid(2)].cpus == held
            await revived.transactions.prepare(ref(1))
            assert revived.node.claims[uid(1)].cpus.isdisjoint(held)
            assert len(files(shot)) == 2
    for shot in unpreparing:
        async with Agent(shot, claims).alive() as revived:
            await revived.transactions.unprepare(ref(1))
            assert {claim.ref: claim.cpus for claim in revived.node.claims.values()} == {ref(2): held}
            assert files(shot) == [f"dra.k8s.io-cpu_{uid(2)}.json"]


async def test_a_revived_claim_is_on_disk_before_it_is_answered(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 4)]))
    pinned = container("c", f"claim-{uid(1)}")
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        agent.node.containers.create(pinned)
        agent.node.containers.created("c")
        await agent.transactions.unprepare(ref(1))
        await agent.transactions.prepare(ref(1))
        saved = load(tmp_path / "state").checkpoint
    assert saved is not None
    assert [claim.lingering for claim in saved.claims] == [False]


async def test_a_runtime_that_goes_away_while_the_claim_is_read_fails_the_prepare(tmp_path):
    class Leaving(Claims):
        async def read(self, ref, seconds):
            agent.node.containers.disconnected()
            return await super().read(ref, seconds)

    agent = Agent(tmp_path, Leaving(claim_object(1, [share(NUMA1, 4)])))
    async with agent.alive():
        with pytest.raises(NotReadyError, match="container runtime"):
            await agent.transactions.prepare(ref(1))
        assert agent.node.claims == {}


async def test_the_audit_reads_the_claim_again_before_it_ends_it(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 1)]), claim_object(2, [share(NUMA1, 1)]))
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        await agent.transactions.prepare(ref(2))
        del claims.objects[uid(2)]
        assert await agent.transactions.release_if_gone(ref(1)) is Finding.IN_ORDER
        assert await agent.transactions.release_if_gone(ref(2)) is Finding.GONE
        assert set(agent.node.claims) == {uid(1)}
        assert files(tmp_path) == [f"dra.k8s.io-cpu_{uid(1)}.json"]


async def test_a_missing_checkpoint_beside_its_previous_copy_counts_as_damage(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 2)]), claim_object(2, [share(NUMA1, 2)]))
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        await agent.transactions.prepare(ref(2))
        held = dict(agent.node.claims)
    (tmp_path / "state" / "checkpoint.json").unlink()
    async with Agent(tmp_path, claims).alive() as revived:
        assert revived.node.claims == held


async def test_a_damaged_copy_is_set_aside_and_never_replaces_the_good_one(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 2)]))
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        agent.node.configure(spec(reserved="0"))
        await agent.state_file.save()
    state = tmp_path / "state"
    (state / "checkpoint.json").write_bytes(b"torn")
    async with Agent(tmp_path, claims).alive() as revived:
        assert set(revived.node.claims) == {uid(1)}
        await revived.state_file.save()
    assert (state / "checkpoint.damaged.json").read_bytes() == b"torn"
    for name in ("checkpoint.json", "checkpoint.previous.json"):
        decode((state / name).read_bytes())
