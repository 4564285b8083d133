"""Plays a story: starts its cluster, runs the story, and reports the outcome."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TextIO

from dracpu_sandbox.cluster import Sandbox
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.node.delays import Delays
from dracpu_sandbox.stories.shelf import Scenario, ScenarioError, blame
from dracpu_sandbox.stories.story import story_in
from dracpu_sandbox.waiting import either

_DELAYS: Final = Delays(prepare_retry=(1.0, 2.0))  # nobody waits for a story for more than a minute


async def play(
    scenario: Scenario,
    print_line: Callable[[str], object],
    *,
    nodes: int = 0,
    assets: Path | None = None,
    echo: TextIO | None = None,
) -> None:
    """Returns when the story has passed; raises an error that names the failed check."""
    began = time.monotonic()

    def report(line: str) -> None:
        print_line(f"{time.monotonic() - began:6.1f} s  {line}")

    print_line(f"{scenario.name}: {scenario.title}")
    machines = scenario.cluster(nodes)
    async with Sandbox(machines, agent=scenario.agent, delays=_DELAYS, assets=assets, echo=echo) as sandbox:
        await sandbox.ready(scenario.patience)
        report(f"a cluster of {len(machines)} node{'' if len(machines) == 1 else 's'} is ready")
        async with story_in(sandbox, report, scenario.patience) as story:
            await either(_run(scenario, story), sandbox.ended())
    report("the story has passed")


async def _run(scenario: Scenario, story: object) -> None:
    try:
        await scenario.play(story)
    except SandboxError:
        raise
    except Exception as error:
        raise ScenarioError(blame(error, scenario.file)) from error
