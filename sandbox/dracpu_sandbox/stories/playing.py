"""Plays a story: makes its cluster, runs it, and reports how it ended."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from dracpu_sandbox.cluster import Sandbox
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.stories.shelf import Scenario, ScenarioError, blame
from dracpu_sandbox.stories.telling import story_in
from dracpu_sandbox.waiting import either


async def play(
    scenario: Scenario,
    say: Callable[[str], object],
    *,
    nodes: int = 0,
    assets: Path | None = None,
    echo: TextIO | None = None,
) -> None:
    """Returns when it has ended as told; raises an error that says what was not as expected."""
    began = time.monotonic()

    def tell(line: str) -> None:
        say(f"{time.monotonic() - began:6.1f} s  {line}")

    say(f"{scenario.name}: {scenario.title}")
    machines = scenario.cluster(nodes)
    async with Sandbox(machines, agent=scenario.agent, assets=assets, echo=echo) as sandbox:
        await sandbox.ready(scenario.patience)
        tell(f"a cluster of {len(machines)} node{'' if len(machines) == 1 else 's'} is ready")
        async with story_in(sandbox, tell, scenario.patience) as story:
            await either(_telling(scenario, story), sandbox.ended())
    tell("ended as told")


async def _telling(scenario: Scenario, story: object) -> None:
    try:
        await scenario.play(story)
    except SandboxError:
        raise
    except Exception as error:
        raise ScenarioError(blame(error, scenario.file)) from error
