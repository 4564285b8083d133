"""The sandbox's stories on the real control plane, whose programs run on this host's loopback: etcd, API server,
scheduler and controllers. No emulated node takes part: kubelets, runtimes and machines are simulated."""

from pathlib import Path
from typing import Final

import pytest
from lab.paths import Paths

from dracpu_sandbox.stories import shelf
from dracpu_sandbox.stories.playing import play

PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
FLEET: Final = 5  # nodes


@pytest.mark.parametrize("name", shelf.NAMES)
async def test_a_story_ends_as_told_on_the_real_control_plane(name: str, tmp_path: Path) -> None:
    for program in PROGRAMS:
        (tmp_path / program).symlink_to(Paths.default().bin / program)
    told: list[str] = []
    await play(shelf.find(name), told.append, nodes=FLEET if name == "fleet" else 0, assets=tmp_path)
    assert told[-1].endswith("ended as told")
