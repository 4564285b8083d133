"""Certificates are rotated while the agent runs: new connections use the new ones."""

import dataclasses
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from fake_api import FakeApi
from tls_material import CERTIFICATE, KEY, NEXT_CERTIFICATE, NEXT_KEY

from dracpu_agent.cluster.access import ApiAccess, from_kubeconfig, in_cluster
from dracpu_agent.cluster.client import ApiClient
from dracpu_api.errors import UnavailableError
from dracpu_api.resources import NODES

NODE = {"metadata": {"name": "n1"}}


def replace(path: Path, text: str) -> None:
    """Replaces a file by rename, as the kubelet does."""
    following = path.with_name(f"{path.name}.next")
    following.write_text(text)
    following.replace(path)


class Server:
    """The server's certificate, which a test rotates while the server runs."""

    def __init__(self, folder: Path) -> None:
        self._pem = folder / "server.pem"
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.use(CERTIFICATE, KEY)

    def use(self, certificate: str, key: str) -> None:
        """Uses a certificate for the connections from now on."""
        self._pem.write_text(certificate + key)
        self.tls.load_cert_chain(self._pem)

    def require_client_certificate(self, authority: str) -> None:
        """Accepts only clients with a certificate of the authority."""
        self.tls.load_verify_locations(cadata=authority)
        self.tls.verify_mode = ssl.CERT_REQUIRED


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def pod(url: str, folder: Path) -> ApiAccess:
    """The access of a pod whose ServiceAccount trusts the first authority."""
    (folder / "ca.crt").write_text(CERTIFICATE)
    (folder / "token").write_text("secret")
    parts = urlsplit(url)
    environ = {"KUBERNETES_SERVICE_HOST": str(parts.hostname), "KUBERNETES_SERVICE_PORT": str(parts.port)}
    return in_cluster(environ, folder)


def kubeconfig(url: str, folder: Path) -> ApiAccess:
    """The access of a kubeconfig that refers to files: ca.crt, client.crt and client.key."""
    (folder / "ca.crt").write_text(CERTIFICATE)
    (folder / "client.crt").write_text(CERTIFICATE)
    (folder / "client.key").write_text(KEY)
    text = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority": "ca.crt"}}],
        "users": [{"name": "u", "user": {"client-certificate": "client.crt", "client-key": "client.key"}}],
    }
    (folder / "config").write_text(yaml.safe_dump(text))
    return from_kubeconfig(folder / "config")


@pytest.mark.parametrize("access_of", [pod, kubeconfig])
async def test_an_authority_that_was_rotated_is_trusted_without_a_restart(tmp_path, server, access_of):
    async with FakeApi(tls=server.tls) as api:
        api.add("nodes", NODE)
        access = access_of(api.url, tmp_path)
        async with ApiClient(access, version="test") as former:
            await former.get(NODES, "n1")
            server.use(NEXT_CERTIFICATE, NEXT_KEY)
            await former.get(NODES, "n1")  # on the connection that is open
            async with ApiClient(access, version="test") as client:
                with pytest.raises(UnavailableError, match="not trusted"):
                    await client.get(NODES, "n1")
                replace(tmp_path / "ca.crt", NEXT_CERTIFICATE)
                await client.get(NODES, "n1")
            await former.get(NODES, "n1")


@pytest.mark.parametrize("damage", ["", "not PEM"])
async def test_while_the_new_authority_cannot_be_read_the_former_one_is_trusted(tmp_path, server, damage):
    async with FakeApi(tls=server.tls) as api:
        api.add("nodes", NODE)
        access = pod(api.url, tmp_path)
        if damage:
            replace(tmp_path / "ca.crt", damage)
        else:
            (tmp_path / "ca.crt").unlink()
        async with ApiClient(access, version="test") as client:
            await client.get(NODES, "n1")
        server.use(NEXT_CERTIFICATE, NEXT_KEY)
        replace(tmp_path / "ca.crt", NEXT_CERTIFICATE)
        async with ApiClient(access, version="test") as client:
            await client.get(NODES, "n1")


async def test_a_client_certificate_that_was_renewed_is_used_once_its_key_is_there_too(tmp_path):
    before, after = Server(tmp_path), Server(tmp_path)
    before.require_client_certificate(CERTIFICATE)
    after.require_client_certificate(NEXT_CERTIFICATE)
    async with FakeApi(tls=before.tls) as api, FakeApi(tls=after.tls) as renewed:
        for server in (api, renewed):
            server.add("nodes", NODE)
        access = kubeconfig(api.url, tmp_path)
        replace(tmp_path / "client.crt", NEXT_CERTIFICATE)
        async with ApiClient(access, version="test") as client:
            await client.get(NODES, "n1")
        replace(tmp_path / "client.key", NEXT_KEY)
        async with ApiClient(dataclasses.replace(access, server=renewed.url), version="test") as client:
            await client.get(NODES, "n1")


async def test_the_context_is_built_again_only_when_a_file_has_changed(tmp_path):
    access = kubeconfig("https://127.0.0.1:1", tmp_path)
    assert access.tls is not None
    first = access.tls()
    assert access.tls() is first
    replace(tmp_path / "ca.crt", NEXT_CERTIFICATE)
    second = access.tls()
    assert second is not first
    assert access.tls() is second
