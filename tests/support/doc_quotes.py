"""Finds the quotes in pages: messages and names in backticks, and sample output in blocks that are fenced as `text`.

A quoted message is a code span of several words that is neither a command nor code; `...` in it stands for anything.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from product_texts import HOLE, ROOT

_BLOCK: Final = re.compile(r"(?ms)^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$")
_INDENTED: Final = re.compile(r"(?:(?<=\n\n)|\A)(?:(?: {4}.*)?\n)+")
_SPAN: Final = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_COMMAND: Final = re.compile(r"(?:-|\$|(?:async|docker|dracpu-\w+|grep|helm|kubectl|make|rm|taskset)\b)")
_CODE: Final = re.compile(r"[][{}<>|=]|\w\(|^\S+: \S+$")
_WORD: Final = re.compile(r"(?<![\w/.\"-])[A-Za-z][a-z'-]*(?=[\s:;,.()\"]|$)")
_NAME: Final = re.compile(r"[A-Z]\w*[a-z]\w*")


@dataclass(frozen=True)
class Quote:
    """A quoted text and where it stands."""

    page: str
    line: int
    text: str
    column: str = ""  # the header of its column, when it stands in a table

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def pages() -> list[Path]:
    """Returns the pages for users and developers."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def messages(page: Path) -> list[Quote]:
    """Returns the code spans that are messages."""
    return [
        quote
        for quote in _spans(page)
        if len(_WORD.findall(quote.text)) > 1 and not _COMMAND.match(quote.text) and not _CODE.search(quote.text)
    ]


def names(page: Path) -> list[Quote]:
    """Returns the code spans that are one word with a capital: conditions, reasons, phases, kinds, feature gates."""
    return [quote for quote in _spans(page) if _NAME.fullmatch(quote.text)]


def sample_lines(page: Path) -> list[Quote]:
    """Returns the lines of blocks that are fenced as `text`."""
    text = page.read_text()
    return [
        Quote(_name(page), text.count("\n", 0, block.start("text")) + number, line.strip())
        for block in _BLOCK.finditer(text)
        if block["language"] == "text"
        for number, line in enumerate(block["text"].splitlines(), 1)
        if line.strip()
    ]


def can_say(template: str, message: str) -> bool:
    """True when the message, whose `...` stands for anything, is a part of what the template makes."""
    return re.search(".*?".join(map(re.escape, message.split("..."))), template) is not None


def is_sample_of(templates: frozenset[str], line: str) -> bool:
    """True when at least half of the line's words are those of templates that the line is made from."""
    covered: set[int] = set()
    for template in templates:
        pieces = template.split(HOLE)
        if sum(len(_WORD.findall(piece)) for piece in pieces) < 2:
            continue
        found = re.search("(.+)".join(map(re.escape, pieces)), line)
        if found is not None:
            values = [range(*found.span(number)) for number in range(1, len(pieces))]
            inside = range(*found.span())
            covered |= {at for at in inside if not any(at in value for value in values)}
    words = [word.start() for word in _WORD.finditer(line)]
    return 2 * len(covered.intersection(words)) >= len(words)


def _spans(page: Path) -> Iterator[Quote]:
    text = _BLOCK.sub(_blank, page.read_text())
    text = _INDENTED.sub(_blank, text)
    for span in _SPAN.finditer(text):
        line = text.count("\n", 0, span.start()) + 1
        yield Quote(_name(page), line, " ".join(span[1].split()), _column(text, span.start()))


def _blank(block: re.Match[str]) -> str:
    return "\n" * block[0].count("\n")


def _column(text: str, position: int) -> str:
    """Returns the header of the table's column at the position, "" outside of tables."""
    before, lines = text[:position], text[:position].splitlines()
    if not lines or not lines[-1].startswith("|"):
        return ""
    table = before[before.rfind("\n\n") + 2 :].splitlines()
    header = [cell.strip() for cell in table[0].strip("|").split("|")]
    number = lines[-1].count("|") - 1
    return header[number] if number < len(header) else ""


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))
