"""The formats of texts and numbers that a schema may ask for."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, Final
from urllib.parse import urlsplit

_DURATION: Final = re.compile(
    r"[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*)"
    r"|[0-9]+ ?(ns|nano|us|µs|μs|micro|ms|milli|s|sec|m|min|h|hr|hour|d|day|w|week|wk)s?"
)
_HOSTNAME: Final = re.compile(
    r"(?=.{1,255}$)[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?)*"
)
_EMAIL: Final = re.compile(r"[^@\s<>]+@[^@\s<>.]+(\.[^@\s<>.]+)*")
_MAC: Final = re.compile(r"([0-9A-Fa-f]{2}[-:]){5}([0-9A-Fa-f]{2}[-:]?){1}")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}")
_DATE_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:?\d{2})")
_RANGES: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


def _matches(pattern: re.Pattern[str]) -> Callable[[str], object]:
    return pattern.fullmatch


def _parses(parse: Callable[[str], object]) -> Callable[[str], object]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return check


def _is_date_time(text: str) -> bool:
    if not _DATE_TIME.fullmatch(text):
        return False
    return bool(_parses(datetime.fromisoformat)(re.sub(r"\.\d+", "", text.upper()).replace("Z", "+00:00")))


def _is_cidr(text: str) -> bool:
    return "/" in text and bool(_parses(lambda told: ipaddress.ip_network(told, strict=False))(text))


def _is_uri(text: str) -> bool:
    if re.search(r"[\s<>\"{}|\\^`]", text):
        return False
    parts = urlsplit(text)
    return bool(parts.scheme or text.startswith("/"))


_TEXTS: Final[Mapping[str, Callable[[str], object]]] = {
    "byte": _parses(lambda text: base64.b64decode(text, validate=True)),
    "cidr": _is_cidr,
    "date": _parses(date.fromisoformat),
    "date-time": _is_date_time,
    "datetime": _is_date_time,
    "duration": _matches(_DURATION),
    "email": _matches(_EMAIL),
    "hostname": _matches(_HOSTNAME),
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "mac": _matches(_MAC),
    "uri": _is_uri,
    "uuid": _matches(_UUID),
}


def is_formatted(name: str, value: Any) -> bool:
    """Whether a value is what its format says. Formats that are not known here hold of everything."""
    if isinstance(value, str):
        check = _TEXTS.get(name)
        return check is None or bool(check(value))
    low, high = _RANGES.get(name, (value, value))
    return bool(low <= value <= high)
