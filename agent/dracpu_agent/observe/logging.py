"""Configures logging: one line per event on stderr, as JSON for machines or text for people."""

import logging
import sys
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_FIRST_KEYS: Final = ("timestamp", "level", "logger", "event")


def configure(log_format: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Configures structlog, and formats the standard library's log records like its events.

    The formats are "json", "text" and "auto": text on a terminal, JSON elsewhere. Of the records, which come from
    libraries, only warnings and errors are logged.
    """
    stream = stream or sys.stderr
    threshold = logging.getLevelNamesMapping()[level.upper()]
    text = log_format == "text" or (log_format == "auto" and stream.isatty())
    prepare: list[Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if text else "iso", utc=not text),
    ]
    render = _text(colors=stream.isatty()) if text else _json()
    structlog.configure(
        processors=[*prepare, *render],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda name="": _NamedLogger(name, stream),
        cache_logger_on_first_use=False,  # modules create their loggers at import, before this call
    )
    _route_libraries(stream, max(threshold, logging.WARNING), prepare, render)


class _NamedLogger(structlog.WriteLogger):
    """Writes lines, and has the name with which a module created it."""

    def __init__(self, name: str, stream: TextIO) -> None:
        super().__init__(stream)
        self.name = name


def _json() -> list[Processor]:
    return [structlog.processors.format_exc_info, _order, structlog.processors.JSONRenderer()]


def _text(*, colors: bool) -> list[Processor]:
    # if `rich` is installed, the default formatter prints local variables, which may be tokens
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]


def _order(_logger: WrappedLogger, _method: str, event: EventDict) -> dict[str, Any]:
    """Moves the keys that every line has to its beginning, so that lines can be compared by eye."""
    first = {key: event.pop(key) for key in _FIRST_KEYS if key in event}
    return first | dict(event)


def _route_libraries(stream: TextIO, threshold: int, prepare: list[Processor], render: list[Processor]) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
            foreign_pre_chain=prepare,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    logging.captureWarnings(True)
