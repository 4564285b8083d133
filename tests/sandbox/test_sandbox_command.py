"""Tests the command: its output, its exit codes, and that it leaves no files behind."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from dracpu_sandbox import options
from dracpu_sandbox.machines.presets import EPYC, HYBRID, LAB, XEON
from dracpu_sandbox.up import UpOptions, machines_of, up, what_next

ROOT = Path(__file__).parents[2]
Process = asyncio.subprocess.Process


@contextlib.asynccontextmanager
async def running(folder: Path, *words: str, shell: Sequence[str] = ()) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(*shell, sys.executable),
        *("-m", "dracpu_sandbox", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name not in {"KUBECONFIG", "KUBEBUILDER_ASSETS"}}
        | {"TMPDIR": str(folder)},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_up_prints_commands_and_cleans_up_after_a_signal(short_path: Path) -> None:
    async with running(short_path, "up", "--machine", "lab", "--kubeconfig", str(short_path / "mine")) as process:
        assert process.stdout is not None
        printed = [line async for line in _until(process.stdout, b"Logs of operator and agents")]
        text = b"".join(printed).decode()
        assert f"export KUBECONFIG={short_path / 'mine'}" in text
        assert "node-1: lab" in text
        document = json.loads((short_path / "mine").read_text())
        assert document["clusters"][0]["cluster"]["server"] in text

        async with running(short_path, "top", "--once") as top:
            drawn, _ = await top.communicate()
        assert "│ NUMA 0  [## ··] │ │ NUMA 1  [·· ··] │" in drawn.decode()

        process.send_signal(signal.SIGINT)
        assert await process.communicate() == (b"", b"")
        assert process.returncode == 0
    assert left(short_path) == []


async def _until(stream: asyncio.StreamReader, words: bytes) -> AsyncIterator[bytes]:
    async for line in stream:
        yield line
        if words in line:
            return
    raise AssertionError(f"the output has ended without {words!r}")


async def test_a_signal_during_the_start_leaves_no_files(short_path: Path) -> None:
    async with running(short_path, "up", "--nodes", "30") as process:
        assert process.stdout is not None
        await process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, errors = await process.communicate()
        assert (process.returncode, errors) == (0, b"")
    assert left(short_path) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("up", "--machine", "cray"), "dracpu-sandbox: cray is neither a machine nor a file"),
        (("run", "./missing.py"), "dracpu-sandbox: file ./missing.py does not exist"),
        (("top", "--once"), "dracpu-sandbox: no sandbox is running, and KUBECONFIG is not set"),
        (("top", "--once", "--kubeconfig", "missing"), "dracpu-sandbox: "),
    ],
    ids=["machine", "story", "no cluster", "no kubeconfig"],
)
async def test_an_error_is_one_line_with_exit_code_1(words: tuple[str, ...], message: str, short_path: Path) -> None:
    async with running(short_path, *words) as process:
        printed, errors = await process.communicate()
    assert (process.returncode, printed) == (1, b"")
    assert errors.decode().startswith(message)
    assert len(errors.splitlines()) == 1


async def test_a_failed_story_has_exit_code_1(short_path: Path) -> None:
    file = short_path / "mine.py"
    file.write_text('"""Mine."""\nasync def play(story):\n    story.expects("two", False, "one")\n')
    async with running(short_path, "run", str(file)) as process:
        printed, errors = await process.communicate()
    assert process.returncode == 1
    assert printed.decode().startswith("mine: Mine.\n")
    assert errors.decode() == "dracpu-sandbox: expected: two\nseen:     one\n"


async def test_a_low_limit_of_open_files_is_raised(short_path: Path) -> None:
    limited = ("sh", "-c", 'ulimit -S -n 24 && exec "$0" "$@"')
    async with running(short_path, "run", "quickstart", shell=limited) as process:
        printed, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
    assert printed.decode().endswith("the story has passed\n")


async def test_an_existing_kubeconfig_is_never_overwritten(short_path: Path) -> None:
    existing = short_path / "config"
    existing.write_text("somebody's")
    with pytest.raises(Exception, match="cannot write the kubeconfig .*: File exists"):
        await up(UpOptions(machines=("lab",), kubeconfig=existing), lambda line: None)
    assert existing.read_text() == "somebody's"


def test_machines_are_assigned_in_turn() -> None:
    assert machines_of((), None) == {"node-1": XEON, "node-2": EPYC, "node-3": HYBRID}
    assert machines_of(("lab", "epyc"), 3) == {"node-1": LAB, "node-2": EPYC, "node-3": LAB}
    assert machines_of((), 1) == {"node-1": XEON}


def test_up_writes_the_example_of_the_readme() -> None:
    packaged = ROOT / "sandbox/dracpu_sandbox/two-cpus.yaml"
    assert packaged.read_text() == (ROOT / "examples/two-cpus.yaml").read_text()


def test_a_missing_kubectl_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert any("no kubectl in PATH" in line for line in what_next(Path("k"), Path("e"), "dracpu-sandbox"))


@pytest.mark.parametrize("words", [["up", "--nodes", "0"], ["up", "--port", "70000"], ["run"], ["run", "x", "--list"]])
def test_an_invalid_command_line_is_rejected(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse(words)
    assert "error: " in capsys.readouterr().err
