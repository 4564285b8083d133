"""Writes the logs of a whole cluster that runs in one process: one file for each part.

structlog and logging are configured once per process, so a context variable names the writer of each line: tasks and
threads inherit it from the code that started them.
"""

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Final, TextIO

import structlog
from structlog.typing import Processor

WRITER: Final[ContextVar[str]] = ContextVar("writer", default="sandbox")

_PREPARE: Final[tuple[Processor, ...]] = (
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False),
)
_RENDER: Final[Processor] = structlog.dev.ConsoleRenderer(
    colors=False, exception_formatter=structlog.dev.plain_traceback
)


@contextlib.contextmanager
def recorded(folder: Path, echo: TextIO | None = None) -> Iterator[None]:
    """While the block is open, appends log lines to `folder`/<writer>.log and, with `echo`, to that stream."""
    folder.mkdir(parents=True, exist_ok=True)
    files = _Files(folder, echo)
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    structlog.configure(
        processors=[*_PREPARE, _RENDER],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: structlog.WriteLogger(files),  # type: ignore[arg-type]  # it only writes
        cache_logger_on_first_use=False,  # modules get their logger at import, before this is called
    )
    root.handlers[:] = [_handler(files)]
    root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        structlog.configure(**before)
        root.handlers[:] = handlers
        root.setLevel(level)
        files.close()


class _Files:
    """Writes each line to the file of its writer."""

    def __init__(self, folder: Path, echo: TextIO | None) -> None:
        self._folder = folder
        self._echo = echo
        self._open: dict[str, TextIO] = {}

    def write(self, text: str) -> None:
        writer = WRITER.get()
        file = self._open.get(writer)
        if file is None:
            file = self._open[writer] = (self._folder / f"{writer}.log").open("a", buffering=1, encoding="utf-8")
        file.write(text)
        if self._echo is not None and text.strip():
            self._echo.write(f"{writer}: {text.rstrip()}\n")

    def flush(self) -> None:
        if self._echo is not None:
            self._echo.flush()

    def close(self) -> None:
        for file in self._open.values():
            file.close()


def _handler(files: _Files) -> logging.Handler:
    """Returns a handler for records that libraries write with the standard library's logging."""
    handler = logging.StreamHandler(files)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _RENDER],
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *_PREPARE],
        )
    )
    return handler
