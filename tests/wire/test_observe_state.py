"""The state document over its socket."""

import asyncio
import json
import socket
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dracpu_agent.observe.state import StateError, StateServer, read_state


@pytest.fixture
def state_dir() -> Iterator[Path]:
    with TemporaryDirectory(prefix="s") as path:  # short enough for a unix socket
        yield Path(path)


@asynccontextmanager
async def serving(state_dir: Path, document: Callable[[], object]) -> AsyncIterator[StateServer]:
    server = StateServer(state_dir, document)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def test_each_client_gets_the_current_state(state_dir: Path) -> None:
    claims: list[str] = []
    async with serving(state_dir, lambda: {"claims": claims}):
        assert await asyncio.to_thread(read_state, state_dir) == {"claims": []}
        claims.append("default/one")
        assert await asyncio.to_thread(read_state, state_dir) == {"claims": ["default/one"]}


async def test_a_large_state_is_sent_completely(state_dir: Path) -> None:
    large = [{"uid": f"uid-{number}", "cpus": "0-511"} for number in range(50_000)]
    async with serving(state_dir, lambda: large):
        assert await asyncio.to_thread(read_state, state_dir) == large


async def test_only_root_can_open_the_socket_and_stopping_removes_it(state_dir: Path) -> None:
    async with serving(state_dir, dict):
        assert stat.S_IMODE((state_dir / "agent.sock").stat().st_mode) == 0o600
    assert not (state_dir / "agent.sock").exists()


async def test_the_socket_of_a_killed_agent_is_replaced(state_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(state_dir / "agent.sock"))
    with pytest.raises(StateError, match="no agent serves"):
        read_state(state_dir)
    async with serving(state_dir, dict):
        assert await asyncio.to_thread(read_state, state_dir) == {}


def test_a_missing_agent_is_reported(state_dir: Path) -> None:
    with pytest.raises(StateError, match="no agent serves .*: is it running, and is --state-dir right"):
        read_state(state_dir)


async def test_an_incomplete_answer_is_reported(state_dir: Path) -> None:
    async def half(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps({"claims": []}).encode()[:5])
        writer.close()

    server = await asyncio.start_unix_server(half, state_dir / "agent.sock")
    with pytest.raises(StateError, match="is incomplete: see the agent's log"):
        await asyncio.to_thread(read_state, state_dir)
    server.close()
    await server.wait_closed()


async def test_a_path_where_no_socket_can_be_created_is_reported(state_dir: Path) -> None:
    with pytest.raises(StateError, match="cannot listen on .*/missing/agent.sock"):
        await StateServer(state_dir / "missing", dict).start()
    with pytest.raises(StateError, match="cannot listen on .*too long"):
        await StateServer(state_dir / ("d" * 110), dict).start()
