"""The access to the API server: from inside a pod, or with a kubeconfig file.

Credentials and certificates that are in files are replaced while the agent runs, and are read again then. They never
appear in a repr, a log line or an error.
"""

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog

from dracpu_agent.cluster.errors import ClusterConfigError

log = structlog.stdlib.get_logger(__name__)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_NOT_SUPPORTED: Final = ("exec", "auth-provider", "username", "password")

_Version = tuple[int, int, int]  # of a file: it differs after each replacement


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """The API server's address and the agent's credentials."""

    server: str  # "https://10.96.0.1:443", without a slash at the end
    tls: Callable[[], ssl.SSLContext] | None = field(default=None, repr=False)  # for a new connection; None: plain HTTP
    server_name: str | None = None  # the name in the server's certificate, if the address is another
    token: Callable[[], str] | None = field(default=None, repr=False)


class TokenFile:
    """Reads a token again when its file changes: the kubelet replaces it about every hour."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: _Version | None = None
        self._token = ""

    def __call__(self) -> str:
        # the file is on a tmpfs: stat takes microseconds, less than using a thread
        try:
            version = _version(self._path)
            if version != self._version:
                self._token = self._path.read_text().strip()
                self._version = version
        except OSError as error:
            raise ClusterConfigError(f"cannot read the token {self._path}: {error.strerror}") from error
        return self._token


class TlsFiles:
    """Builds the TLS context for new connections again when one of its files changes, as when the cluster's certificate
    authority is rotated.

    While the new files cannot be used, for example because only one of a certificate and its key has been replaced, the
    former context stays in use and the next connection tries again.
    """

    def __init__(self, build: Callable[[], ssl.SSLContext], files: Sequence[Path]) -> None:
        self._build = build
        self._files = files
        self._versions = self._present_versions()
        self._context = build()
        self._problem = ""

    def __call__(self) -> ssl.SSLContext:
        versions = self._present_versions()
        if versions == self._versions:
            return self._context
        try:
            self._context = self._build()
        except ClusterConfigError as error:
            if str(error) != self._problem:
                log.warning("certificates not reloaded, the former ones stay in use", error=str(error))
            self._problem = str(error)
        else:
            self._versions, self._problem = versions, ""
            log.info("certificates reloaded", files=[str(file) for file in self._files])
        return self._context

    def _present_versions(self) -> list[_Version | None]:
        versions: list[_Version | None] = []
        for file in self._files:
            try:
                versions.append(_version(file))
            except OSError:  # the build reports it
                versions.append(None)
        return versions


def in_cluster(environ: Mapping[str, str] = os.environ, account: Path = SERVICE_ACCOUNT) -> ApiAccess:
    """The access that Kubernetes provides to every pod with a ServiceAccount."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ClusterConfigError("KUBERNETES_SERVICE_HOST is not set: outside of a pod, use --kubeconfig")
    token = TokenFile(account / "token")
    token()  # so that a missing token is reported now, not at the first request
    authority = account / "ca.crt"
    tls = TlsFiles(lambda: _trust_file(authority), [authority])
    address = f"[{host}]" if ":" in host else host
    return ApiAccess(f"https://{address}:{port}", tls=tls, token=token)


def from_kubeconfig(path: Path) -> ApiAccess:
    """The access that the current context of a kubeconfig file describes."""
    import yaml  # noqa: PLC0415 - not needed in a pod

    try:
        config = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ClusterConfigError(f"cannot read the kubeconfig {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ClusterConfigError(f"the kubeconfig {path} is not YAML: {_place(error)}") from error
    return _Kubeconfig(path, config).access()


class _Kubeconfig:
    """The content of a kubeconfig file."""

    def __init__(self, path: Path, config: object) -> None:
        self._path = path
        self._config = config if isinstance(config, dict) else {}

    def access(self) -> ApiAccess:
        context = self._named("contexts", self._config.get("current-context"), "context")
        cluster = self._named("clusters", context.get("cluster"), "cluster")
        user = self._named("users", context["user"], "user") if context.get("user") else {}
        for name in _NOT_SUPPORTED:
            if user.get(name):
                raise self._error(f'"{name}" is not supported for users: use a token or a client certificate')
        if cluster.get("proxy-url"):
            raise self._error('"proxy-url" is not supported')
        server = str(cluster.get("server") or "").rstrip("/")
        if not server.startswith(("https://", "http://")):
            raise self._error(f'the server "{server}" is not an https:// or http:// address')
        files = [*self._files(cluster, "certificate-authority"), *self._files(user, "client-certificate", "client-key")]
        tls = TlsFiles(lambda: self._tls(cluster, user), files) if server.startswith("https://") else None
        return ApiAccess(server, tls=tls, server_name=cluster.get("tls-server-name"), token=self._token(user))

    def _named(self, section: str, name: object, kind: str) -> dict[str, Any]:
        for item in self._config.get(section) or ():
            if name and isinstance(item, dict) and item.get("name") == name:
                return item.get(kind) or {}
        raise self._error(f'there is no {kind} "{name or ""}"')

    def _token(self, user: Mapping[str, Any]) -> Callable[[], str] | None:
        if user.get("tokenFile"):
            return TokenFile(self._path.parent / user["tokenFile"])
        token = str(user.get("token") or "")
        return (lambda: token) if token else None

    def _tls(self, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
        authority = self._material(cluster, "certificate-authority")
        context = _trust(authority, source=self._path)
        if cluster.get("insecure-skip-tls-verify") is True:  # not for "true" or 1
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate, key = self._material(user, "client-certificate"), self._material(user, "client-key")
        if certificate is not None and key is not None:
            self._load_client_certificate(context, certificate, key)
        return context

    def _files(self, section: Mapping[str, Any], *names: str) -> list[Path]:
        """The files of those names that `_material` reads."""
        named = [name for name in names if section.get(name) and not section.get(f"{name}-data")]
        return [self._path.parent / section[name] for name in named]

    def _material(self, section: Mapping[str, Any], name: str) -> bytes | None:
        """The value of `<name>-data`, or the content of the file `<name>`, relative to the kubeconfig."""
        try:
            if section.get(f"{name}-data"):
                return base64.b64decode(section[f"{name}-data"], validate=True)
            return (self._path.parent / section[name]).read_bytes() if section.get(name) else None
        except (binascii.Error, TypeError) as error:
            raise self._error(f'"{name}-data" is not base64') from error
        except OSError as error:
            raise self._error(f'cannot read "{name}": {error.strerror}') from error

    def _load_client_certificate(self, context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
        # the ssl module reads client certificates only from files; this one is private, and deleted at once
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            try:
                context.load_cert_chain(file.name)
            except ssl.SSLError as error:
                raise self._error(f"the client certificate and key cannot be used: {error.reason}") from error

    def _error(self, what: str) -> ClusterConfigError:
        return ClusterConfigError(f"kubeconfig {self._path}: {what}")


def _version(path: Path) -> _Version:
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _trust_file(authority: Path) -> ssl.SSLContext:
    try:
        return _trust(authority.read_bytes(), source=authority)
    except OSError as error:
        raise ClusterConfigError(f"cannot read the certificate authority {authority}: {error.strerror}") from error


def _trust(authority: bytes | None, *, source: Path) -> ssl.SSLContext:
    """A context that trusts the given authority (PEM), or without one the system's authorities."""
    try:
        context = ssl.create_default_context(cadata=None if authority is None else authority.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise ClusterConfigError(f"the certificate authority of {source} is not PEM") from error
    # Python 3.13: strict by default, which refuses authorities without a key usage extension, as many clusters have
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _place(error: Exception) -> str:
    """The line's number, without its content, which may be a credential."""
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}" if mark is not None else "unreadable"
