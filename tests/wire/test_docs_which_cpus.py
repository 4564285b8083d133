"""Tests that every example of docs/user/which-cpus.md prints the output on the page, and that drawings match it."""

import doc_plans
import pytest
from doc_plans import Block


@pytest.mark.parametrize("block", doc_plans.blocks(), ids=str)
def test_the_page_shows_the_output_of_the_commands(block: Block) -> None:
    assert doc_plans.as_run(block) == block.text


def test_the_page_has_examples() -> None:
    assert sum(len(block.commands) for block in doc_plans.blocks()) > 15
