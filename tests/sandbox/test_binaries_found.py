"""Tests that an unusable KUBEBUILDER_ASSETS is reported in one line."""

import sys
from pathlib import Path

import pytest

from dracpu_sandbox.binaries import real
from dracpu_sandbox.errors import SandboxError


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!{sys.executable}\n{text}\n")
    (folder / name).chmod(0o755)


async def start(assets: Path, folder: Path) -> None:
    async with real(assets, folder, 0):
        raise AssertionError("the control plane has started")


@pytest.mark.parametrize("there, missing", [((), "etcd"), (("etcd",), "kube-apiserver")])
async def test_a_missing_program_is_named(there: tuple[str, ...], missing: str, tmp_path: Path) -> None:
    for name in there:
        program(tmp_path, name, "")
    with pytest.raises(SandboxError, match=f"KUBEBUILDER_ASSETS is {tmp_path}, which does not contain {missing}"):
        await start(tmp_path, tmp_path / "work")


async def test_the_last_line_of_a_failed_program_is_reported(tmp_path: Path) -> None:
    program(tmp_path, "etcd", "import time; time.sleep(60)")
    program(tmp_path, "kube-apiserver", "import sys; sys.exit('no idea what to do')")
    with pytest.raises(SandboxError, match="kube-apiserver has exited with 1; its last line: no idea what to do"):
        await start(tmp_path, tmp_path / "work")
