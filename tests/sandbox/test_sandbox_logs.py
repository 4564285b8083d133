"""Tests the logs of all parts of a cluster in one process."""

import asyncio
import io
import logging
from pathlib import Path

import structlog

from dracpu_sandbox.logs import WRITER, recorded

log = structlog.get_logger("some module")


async def test_each_part_writes_its_own_file(tmp_path: Path) -> None:
    async def part(name: str) -> None:
        WRITER.set(name)
        log.info("started", by=name)
        await asyncio.create_task(inherited())

    async def inherited() -> None:
        logging.getLogger("library").warning("careful")

    with recorded(tmp_path / "logs"):
        log.info("before all parts")
        await asyncio.gather(part("operator"), part("node-1"))
    written = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert sorted(written) == ["node-1.log", "operator.log", "sandbox.log"]
    for name in ("operator", "node-1"):
        lines = written[f"{name}.log"].splitlines()
        assert len(lines) == 2
        assert f"by={name}" in lines[0]
        assert "careful" in lines[1]


def test_echoed_lines_start_with_the_name_of_their_writer(tmp_path: Path) -> None:
    screen = io.StringIO()
    with recorded(tmp_path / "logs", screen):
        log.info("started")
    (line,) = screen.getvalue().splitlines()
    assert line.startswith("sandbox: ")
    assert "started" in line


def test_the_former_logging_configuration_is_restored(tmp_path: Path) -> None:
    before = (structlog.get_config(), logging.getLogger().handlers[:], logging.getLogger().level)
    with recorded(tmp_path / "logs"):
        assert structlog.get_config() != before[0]
    assert (structlog.get_config(), logging.getLogger().handlers[:], logging.getLogger().level) == before
