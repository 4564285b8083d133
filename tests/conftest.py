"""Settings and fixtures of all tests; `cluster` starts a whole simulated cluster in about a second."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:  # a fixture imports the sandbox when a test uses it, so that other tests do not wait for the import
    from dracpu_sandbox.cluster import Sandbox
    from dracpu_sandbox.machines.description import Machine
    from dracpu_sandbox.stories.story import Story

# no deadline: on a busy machine an example may take long, and that is not a failure
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the depth of the model test, which is greater in CI than while developing."""
    parser.addoption("--histories", type=int, default=100, help="random histories of the model test, for each runtime")


@pytest.fixture
def histories(pytestconfig: pytest.Config) -> int:
    """Returns the number of histories that the model test plays for each runtime."""
    return int(pytestconfig.getoption("--histories"))


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Creates a folder with a shorter path than tmp_path, because the path of a unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="d", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def machine() -> "Machine":
    """Returns the machine of the node of `cluster`: two sockets with two cores of two threads each.

    A module overrides this fixture to use another machine.
    """
    from dracpu_sandbox.machines.presets import LAB  # noqa: PLC0415 - see above

    return LAB


@pytest.fixture
async def cluster(machine: "Machine") -> "AsyncIterator[Sandbox]":
    """Starts a cluster of one node and waits until it is ready: it offers all CPUs but those of the lowest core."""
    from dracpu_sandbox.cluster import Sandbox  # noqa: PLC0415 - see above

    async with Sandbox({"node-1": machine}) as sandbox:
        await sandbox.ready()
        yield sandbox


@pytest.fixture
async def story(cluster: "Sandbox") -> "AsyncIterator[Story]":
    """Returns the steps of which stories consist; they act on the cluster of the fixture `cluster`."""
    from dracpu_sandbox.stories.story import story_in  # noqa: PLC0415 - see above

    async with story_in(cluster) as steps:
        yield steps
