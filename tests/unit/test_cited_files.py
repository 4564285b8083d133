"""Pages, docstrings and comments cite only files that are in the repository."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))

EXAMPLES = {"mine.py"}  # files that a reader of the pages might have

BELOW_A_FOLDER = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./*-]*[\w*/]")
ABOVE = re.compile(r"(?<![\w/])(?:\.\./)+[\w./-]*\w")
FILE = re.compile(r"(?<![\w*<{/.-])(?:[\w-]+/)*[\w-]+\.(?:md|proto|py)\b")
LINK = re.compile(r"\]\((?!\w+:)([\w./-]+)")
COMMENT = re.compile(r"#.*|\{\{-? ?/\*.*?\*/", re.DOTALL)


@cache
def repository() -> frozenset[Path]:
    """Returns all files but those in hidden folders and in caches, relative to the root."""
    hidden = re.compile(r"\.(?!ci$|gitignore$|dockerignore$)|__pycache__$")
    found: set[Path] = set()
    folders = [ROOT]
    while folders:
        for path in folders.pop().iterdir():
            if not hidden.match(path.name):
                folders.append(path) if path.is_dir() else found.add(path.relative_to(ROOT))
    return frozenset(found)


@cache
def known_names() -> frozenset[str]:
    """Returns every file's name with all, some or none of the folders above it, as pages and comments cite modules."""
    return frozenset("/".join(path.parts[start:]) for path in repository() for start in range(len(path.parts)))


def prose(file: Path) -> Iterator[str]:
    """Returns the parts of a file that are written for people."""
    if file.suffix == ".py":
        yield from python_prose(file.read_text())
    elif file.suffix == ".md":
        yield file.read_text()
    elif file.suffix in {".yaml", ".tpl", ".toml", ".proto"} or file.name in {"Makefile", "run", ".dockerignore"}:
        yield from COMMENT.findall(file.read_text())
    elif file.name.startswith("Dockerfile"):
        yield from re.findall(r"^#.*", file.read_text(), re.MULTILINE)


def python_prose(source: str) -> Iterator[str]:
    """Returns comments and docstrings."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def missing(text: str, folder: Path) -> set[str]:
    """Returns what a text in a file of this folder cites and what does not exist."""
    below = {cited for cited in BELOW_A_FOLDER.findall(text) if not exists(cited)}
    relative = {cited for cited in ABOVE.findall(text) + LINK.findall(text) if not is_in_the_repository(folder / cited)}
    files = set(FILE.findall(text)) - known_names()
    return (below | relative | files) - EXAMPLES


@cache
def exists(path_or_pattern: str) -> bool:
    return any(ROOT.glob(path_or_pattern.rstrip("/")))


def is_in_the_repository(path: Path) -> bool:
    return path.exists() and path.resolve().is_relative_to(ROOT)


@pytest.mark.parametrize("folder", [".", ".ci", *FOLDERS])
def test_every_cited_file_is_in_the_repository(folder: str) -> None:
    files = [path for path in repository() if (path.parts[0] if len(path.parts) > 1 else ".") == folder]
    wrong = {
        f"{path} cites {cited}"
        for path in files
        if not path.name.endswith("_pb2.py")
        for text in prose(ROOT / path)
        for cited in missing(text, ROOT / path.parent)
    }
    assert not wrong, "\n".join(sorted(wrong))


@pytest.mark.parametrize(
    "cited",
    [
        "tests/unit/test_nothing.py",
        "docs/dev/nothing.md",
        "nothing.md",
        "observe/nothing.py",
        "../shared/x",
        "tools/none",
    ],
)
def test_a_file_that_is_not_there_is_found(cited: str) -> None:
    source = f'"""See {cited}."""\n\nanswer = 42  # {cited} explains it\n'
    assert [missing(text, ROOT / "docs") for text in python_prose(source)] == [{cited}, {cited}]


@pytest.mark.parametrize("cited", ["tests/conftest.py", "unit/test_cited_files.py", "../README.md", "crds/*.yaml"])
def test_a_file_that_is_there_may_be_cited(cited: str) -> None:
    assert not missing(f"See {cited}.", ROOT / "docs")


def test_a_link_starts_at_the_folder_of_its_page() -> None:
    assert not missing("[architecture](dev/architecture.md)", ROOT / "docs")
    assert missing("[architecture](architecture.md)", ROOT / "docs") == {"architecture.md"}
