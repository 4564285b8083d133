"""The address of a server, from its URL."""

import re
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

from dracpu_agent.http1.message import HttpError

_PORTS: Final = {"https": 443, "http": 80}
_VISIBLE: Final = re.compile(r"[!-~]+")


class OriginError(HttpError):
    """The server's address is invalid."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port of a server, and the prefix of all its paths."""

    secure: bool
    host: str  # without the brackets of IPv6
    port: int
    authority: str  # as in the Host header
    base: str  # prefix of every path, usually empty

    @classmethod
    def parse(cls, url: str) -> Self:
        """From "https://10.96.0.1:443", "http://[::1]:8080" or "https://proxy.example/clusters/one"."""
        try:
            parts = urlsplit(url)
            port = parts.port or _PORTS[parts.scheme]
        except (ValueError, KeyError) as error:
            raise OriginError("the server's address needs https:// or http:// and a valid port") from error
        if not parts.hostname or parts.username is not None or parts.query or parts.fragment:
            raise OriginError("the server's address needs a host, and may have only a port and a path besides")
        if not _VISIBLE.fullmatch(url):
            raise OriginError("the server's address has spaces or characters that are not ASCII")
        return cls(parts.scheme == "https", parts.hostname, port, parts.netloc, parts.path.rstrip("/"))
