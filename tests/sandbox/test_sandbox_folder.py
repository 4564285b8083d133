"""Tests the folder of a running sandbox: it is private, found while the sandbox runs, and deleted afterwards."""

import os
import stat
from pathlib import Path

import pytest

from dracpu_sandbox.folder import KUBECONFIG, PREFIX, folder, offer, running_kubeconfig


def left(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir())


def make_old(path: Path) -> None:
    os.utime(path, (0, 0))


def test_other_users_cannot_read_the_folder(tmp_path: Path) -> None:
    with folder(tmp_path) as made:
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_the_folder_is_deleted_after_a_failure(tmp_path: Path) -> None:
    def fail() -> None:
        with folder(tmp_path) as made:
            (made / "nodes").mkdir()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert left(tmp_path) == []


def test_the_latest_running_and_offered_sandbox_is_found(tmp_path: Path) -> None:
    with folder(tmp_path) as first, folder(tmp_path) as second, folder(tmp_path):
        assert running_kubeconfig(tmp_path) is None
        for age, place in enumerate((second, first)):
            offer(place)
            os.utime(place / "offered", (1000 - age, 1000 - age))
        assert running_kubeconfig(tmp_path) == second / KUBECONFIG
    assert running_kubeconfig(tmp_path) is None


def test_the_folder_of_a_killed_sandbox_is_not_found_and_is_deleted_later(tmp_path: Path) -> None:
    killed = tmp_path / f"{PREFIX}killed"
    killed.mkdir()
    offer(killed)
    (killed / "lock").write_text("")
    make_old(killed)
    assert running_kubeconfig(tmp_path) is None
    with folder(tmp_path):
        assert killed.name not in left(tmp_path)


def test_folders_of_running_sandboxes_and_other_files_are_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "other")
    young = tmp_path / f"{PREFIX}young"
    young.mkdir()
    with folder(tmp_path) as running:
        make_old(running)
        with folder(tmp_path):
            assert set(left(tmp_path)) > {"other", f"{PREFIX}link", young.name, running.name}
