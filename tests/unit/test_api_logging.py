"""The format of log lines, for machines and for people."""

import io
import json
import logging
import secrets
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
import structlog
from structlog.typing import EventDict

from dracpu_api.logging import configure


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def fail(message: str) -> NoReturn:
    raise ValueError(message)


def test_a_line_is_one_json_object_whose_first_keys_are_those_of_every_line() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    structlog.get_logger("claims").info("claim prepared", uid="u-1", cpus="2-3")
    (line,) = lines(stream)
    assert list(line) == ["timestamp", "level", "logger", "event", "uid", "cpus"]
    assert (line["level"], line["logger"], line["event"], line["cpus"]) == ("info", "claims", "claim prepared", "2-3")
    assert line["timestamp"].endswith("Z")


def test_loggers_that_were_created_before_are_configured_too() -> None:
    early = structlog.get_logger("early")
    stream = io.StringIO()
    configure("json", "info", stream)
    early.info("said")
    assert lines(stream)[0]["logger"] == "early"


@pytest.mark.parametrize("level, heard", [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)], ids=str)
def test_events_below_the_level_are_not_logged(level: str, heard: int) -> None:
    stream = io.StringIO()
    configure("json", level, stream)
    log = structlog.get_logger()
    for say in (log.debug, log.info, log.warning, log.error):
        say("something")
    assert len(lines(stream)) == heard


def test_a_traceback_stays_on_its_line() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    try:
        fail("broken")
    except ValueError:
        structlog.get_logger().exception("claim failed")
    (line,) = lines(stream)
    assert line["level"] == "error"
    assert line["exception"].endswith("ValueError: broken")


def test_warnings_and_errors_of_libraries_are_logged_in_the_same_form() -> None:
    stream = io.StringIO()
    configure("json", "debug", stream)
    logging.getLogger("asyncio").info("using selector")
    logging.getLogger("grpc").warning("channel %s broke", "a")
    (line,) = lines(stream)
    assert (line["logger"], line["level"], line["event"]) == ("grpc", "warning", "channel a broke")


def test_a_logger_without_a_name_adds_none() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    structlog.get_logger().info("ours")
    assert list(lines(stream)[0]) == ["timestamp", "level", "event"]


def test_events_of_libraries_pass_through_the_given_processors() -> None:
    def about(_logger: Any, _method: str, event: EventDict) -> EventDict:
        return {**event, "object": f"Node/{event['_record'].node}"}

    stream = io.StringIO()
    configure("json", "info", stream, for_libraries=[about])
    logging.getLogger("kopf").warning("gone", extra={"node": "n1"})
    structlog.get_logger().info("ours")
    assert [line.get("object") for line in lines(stream)] == ["Node/n1", None]


def test_exceptions_that_libraries_log_stay_on_their_line() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    try:
        fail("broken")
    except ValueError:
        logging.getLogger("asyncio").exception("task failed")
    (line,) = lines(stream)
    assert line["event"] == "task failed"
    assert line["exception"].endswith("ValueError: broken")


def test_warnings_are_lines_too() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old thing", UserWarning, stacklevel=1)
    assert "old thing" in lines(stream)[0]["event"]


def test_configuring_twice_logs_every_event_once() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    configure("json", "info", stream)
    structlog.get_logger().info("ours")
    logging.getLogger("grpc").error("theirs")
    assert [line["event"] for line in lines(stream)] == ["ours", "theirs"]


@pytest.mark.parametrize(
    "log_format, stream, json_expected",
    [("json", Terminal(), True), ("text", Terminal(), False), ("text", io.StringIO(), False)],
)
def test_text_has_colors_on_a_terminal_only(log_format: str, stream: io.StringIO, json_expected: bool) -> None:
    configure(log_format, "info", stream)
    structlog.get_logger("claims").info("claim prepared", cpus="2-3")
    said = stream.getvalue()
    assert "claim prepared" in said
    assert said.startswith("{") is json_expected
    assert ("\x1b" in said) is (not json_expected and stream.isatty())


def test_text_never_shows_local_variables() -> None:
    stream = io.StringIO()
    configure("text", "info", stream)
    token = secrets.token_hex(8)
    try:
        fail(f"{len(token)} characters")
    except ValueError:
        structlog.get_logger().exception("call failed")
    assert "ValueError: 16 characters" in stream.getvalue()
    assert token not in stream.getvalue()
