"""The sandbox's stories with the real control plane, whose programs run on this host's loopback: etcd, API server,
scheduler and controllers. No emulated node is used: kubelets, runtimes and machines are simulated."""

from pathlib import Path
from typing import Final

import pytest
from lab.paths import Paths

from dracpu_sandbox.stories import shelf
from dracpu_sandbox.stories.playing import play

PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
FLEET: Final = 5  # nodes


@pytest.mark.parametrize("name", shelf.NAMES)
async def test_a_story_passes_on_the_real_control_plane(name: str, tmp_path: Path) -> None:
    for program in PROGRAMS:
        (tmp_path / program).symlink_to(Paths.default().bin / program)
    printed: list[str] = []
    await play(shelf.find(name), printed.append, nodes=FLEET if name == "fleet" else 0, assets=tmp_path)
    assert printed[-1].endswith("the story has passed")
