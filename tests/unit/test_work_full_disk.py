"""A disk that fills up while a CDI file is written leaves neither a part of a file nor a claim without its file."""

import errno
import shutil
from pathlib import Path
from typing import Any, Self

import pytest
from nodes import claim_object, ref, share, uid
from transacting import Agent, Claims

from dracpu_agent.errors import ClaimError

NUMA1 = "cpudevnuma001"


class FullFile:
    """A file on a disk that has space for one half of what is written."""

    def __init__(self, handle: int, mode: str) -> None:
        self._file: Any = open(handle, mode)  # noqa: SIM115 - closed in __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        self._file.write(data[: len(data) // 2])
        self._file.flush()
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def claims() -> Claims:
    return Claims(*(claim_object(number, [share(NUMA1, 2)]) for number in (1, 2)))


def contents(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "cdi").iterdir()}


async def test_a_new_claim_gives_its_cpus_back_and_is_prepared_when_there_is_space(
    tmp_path: Path, claims: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Agent(tmp_path, claims).alive() as agent:
        with monkeypatch.context() as disk:
            disk.setattr("dracpu_agent.cdi.files.os.fdopen", FullFile)
            with pytest.raises(ClaimError, match=r"cannot write the CDI file .*No space left"):
                await agent.transactions.prepare(ref(1))
        assert contents(tmp_path) == {}
        assert agent.node.claims == {}
        for number in (1, 2):
            await agent.transactions.prepare(ref(number))
        assert len(contents(tmp_path)) == 2


async def test_a_file_that_has_to_be_replaced_stays_as_it_is_until_there_is_space(
    tmp_path: Path, claims: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Agent(tmp_path, claims).alive() as agent:
        await agent.transactions.prepare(ref(1))
        written = contents(tmp_path)
        (name,) = written
        (tmp_path / "cdi" / name).write_bytes(b"altered")
        with monkeypatch.context() as disk:
            disk.setattr("dracpu_agent.cdi.files.os.fdopen", FullFile)
            with pytest.raises(ClaimError, match=r"cannot write the CDI file .*No space left"):
                await agent.transactions.prepare(ref(1))
        assert contents(tmp_path) == {name: b"altered"}
        assert set(agent.node.claims) == {uid(1)}  # it was prepared before
        await agent.transactions.prepare(ref(1))
        assert contents(tmp_path) == written


async def test_a_part_of_a_file_that_a_killed_agent_left_is_deleted(
    tmp_path: Path, claims: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, after_kill = tmp_path / "first", tmp_path / "after-kill"

    class Copied(FullFile):
        def __exit__(self, *error: object) -> None:
            super().__exit__(*error)
            shutil.copytree(first, after_kill)  # before the agent has cleaned up

    async with Agent(first, claims).alive() as agent:
        with monkeypatch.context() as disk:
            disk.setattr("dracpu_agent.cdi.files.os.fdopen", Copied)
            with pytest.raises(ClaimError):
                await agent.transactions.prepare(ref(1))
    assert len(contents(after_kill)) == 1
    async with Agent(after_kill, claims).alive() as agent:
        assert contents(after_kill) == {}
        await agent.transactions.prepare(ref(1))
        assert len(contents(after_kill)) == 1
