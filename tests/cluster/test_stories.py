"""The sandbox's stories on the real control plane, which runs on this host's loopback: no emulated node takes part."""

from pathlib import Path
from typing import Final

import pytest
from lab.paths import Paths

from dracpu_sandbox.stories import shelf
from dracpu_sandbox.stories.playing import play

ENVTEST: Final = ("etcd", "kube-apiserver", "kubectl")  # what envtest has: scheduler and controllers are the sandbox's
ALL: Final = (*ENVTEST, "kube-scheduler", "kube-controller-manager")
FLEET: Final = 5  # nodes


@pytest.mark.parametrize("programs", [ALL, ENVTEST], ids=["all real", "as in envtest"])
@pytest.mark.parametrize("name", shelf.NAMES)
async def test_a_story_ends_as_told_on_the_real_api_server(
    name: str, programs: tuple[str, ...], tmp_path: Path
) -> None:
    for program in programs:
        (tmp_path / program).symlink_to(Paths.default().bin / program)
    told: list[str] = []
    await play(shelf.find(name), told.append, nodes=FLEET if name == "fleet" else 0, assets=tmp_path)
    assert told[-1].endswith("ended as told")
