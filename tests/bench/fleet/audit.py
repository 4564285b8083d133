"""Reads the API server's audit log: which requests the operator has made, and when."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

# a user's name ends with its ServiceAccount
_SEPARATOR: Final = ":"


@dataclass(frozen=True, slots=True)
class Request:
    """A request that the API server has answered; a watch when it has begun."""

    account: str
    verb: str
    resource: str  # with its subresource: cpunodes/status
    code: int
    at: float  # when it was answered, in seconds since 1970


@dataclass(frozen=True, slots=True)
class Audit:
    """The file of the log."""

    file: Path

    def follower(self, account: str) -> "Follower":
        """Follows the requests of an account from now on."""
        return Follower(self.file, account, self.file.stat().st_size)


@dataclass
class Follower:
    """The requests of one account, from a place in the log on."""

    file: Path
    account: str
    offset: int

    def new(self) -> list[Request]:
        """The requests since the last call."""
        return [request for request in self._read() if request.account == self.account]

    def _read(self) -> Iterator[Request]:
        with self.file.open("rb") as log:
            log.seek(self.offset)
            for line in log:
                if not line.endswith(b"\n"):  # the API server is writing it
                    return
                self.offset += len(line)
                if (request := _request(line)) is not None:
                    yield request


def counts(requests: Iterable[Request]) -> Counter[str]:
    """How often each verb and resource was requested."""
    return Counter(f"{request.verb} {request.resource}" for request in requests)


def _request(line: bytes) -> Request | None:
    event = json.loads(line)
    started, verb = event["stage"] == "ResponseStarted", event["verb"]
    if started != (verb == "watch"):
        return None  # a watch is logged again at its end
    target = event.get("objectRef") or {}
    parts = (target.get("resource") or event["requestURI"], target.get("subresource"))
    return Request(
        account=event["user"]["username"].rpartition(_SEPARATOR)[2],
        verb=verb,
        resource="/".join(filter(None, parts)),
        code=(event.get("responseStatus") or {}).get("code", 0),
        at=datetime.fromisoformat(event["stageTimestamp"]).timestamp(),
    )
