"""Log lines as JSON for machines and as text for people."""

import io
import json
import logging
import secrets
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
import structlog

from dracpu_agent.observe.logging import configure


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
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


def test_a_line_is_a_json_object_that_begins_with_the_common_keys() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    structlog.get_logger("claims").info("claim prepared", uid="u-1", cpus="2-3")
    (line,) = lines(stream)
    assert list(line) == ["timestamp", "level", "logger", "event", "uid", "cpus"]
    assert (line["level"], line["logger"], line["event"], line["cpus"]) == ("info", "claims", "claim prepared", "2-3")
    assert line["timestamp"].endswith("Z")


def test_loggers_that_exist_already_are_configured_too() -> None:
    early = structlog.get_logger("early")
    stream = io.StringIO()
    configure("json", "info", stream)
    early.info("logged")
    assert lines(stream)[0]["logger"] == "early"


@pytest.mark.parametrize("level, logged", [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)], ids=str)
def test_events_below_the_level_are_not_logged(level: str, logged: int) -> None:
    stream = io.StringIO()
    configure("json", level, stream)
    log = structlog.get_logger()
    for method in (log.debug, log.info, log.warning, log.error):
        method("something")
    assert len(lines(stream)) == logged


def test_a_traceback_is_part_of_its_line() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    try:
        fail("broken")
    except ValueError:
        structlog.get_logger().exception("claim failed")
    (line,) = lines(stream)
    assert line["level"] == "error"
    assert line["exception"].endswith("ValueError: broken")


def test_warnings_and_errors_of_libraries_are_logged_in_the_same_format() -> None:
    stream = io.StringIO()
    configure("json", "debug", stream)
    logging.getLogger("asyncio").info("using selector")
    logging.getLogger("grpc").warning("channel %s broke", "a")
    (line,) = lines(stream)
    assert (line["logger"], line["level"], line["event"]) == ("grpc", "warning", "channel a broke")


def test_a_traceback_that_a_library_logs_is_part_of_its_line() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    try:
        fail("broken")
    except ValueError:
        logging.getLogger("asyncio").exception("task failed")
    (line,) = lines(stream)
    assert line["event"] == "task failed"
    assert line["exception"].endswith("ValueError: broken")


def test_python_warnings_are_logged() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old thing", UserWarning, stacklevel=1)
    assert "old thing" in lines(stream)[0]["event"]


def test_after_configuring_twice_each_event_is_logged_once() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    configure("json", "info", stream)
    structlog.get_logger().info("ours")
    logging.getLogger("grpc").error("theirs")
    assert [line["event"] for line in lines(stream)] == ["ours", "theirs"]


@pytest.mark.parametrize(
    "log_format, stream, json_expected",
    [
        ("json", Terminal(), True),
        ("auto", Terminal(), False),
        ("auto", io.StringIO(), True),
        ("text", io.StringIO(), False),
    ],
)
def test_the_automatic_format_is_text_on_a_terminal(log_format: str, stream: io.StringIO, json_expected: bool) -> None:
    configure(log_format, "info", stream)
    structlog.get_logger("claims").info("claim prepared", cpus="2-3")
    output = stream.getvalue()
    assert "claim prepared" in output
    assert output.startswith("{") is json_expected
    assert ("\x1b" in output) is (not json_expected and stream.isatty())


def test_a_traceback_as_text_does_not_contain_local_variables() -> None:
    stream = io.StringIO()
    configure("text", "info", stream)
    token = secrets.token_hex(8)
    try:
        fail(f"{len(token)} characters")
    except ValueError:
        structlog.get_logger().exception("call failed")
    assert "ValueError: 16 characters" in stream.getvalue()
    assert token not in stream.getvalue()
