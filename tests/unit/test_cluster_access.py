"""The access to the API server from a pod's environment or a kubeconfig, and the errors in them."""

import base64
import itertools
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tls_material import CERTIFICATE, KEY

from dracpu_agent.cluster.access import ApiAccess, TokenFile, from_kubeconfig, in_cluster
from dracpu_agent.cluster.client import LineSplitter
from dracpu_agent.cluster.errors import ClusterConfigError


def kubeconfig(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> ApiAccess:
    file = path / "config"
    contexts = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
    clusters, users = [{"name": "c", "cluster": cluster}], [{"name": "u", "user": user}]
    file.write_text(
        yaml.safe_dump({"current-context": "x", "contexts": contexts, "clusters": clusters, "users": users})
    )
    return from_kubeconfig(file)


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "ca.crt").write_text(CERTIFICATE)
    (tmp_path / "token").write_text("secret-1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("host", "server"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_a_pod_finds_the_server_in_its_environment(account: Path, host: str, server: str) -> None:
    access = in_cluster({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}, account)
    assert access.server == server
    assert access.tls is not None
    assert access.tls().verify_mode == ssl.CERT_REQUIRED
    assert access.token is not None
    assert access.token() == "secret-1"
    assert "secret-1" not in repr(access)


def test_a_token_is_read_again_after_its_file_was_replaced(account: Path) -> None:
    token = TokenFile(account / "token")
    assert token() == "secret-1"
    (account / "next").write_text("secret-2")
    (account / "next").replace(account / "token")
    assert token() == "secret-2"


def test_outside_of_a_pod_the_error_names_the_option_to_use() -> None:
    with pytest.raises(ClusterConfigError, match="--kubeconfig"):
        in_cluster({})


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_missing_credential_is_reported(account: Path, missing: str) -> None:
    (account / missing).unlink()
    with pytest.raises(ClusterConfigError, match=missing):
        in_cluster({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, account)


def test_a_kubeconfig_contains_certificates_or_refers_to_files(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    inline = base64.b64encode(CERTIFICATE.encode()).decode()
    key = base64.b64encode(KEY.encode()).decode()
    for cluster in ({"certificate-authority": "ca.pem"}, {"certificate-authority-data": inline}):
        user = {"client-certificate-data": inline, "client-key-data": key}
        access = kubeconfig(tmp_path, {"server": "https://10.0.0.1:6443/", **cluster}, user)
        assert access.server == "https://10.0.0.1:6443"
        assert access.tls is not None
        assert len(access.tls().get_ca_certs()) == 1
        assert access.tls().verify_mode == ssl.CERT_REQUIRED


def test_certificates_are_not_verified_only_if_the_kubeconfig_says_so(tmp_path: Path) -> None:
    access = kubeconfig(tmp_path, {"server": "https://10.0.0.1", "insecure-skip-tls-verify": True}, {})
    assert access.tls is not None
    assert access.tls().verify_mode == ssl.CERT_NONE


def test_a_kubeconfig_contains_a_token_or_refers_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("from-file")
    for user, token in (({"token": "inline"}, "inline"), ({"tokenFile": "t"}, "from-file")):
        access = kubeconfig(tmp_path, {"server": "http://127.0.0.1:1"}, user)
        assert access.token is not None
        assert access.token() == token
        assert access.tls is None


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({"server": "https://h"}, {"exec": {"command": "x"}}, '"exec" is not supported'),
        ({"server": "https://h", "proxy-url": "http://p"}, {}, "proxy-url"),
        ({"server": "ftp://h"}, {}, "is not an https:// or http:// address"),
        ({}, {}, "is not an https:// or http:// address"),
        ({"server": "https://h", "certificate-authority-data": "%"}, {}, "not base64"),
        ({"server": "https://h", "certificate-authority": "none.pem"}, {}, "cannot read"),
        ({"server": "https://h", "certificate-authority-data": "bm8="}, {}, "not PEM"),
        ({"server": "https://h"}, {"client-certificate-data": "bm8=", "client-key-data": "bm8="}, "client certificate"),
    ],
)
def test_an_error_in_a_kubeconfig_is_reported(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], message: str
) -> None:
    with pytest.raises(ClusterConfigError, match=message):
        kubeconfig(tmp_path, cluster, user)


def test_the_error_about_an_invalid_kubeconfig_does_not_quote_it(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("users:\n- token: 'secret\n  x: {")
    with pytest.raises(ClusterConfigError) as caught:
        from_kubeconfig(tmp_path / "config")
    assert "secret" not in str(caught.value)
    with pytest.raises(ClusterConfigError, match=os.strerror(2)):
        from_kubeconfig(tmp_path / "none")


@given(st.lists(st.binary(max_size=30)), st.lists(st.integers(0, 200), max_size=8))
def test_lines_are_found_wherever_the_stream_is_split(lines: list[bytes], cuts: list[int]) -> None:
    lines = [line.replace(b"\n", b"") for line in lines]
    stream = b"".join(line + b"\n" for line in lines)
    edges = [0, *sorted(cuts), len(stream)]
    splitter = LineSplitter()
    found = [line for start, end in itertools.pairwise(edges) for line in splitter.feed(stream[start:end])]
    assert found == [line for line in lines if line]
