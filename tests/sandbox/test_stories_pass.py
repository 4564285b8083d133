"""Tests that every story passes; a failed story reports what was expected and what was observed."""

from pathlib import Path

import pytest

from dracpu_sandbox.stories import shelf
from dracpu_sandbox.stories.playing import play
from dracpu_sandbox.stories.story import UnexpectedError

FLEET = 20  # nodes; users get 200


def mine(folder: Path, body: str) -> shelf.Scenario:
    file = folder / "mine.py"
    file.write_text(f'"""Mine."""\nPATIENCE = 3.0\nasync def play(story):\n    {body}\n')
    return shelf.find(str(file))


@pytest.mark.parametrize("name", shelf.NAMES)
async def test_every_story_passes(name: str) -> None:
    printed: list[str] = []
    await play(shelf.find(name), printed.append, nodes=FLEET if name == "fleet" else 0)
    assert printed[0].startswith(f"{name}: ")
    assert printed[-1].endswith("the story has passed")


async def test_the_reason_why_a_pod_does_not_run_is_reported(tmp_path: Path) -> None:
    scenario = mine(tmp_path, "await story.pod('greedy', cpus=9); await story.until_running('greedy')")
    with pytest.raises(UnexpectedError) as caught:
        await play(scenario, lambda line: None)
    assert "expected: pod greedy runs" in str(caught.value)
    assert "cannot allocate all claims" in str(caught.value)


async def test_an_error_in_a_story_is_reported_with_its_line(tmp_path: Path) -> None:
    scenario = mine(tmp_path, "await story.pood('web')")
    with pytest.raises(shelf.ScenarioError) as caught:
        await play(scenario, lambda line: None)
    assert str(caught.value) == "mine.py, line 4: AttributeError: 'Story' object has no attribute 'pood'"
