"""How the operator logs: one line an event on stderr, JSON for machines, text for people."""

import logging
import sys
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_FIRST_KEYS: Final = ("timestamp", "level", "event", "object")


def configure(log_format: str, level: str, stream: TextIO | None = None) -> None:
    """Sets up structlog, and routes into it what kopf and other libraries say, from "warning" on."""
    stream = stream or sys.stderr
    threshold = logging.getLevelNamesMapping()[level.upper()]
    text = log_format == "text"
    prepare: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if text else "iso", utc=not text),
    ]
    render: list[Processor] = _text(colors=stream.isatty()) if text else _json()
    structlog.configure(
        processors=[*prepare, *render],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=False,  # modules get theirs at import, before this is called
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
            foreign_pre_chain=[structlog.stdlib.add_logger_name, _name_object, *prepare],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(threshold, logging.WARNING))
    logging.captureWarnings(True)


def _name_object(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """kopf attaches what a line is about to the record."""
    about = getattr(event["_record"], "k8s_ref", None)
    if about:
        event["object"] = f"{about.get('kind')}/{about.get('name')}"
    return event


def _json() -> list[Processor]:
    return [structlog.processors.format_exc_info, _order, structlog.processors.JSONRenderer()]


def _text(*, colors: bool) -> list[Processor]:
    # the default formatter would print local variables, tokens among them, where `rich` is installed
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]


def _order(_logger: WrappedLogger, _method: str, event: EventDict) -> dict[str, Any]:
    """What every line has stands first, so that a column of lines can be read."""
    first = {key: event.pop(key) for key in _FIRST_KEYS if key in event}
    return first | dict(event)
