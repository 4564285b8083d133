"""The HTTP connection to the API server: TLS, proxy and token as a configuration of kubernetes_asyncio describes them.

The requests of kubernetes_asyncio's own client cost twice as much: each of them looks for a proxy and for a .netrc file
in threads, and copies its body field by field. A rollout to 15,000 nodes is as many requests.
"""

import json
import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes_asyncio.client import Configuration

from dracpu_api.resources import Json

_READ_AHEAD: Final = 2**21  # a watch's line contains a whole object, of up to 1.5 MiB
_NO_LIMIT: Final = aiohttp.ClientTimeout(total=None)  # every caller has one of its own


class Connection:
    """A connection as an async context manager; `agent` names the client to the API server."""

    def __init__(self, configuration: Configuration, agent: str) -> None:
        self._configuration = configuration
        self._host = str(configuration.host).rstrip("/")
        self._agent = agent
        self._proxy = configuration.proxy or _proxy_of_environment(self._host)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        configuration = self._configuration
        connector = aiohttp.TCPConnector(limit=configuration.connection_pool_maxsize or 0, ssl=_tls(configuration))
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=_NO_LIMIT,
            read_bufsize=_READ_AHEAD,
            headers={"User-Agent": self._agent},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def send(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]] | None = None,
        *,
        body: Json | None = None,
        headers: Mapping[str, str],
    ) -> aiohttp.ClientResponse:
        """Sends a request; the answer's body is still to be read. Raises aiohttp.ClientError and OSError."""
        assert self._session is not None
        configuration = self._configuration
        token = await configuration.get_api_key_with_prefix("BearerToken")  # which is replaced every hour
        return await self._session.request(
            method,
            f"{self._host}{path}{'?' if query else ''}{urlencode(query or ())}",
            data=None if body is None else json.dumps(body).encode(),
            headers={**headers, **({"Authorization": token} if token else {})},
            proxy=self._proxy,
            proxy_headers=configuration.proxy_headers,
            server_hostname=configuration.tls_server_name,
        )


def _tls(configuration: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _proxy_of_environment(server: str) -> str | None:
    """The proxy in HTTPS_PROXY or HTTP_PROXY, unless NO_PROXY excludes the server."""
    parts = urlsplit(server)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
