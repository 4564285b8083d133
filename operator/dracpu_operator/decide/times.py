"""Reads times that agents and users have written. Pure.

The API server accepts times with which nothing can be computed, such as the last second of the year 9999: one of them
must not end the operator.
"""

from datetime import UTC, datetime
from typing import Final

TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"  # RFC 3339 in UTC, which sorts as text

_YEARS: Final = range(1970, 9000)


def time_of(text: object) -> datetime | None:
    """A time in RFC 3339, in UTC; None when it is missing, or when it is no such time of a usual year."""
    try:
        parsed = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    if parsed.tzinfo is None or parsed.year not in _YEARS:
        return None
    return parsed.astimezone(UTC)


def written_time(text: object) -> str:
    """A time as `TIME_FORMAT` has it; "" when it is missing or cannot be used."""
    parsed = time_of(text)
    return "" if parsed is None else parsed.strftime(TIME_FORMAT)
