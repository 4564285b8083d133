"""Collects the texts that the product can print from its sources: every text, and the names alone in quotes.

The sources are parsed, not run, so that a message counts wherever it is made. Whole packages are read, so that a module
can be moved or renamed.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from dracpu_agent.errors import ClaimError, PlacementError

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = ("agent/dracpu_agent", "operator/dracpu_operator", "crds/dracpu_api")
SANDBOX: Final = "sandbox/dracpu_sandbox"
HOLE: Final = "\0"  # stands for each value in a text

# The kubelet shows a ClaimError on the pod, the runtime a PlacementError.
_SHOWN_BY_PODS: Final = frozenset({ClaimError.__name__, PlacementError.__name__})


@dataclass(frozen=True)
class Sources:
    """All modules of some packages."""

    trees: tuple[ast.Module, ...]

    @cached_property
    def texts(self) -> frozenset[str]:
        """Returns every string and f-string that is not a docstring."""
        return frozenset(text for tree in self.trees for text in _texts_in(tree))

    @cached_property
    def names(self) -> frozenset[str]:
        """Returns the strings that are one word, and the words with capitals inside that texts contain."""
        texts = self.texts
        alone = {text for text in texts if text.isalnum()}
        return frozenset(alone | {word for text in texts for word in re.findall(r"\b[A-Z]+[a-z]+[A-Z]\w*", text)})

    @cached_property
    def classes(self) -> frozenset[str]:
        """Returns the names of all classes."""
        return frozenset(node.name for tree in self.trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))

    @cached_property
    def texts_that_pods_show(self) -> frozenset[str]:
        """Returns the texts in functions and classes that raise, or are, an error that pods show."""
        errors = self._descendants(_SHOWN_BY_PODS)
        return frozenset(
            text
            for tree in self.trees
            for node in ast.walk(tree)
            if (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _raises(node, errors))
            or (isinstance(node, ast.ClassDef) and node.name in errors)
            for text in _texts_in(node)
        )

    def _descendants(self, wanted: frozenset[str]) -> frozenset[str]:
        classes = [node for tree in self.trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        found = wanted | {node.name for node in classes if not wanted.isdisjoint(map(_last_name, node.bases))}
        return found if found == wanted else self._descendants(found)


@cache
def sources(*packages: str) -> Sources:
    """Parses these packages, less what is generated."""
    files = [file for package in packages for file in sorted((ROOT / package).rglob("*.py"))]
    return Sources(tuple(ast.parse(file.read_text()) for file in files if not file.name.endswith("_pb2.py")))


def _texts_in(tree: ast.AST) -> Iterator[str]:
    nodes = list(ast.walk(tree))
    unwanted = {id(docstring) for node in nodes if (docstring := _docstring(node)) is not None}
    unwanted |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if id(node) in unwanted:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield _on_one_line(node.value)
        elif isinstance(node, ast.JoinedStr):
            yield _on_one_line("".join(map(_constant_or_hole, node.values)))


def _docstring(node: ast.AST) -> ast.expr | None:
    """Returns the string that a module, class or function begins with, if any."""
    match node:
        case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            match node.body:
                case [ast.Expr(ast.Constant(str()) as docstring), *_]:
                    return docstring
    return None


def _constant_or_hole(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else HOLE


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _raises(function: ast.AST, errors: frozenset[str]) -> bool:
    raised = (node.exc for node in ast.walk(function) if isinstance(node, ast.Raise))
    return any(isinstance(error, ast.Call) and _last_name(error.func) in errors for error in raised)


def _last_name(expression: ast.expr) -> str:
    match expression:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
    return ""
