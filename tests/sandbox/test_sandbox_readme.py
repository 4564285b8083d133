"""Tests that the README's session in the sandbox prints exactly the text in the README."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.paths import Paths
from transcript import comparable, steps

PROJECT = Path(__file__).parents[2]
LAB = Paths.default().bin  # where `make lab` puts kubectl
PROGRAMS = Path(sys.executable).parent
OPENING, *SESSION = steps(PROJECT / "README.md", "Try it: a cluster in one process")


def searched() -> str:
    """Returns PATH for the commands of the session; this virtual environment replaces that of the README."""
    return os.pathsep.join([str(PROGRAMS), os.environ["PATH"], str(LAB)])


@pytest.fixture
def opening() -> Iterator[str]:
    """Runs `make sandbox`, and yields its output up to the last line of the start."""
    with subprocess.Popen([PROGRAMS / "dracpu-sandbox", "up"], stdout=subprocess.PIPE, text=True) as sandbox:
        assert sandbox.stdout is not None
        printed = ""
        for line in sandbox.stdout:
            printed += line
            if line.startswith("Logs of "):
                break
        yield printed
        sandbox.terminate()
    assert sandbox.returncode == 0


def opened(printed: str) -> list[str]:
    """Returns sorted lines without seconds, port and folder: these, and the order of the nodes, differ each time."""
    known = re.sub(r" *\d+\.\d s", " N s", printed)
    known = re.sub(r"(?<=127\.0\.0\.1:)\d+", "PORT", known)
    known = re.sub(r"(?<=/dracpu-sandbox-)\w+", "FOLDER", known)
    known = re.sub(r"\S+/bin/(?=dracpu-sandbox)", "BIN/", known)
    return sorted(line for line in known.splitlines() if "There is no kubectl in PATH" not in line)


def drawn(printed: str) -> list[str]:
    """Returns the comparable text, with X for the claim in the drawing: its letter depends on its CPUs."""
    legend = re.search(r"^(\w) default/", printed, re.MULTILINE)
    return comparable(printed.replace(f" {legend[1] * 2} ", " XX ").replace(legend[0], "X ") if legend else printed)


@pytest.mark.timeout(120)
@pytest.mark.skipif(shutil.which("kubectl", path=searched()) is None, reason="no kubectl: `make lab` builds it")
def test_the_session_prints_the_text_of_the_readme(opening: str, tmp_path: Path) -> None:
    assert OPENING.command == "make sandbox"
    assert opened(opening) == opened(OPENING.printed + "\n")
    exported = re.search(r"export KUBECONFIG=(\S+)", opening)
    assert exported is not None
    environment = {"PATH": searched(), "HOME": str(tmp_path), "KUBECONFIG": exported[1]}
    for step in SESSION:
        command = step.command.replace(".venv-sandbox/bin/", "")
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=PROJECT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert drawn(done.stdout) == drawn(step.printed), step.command
