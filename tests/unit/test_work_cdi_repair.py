"""CDI files that were deleted or altered are written again; those of claims that have ended are not."""

import os
import shutil
from pathlib import Path

import pytest
from newer_agent import cdi_record
from nodes import claim_object, container, ref, share, uid
from transacting import Agent, Claims

from dracpu_agent.cdi.files import CdiDirectory, DirectoryDeletedError
from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.work.cdi_repair import CdiRepair

NUMA1 = "cpudevnuma001"


class Repairing:
    """The repair of an agent's CDI files, with a record of what it reported."""

    def __init__(self, agent: Agent, cdi: CdiDirectory[CpuClaim] | None = None) -> None:
        self.repaired: list[list[str]] = []
        self.failures = 0
        self._repair = CdiRepair(
            agent.node.claims,
            cdi or agent.cdi,
            agent.transactions.repair_cdi_file,
            lambda claims: self.repaired.append([claim.name for claim in claims]),
            self._failed,
        )
        self.round = self._repair.round

    def _failed(self) -> None:
        self.failures += 1


@pytest.fixture
def claims() -> Claims:
    return Claims(*(claim_object(number, [share(NUMA1, 1)]) for number in (1, 2, 3)))


def contents(root):
    return {path.name: path.read_bytes() for path in sorted((root / "cdi").iterdir())}


def path_of(root, number):
    return root / "cdi" / f"dra.k8s.io-cpu_{uid(number)}.json"


async def test_files_that_are_as_they_were_written_are_left_alone(tmp_path, claims):
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        stamps = agent.cdi.stamps()
        repairing = Repairing(agent)
        await repairing.round()
        await repairing.round()
        assert repairing.repaired == []
        assert agent.cdi.stamps() == stamps


async def test_a_deleted_file_and_altered_files_are_written_again_and_reported_once(tmp_path, claims):
    async with Agent(tmp_path, claims).alive() as agent:
        for number in (1, 2, 3):
            await agent.transactions.prepare(ref(number))
        before = contents(tmp_path)
        repairing = Repairing(agent)
        await repairing.round()
        path_of(tmp_path, 1).unlink()
        path_of(tmp_path, 2).write_bytes(before[path_of(tmp_path, 2).name].replace(b"=5", b"=6"))
        path_of(tmp_path, 3).write_bytes(b"")
        await repairing.round()
        await repairing.round()
        assert contents(tmp_path) == before
        assert repairing.repaired == [["claim-1", "claim-2", "claim-3"]]


@pytest.mark.parametrize("created_again", [False, True])
async def test_a_deleted_directory_gets_its_files_again(tmp_path, claims, created_again):
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        before = contents(tmp_path)
        repairing = Repairing(agent)
        await repairing.round()
        shutil.rmtree(tmp_path / "cdi")
        if created_again:
            (tmp_path / "cdi").mkdir()
        await repairing.round()
        assert contents(tmp_path) == before
        assert repairing.repaired == [["claim-1"]]


async def test_a_directory_that_was_deleted_under_its_mount_ends_the_agent(tmp_path, claims):
    directory = tmp_path / "deleted"
    directory.mkdir()
    handle = os.open(directory, os.O_RDONLY)
    directory.rmdir()
    try:
        async with Agent(tmp_path, claims).alive() as agent:
            with pytest.raises(DirectoryDeletedError, match="the agent has to start again"):
                await Repairing(agent, CdiDirectory(Path(f"/proc/self/fd/{handle}"), CpuClaim)).round()
    finally:
        os.close(handle)


async def test_a_file_that_cannot_be_written_is_counted_and_does_not_delay_the_others(tmp_path, claims):
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        await agent.transactions.prepare(ref(2))
        before = contents(tmp_path)
        for number in (1, 2):
            path_of(tmp_path, number).unlink()
        path_of(tmp_path, 1).mkdir()
        repairing = Repairing(agent)
        await repairing.round()
        assert (repairing.repaired, repairing.failures) == ([["claim-2"]], 1)
        path_of(tmp_path, 1).rmdir()
        await repairing.round()
        assert repairing.repaired == [["claim-2"], ["claim-1"]]
        assert contents(tmp_path) == before


async def test_claims_that_linger_or_have_ended_get_no_file(tmp_path, claims):
    async with Agent(tmp_path, claims).alive() as agent:
        for number in (1, 2):
            await agent.transactions.prepare(ref(number))
        agent.node.containers.create(container("c", f"claim-{uid(1)}"))
        agent.node.containers.created("c")
        repairing = Repairing(agent)
        for number in (1, 2):
            await agent.transactions.unprepare(ref(number))
            assert not await agent.transactions.repair_cdi_file(uid(number))
        await repairing.round()
        assert set(agent.node.claims) == {uid(1)}
        assert contents(tmp_path) == {}


async def test_what_a_newer_agent_has_added_to_a_file_stays(tmp_path, claims):
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        path = path_of(tmp_path, 1)
        path.write_bytes(
            cdi_record(path.read_bytes(), lambda record: record["grants"][0].update(future=1)).replace(
                b'"containerEdits": {', b'"containerEdits": {"mounts": [], '
            )
        )
        newer = path.read_bytes()
        repairing = Repairing(agent)
        await repairing.round()
        await agent.transactions.prepare(ref(1))
        assert path.read_bytes() == newer
        path.write_bytes(newer.replace(b"claim-1", b"claim-7"))  # the record of another claim
        await repairing.round()
        assert b"claim-7" not in path.read_bytes()
