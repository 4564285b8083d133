"""Every story ends as told; one that does not says what was expected and what was seen."""

from pathlib import Path

import pytest

from dracpu_sandbox.stories import shelf
from dracpu_sandbox.stories.playing import play
from dracpu_sandbox.stories.telling import UnexpectedError

FLEET = 20  # nodes; a person who plays it gets 200


def mine(folder: Path, body: str) -> shelf.Scenario:
    file = folder / "mine.py"
    file.write_text(f'"""Mine."""\nPATIENCE = 3.0\nasync def play(story):\n    {body}\n')
    return shelf.find(str(file))


@pytest.mark.parametrize("name", shelf.NAMES)
async def test_it_ends_as_told(name: str) -> None:
    told: list[str] = []
    await play(shelf.find(name), told.append, nodes=FLEET if name == "fleet" else 0)
    assert told[0].startswith(f"{name}: ")
    assert told[-1].endswith("ended as told")


async def test_a_pod_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    scenario = mine(tmp_path, "await story.pod('greedy', cpus=9); await story.until_running('greedy')")
    with pytest.raises(UnexpectedError) as caught:
        await play(scenario, lambda line: None)
    assert "expected: pod greedy runs" in str(caught.value)
    assert "cannot allocate all claims" in str(caught.value)


async def test_a_mistake_in_a_story_is_one_line_that_says_where(tmp_path: Path) -> None:
    scenario = mine(tmp_path, "await story.pood('web')")
    with pytest.raises(shelf.ScenarioError) as caught:
        await play(scenario, lambda line: None)
    assert str(caught.value) == "mine.py, line 4: AttributeError: 'Story' object has no attribute 'pood'"
