"""How to reach the API server, for both clients in this process: our own and kopf's."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import aiohttp
import kopf
import yaml
from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config.config_exception import ConfigException
from yarl import URL

from dracpu_api.resources import CONFIGS
from dracpu_operator.errors import AccessError
from dracpu_operator.known.standing import Standing

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


async def load(kubeconfig: Path | None) -> Configuration:
    """Reads a kubeconfig file, or the pod's service account when there is none."""
    configuration = Configuration()
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # the client has no types
        else:
            await config.load_kube_config(
                config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
            )
    except ConfigException as error:
        if kubeconfig is None:
            raise AccessError(f"{error} Outside of a pod, give --kubeconfig.") from error
        raise AccessError(f"the kubeconfig {kubeconfig} is missing, or not complete: {error}") from error
    except yaml.YAMLError as error:  # its message is left out: it quotes the line, which may hold credentials
        raise AccessError(f"the kubeconfig {kubeconfig} is not YAML") from error
    if not configuration.host:
        raise AccessError(f"the kubeconfig {kubeconfig} names no server")
    # Python 3.13 is strict by default and refuses certificate authorities without a key usage: some clusters have them
    configuration.disable_strict_ssl_verification = True
    return configuration


def own_namespace(environment: Mapping[str, str] = os.environ) -> str:
    """The namespace of the pod that this process runs in; "" outside of a pod."""
    named = environment.get("POD_NAMESPACE", "")
    if named:
        return named
    try:
        return _NAMESPACE_FILE.read_text().strip()
    except OSError:
        return ""


class LenientConnection(kopf.ConnectionInfo):
    """kopf's connection, without Python 3.13's strict check of certificate authorities."""

    def as_ssl_context(self) -> ssl.SSLContext:
        context = super().as_ssl_context()
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


async def login(kubeconfig: Path | None, standing: Standing) -> kopf.AiohttpSession:
    """The access for kopf. kopf calls this again when the API server refuses the token: tokens are replaced hourly.
    What happens to kopf's watch of configs is noted in `standing`, because kopf itself reports nothing of it."""
    configuration = await load(kubeconfig)
    header = await configuration.get_api_key_with_prefix("BearerToken")
    scheme, _, token = (header or "").partition(" ")
    connection = LenientConnection(
        server=str(configuration.host),
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
    )
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=connection.as_ssl_context()),
        headers=connection.as_http_headers(),
        proxy=connection.proxy_url,
        trust_env=connection.trust_env,
        trace_configs=[_noting(standing)],
    )
    return kopf.AiohttpSession(server=connection.server, aiohttp_session=session)


def _noting(standing: Standing) -> aiohttp.TraceConfig:
    """Notes the lists and watches of configs among the requests of a session."""

    def is_watch(url: URL) -> bool | None:
        return "watch" in url.query if url.path.endswith(CONFIGS.path()) else None

    async def on_start(_: object, __: object, request: aiohttp.TraceRequestStartParams) -> None:
        watches = is_watch(request.url)
        if watches is not None:
            standing.requested()
        if watches:
            standing.ended()  # kopf opens one watch after the other

    async def on_answer(_: object, __: object, request: aiohttp.TraceRequestEndParams) -> None:
        watches, answer = is_watch(request.url), request.response
        if watches is None:
            return
        if answer.status >= 300:
            standing.failed(f"the API server has answered {answer.status} {answer.reason}")
        elif watches:
            standing.accepted()
        else:
            standing.listed()

    async def on_error(_: object, __: object, request: aiohttp.TraceRequestExceptionParams) -> None:
        if is_watch(request.url) is not None:
            standing.failed(str(request.exception) or type(request.exception).__name__)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(on_start)
    trace.on_request_end.append(on_answer)
    trace.on_request_exception.append(on_error)
    return trace
