"""What holds for all tests, and what all may ask for: a whole cluster, in about a second."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:  # who asks for no cluster does not wait for its imports
    from dracpu_sandbox.cluster import Sandbox
    from dracpu_sandbox.machines.description import Machine
    from dracpu_sandbox.stories.telling import Story

# no test asserts a time: a busy machine is no counterexample
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder with a short path, unlike tmp_path: unix sockets have to fit below it."""
    with tempfile.TemporaryDirectory(prefix="d", dir="/tmp") as made:
        yield Path(made)


@pytest.fixture
def machine() -> "Machine":
    """What the node of `cluster` is: two sockets with two cores of two threads each. A module may say another."""
    from dracpu_sandbox.machines.presets import LAB  # noqa: PLC0415 - see above

    return LAB


@pytest.fixture
async def cluster(machine: "Machine") -> "AsyncIterator[Sandbox]":
    """One node, ready: all CPUs but those of the lowest core are offered."""
    from dracpu_sandbox.cluster import Sandbox  # noqa: PLC0415 - see above

    async with Sandbox({"node-1": machine}) as sandbox:
        await sandbox.ready()
        yield sandbox


@pytest.fixture
async def story(cluster: "Sandbox") -> "AsyncIterator[Story]":
    """The words of stories, in that cluster."""
    from dracpu_sandbox.stories.telling import story_in  # noqa: PLC0415 - see above

    async with story_in(cluster) as words:
        yield words
