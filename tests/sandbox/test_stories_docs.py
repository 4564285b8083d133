"""Tests that the documents quote the stories correctly."""

import re
from pathlib import Path

import pytest

from dracpu_sandbox.stories import shelf

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("docs/user/sandbox.md", "docs/dev/sandbox.md")


def quoted(document: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_quoted_code_is_part_of_a_story(document: str) -> None:
    stories = [shelf.find(name).file.read_text() for name in shelf.NAMES]
    blocks = quoted(document)
    assert blocks
    for block in blocks:
        assert any(block in story for story in stories), block


def test_the_users_document_lists_every_story_with_its_title() -> None:
    text = " ".join((ROOT / "docs/user/sandbox.md").read_text().split())
    for name, title in shelf.titles().items():
        assert f"`{name}` | {title}" in text
