"""Tests that stories are found by name or by file, and that an invalid file is reported in one line."""

from pathlib import Path

import pytest

from dracpu_sandbox.machines.presets import LAB, TINY
from dracpu_sandbox.stories import shelf

WHOLE = '''"""One sentence. And more."""
MACHINES = ("lab", "tiny")
async def play(story):
    pass
'''


@pytest.mark.parametrize("name", shelf.NAMES)
def test_every_story_is_found_and_has_a_title(name: str) -> None:
    scenario = shelf.find(name)
    assert scenario.name == name
    assert shelf.titles()[name] == scenario.title != ""


def test_a_users_story_is_found_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(WHOLE + "NODES = 2\n")
    scenario = shelf.find(str(file))
    assert (scenario.name, scenario.title) == ("mine", "One sentence. And more.")
    assert scenario.cluster() == {"node-1": LAB, "node-2": TINY}
    assert scenario.cluster(3) == {"node-1": LAB, "node-2": TINY, "node-3": LAB}
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("async def play(story:\n", "mine.py, line 1: SyntaxError: '(' was never closed"),
        ("\n\nawait story\n", "mine.py, line 3: SyntaxError: 'await' outside function"),
        (
            "import nothing_of_that_name\n",
            "mine.py, line 1: ModuleNotFoundError: No module named 'nothing_of_that_name'",
        ),
        ("def play(story): pass\n", "mine.py is not a story: it needs a function `async def play(story)`"),
        (WHOLE + "MACHINES = 'lab'\n", "mine.py: MACHINES must be a tuple, such as ('lab',), not 'lab'"),
        (WHOLE + "MACHINES = ('cray',)\n", "cray is neither a machine nor a file"),
        (WHOLE + "AGENT = 'thread'\n", 'mine.py: AGENT must be "task" or "process", not "thread"'),
    ],
    ids=["syntax", "await", "import", "not async", "no tuple", "machine", "agent"],
)
def test_an_invalid_story_is_reported_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(shelf.ScenarioError if "machine nor" not in message else Exception) as caught:
        shelf.find(str(file))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_only_a_story_that_sets_nodes_accepts_another_number_of_nodes() -> None:
    assert len(shelf.find("fleet").cluster(3)) == 3
    with pytest.raises(shelf.ScenarioError, match=r"exhausted plays on 1 node\(s\): only a story that sets NODES"):
        shelf.find("exhausted").cluster(3)


def test_an_unknown_name_is_reported_with_the_known_ones() -> None:
    with pytest.raises(shelf.ScenarioError, match='no story "quick"; the stories are: quickstart, exhausted'):
        shelf.find("quick")


def test_a_missing_file_is_reported() -> None:
    with pytest.raises(shelf.ScenarioError, match="file ./missing.py does not exist"):
        shelf.find("./missing.py")
