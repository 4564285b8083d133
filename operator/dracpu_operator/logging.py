"""The operator's log lines: those of kopf name the object that they are about."""

from structlog.typing import EventDict, WrappedLogger

from dracpu_api import logging


def configure(log_format: str, level: str) -> None:
    """Sets up logging for this process."""
    logging.configure(log_format, level, for_libraries=[_name_object])


def _name_object(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    reference = getattr(event["_record"], "k8s_ref", None)  # kopf sets it on its log records
    if reference:
        event["object"] = f"{reference.get('kind')}/{reference.get('name')}"
    return event
