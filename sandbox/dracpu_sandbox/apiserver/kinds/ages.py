"""Ages as `kubectl get` shows them: `5m30s`."""

from datetime import UTC, datetime
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY


def parse_time(text: str) -> datetime | None:
    """Parses a time in an object, with or without fractions of a second; returns None when the text is not a time."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def age(text: object, now: datetime) -> str:
    """Renders the time that has passed since a time in an object."""
    moment = parse_time(text) if isinstance(text, str) else None
    return duration((now - moment).total_seconds()) if moment is not None else "<unknown>"


def duration(seconds: float) -> str:
    """Renders a duration with one or two units, as kubectl does."""
    if seconds < -1:
        return "<invalid>"
    whole = max(0, int(seconds))
    for below, unit, letter, part, small in _STEPS:
        if whole < below:
            big, rest = divmod(whole, unit)
            return f"{big}{letter}" + (f"{rest // part}{small}" if part and rest // part else "")
    return f"{whole // _YEAR}y"


# upper limit in seconds, unit, its letter, smaller unit (0: none), its letter
_STEPS: Final = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)
