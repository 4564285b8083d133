"""How to reach the API server, for both clients in this process: our own and kopf's."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import kopf
import yaml
from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config.config_exception import ConfigException

from dracpu_operator.errors import AccessError

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


async def login(kubeconfig: Path | None) -> kopf.ConnectionInfo:
    """The access for kopf. kopf calls this again when the API server refuses the token: tokens are replaced hourly."""
    configuration = await load(kubeconfig)
    header = await configuration.get_api_key_with_prefix("BearerToken")
    scheme, _, token = (header or "").partition(" ")
    return LenientConnection(
        server=str(configuration.host),
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
    )
