"""How operator and agent log: one line for each event on stderr, as JSON for machines or as text for people."""

import logging
import sys
from collections.abc import Sequence
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_FIRST_KEYS: Final = ("timestamp", "level", "logger", "event", "object")


def configure(
    log_format: str, level: str, stream: TextIO | None = None, *, for_libraries: Sequence[Processor] = ()
) -> None:
    """Sets up structlog, and sends through it what libraries log with the standard library's logging.

    `log_format` is "json" or "text". Of libraries, only warnings and errors are logged. `for_libraries` are processors
    of their events, whose log record is in `_record`.
    """
    stream = stream or sys.stderr
    threshold = logging.getLevelNamesMapping()[level.upper()]
    text = log_format == "text"
    prepare: list[Processor] = [
        _add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if text else "iso", utc=not text),
    ]
    render = _text(colors=stream.isatty()) if text else _json()
    structlog.configure(
        processors=[*prepare, *render],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda name="": _NamedLogger(name, stream),
        cache_logger_on_first_use=False,  # modules create their loggers when they are imported, before this is called
    )
    _send_through(stream, max(threshold, logging.WARNING), [*for_libraries, *prepare], render)


class _NamedLogger(structlog.WriteLogger):
    """Writes lines, and keeps the name that was given to `structlog.get_logger`."""

    def __init__(self, name: str, stream: TextIO) -> None:
        super().__init__(stream)
        self.name = name


def _add_logger_name(logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    record = event.get("_record")
    name = logger.name if record is None else record.name
    if name:
        event["logger"] = name
    return event


def _json() -> list[Processor]:
    return [structlog.processors.format_exc_info, _order, structlog.processors.JSONRenderer()]


def _text(*, colors: bool) -> list[Processor]:
    # where `rich` is installed, the default formatter prints local variables, which may hold tokens
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]


def _order(_logger: WrappedLogger, _method: str, event: EventDict) -> dict[str, Any]:
    """Puts the keys of every line first, so that lines below each other are easy to compare."""
    first = {key: event.pop(key) for key in _FIRST_KEYS if key in event}
    return first | dict(event)


def _send_through(stream: TextIO, threshold: int, prepare: list[Processor], render: list[Processor]) -> None:
    """Formats what libraries log in the same way."""
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
