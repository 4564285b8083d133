"""The page of scenarios has a row for each of them, and each row names tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/dev/scenarios.md"
SCENARIOS = range(1, 45)
NOT_HANDLED_YET = {44}

ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]*) ?\|$", re.MULTILINE)


def rows() -> list[tuple[int, str, list[str]]]:
    """Returns each row's number, what must follow, and the ids of its tests."""
    return [(int(number), follows, tests.split()) for number, _, follows, tests in ROW.findall(PAGE.read_text())]


@cache
def named_in(file: str) -> frozenset[str]:
    """Returns the tests of a file as pytest names them, those of classes as `Class::test`."""
    path = ROOT / file
    if not file.startswith("tests/") or not path.is_file():
        return frozenset()
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        functions = (member for member in members if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef))
        found.update(prefix + function.name for function in functions if function.name.startswith("test_"))
    return frozenset(found)


def exists(test: str) -> bool:
    file, _, name = test.strip("`").partition("::")
    return test == f"`{file}::{name}`" and name in named_in(file)


def test_every_scenario_has_its_row() -> None:
    assert [number for number, _, _ in rows()] == list(SCENARIOS)


def test_every_test_that_the_page_names_exists() -> None:
    missing = [(number, test) for number, _, tests in rows() for test in tests if not exists(test)]
    assert not missing


def test_only_scenarios_that_are_not_handled_yet_have_no_test() -> None:
    assert {number for number, _, tests in rows() if not tests} == NOT_HANDLED_YET
    assert {number for number, follows, _ in rows() if "*not handled yet*" in follows} == NOT_HANDLED_YET


@pytest.mark.parametrize(
    "test",
    [
        "`tests/unit/test_docs_scenarios.py::test_nothing`",
        "`tests/unit/test_nothing.py::test_every_scenario_has_its_row`",
        "`tests/unit/test_docs_scenarios.py::exists`",
        "`tests/chart/test_chart_agent.py::test_uses_the_values`",
        "tests/unit/test_docs_scenarios.py::test_every_scenario_has_its_row",
    ],
    ids=["no such test", "no such file", "not a test", "without its class", "not in backticks"],
)
def test_a_test_that_does_not_exist_is_found(test: str) -> None:
    assert not exists(test)
