"""Runs real control plane binaries on loopback, in a folder of the sandbox, instead of the built-in control plane.

KUBEBUILDER_ASSETS, the variable that envtest uses, names a folder with etcd and kube-apiserver. If the folder also
has kube-scheduler or kube-controller-manager, which envtest lacks, they replace the simulated ones.
"""

import asyncio
import base64
import contextlib
import json
import secrets
import shutil
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dracpu_sandbox.client import KubeClient, KubeError, UnreachableError
from dracpu_sandbox.controllers import manager
from dracpu_sandbox.controllers.scheduling import Scheduler
from dracpu_sandbox.controlplane import ControlPlane, Parts
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.resources import NAMESPACES, JsonObject

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
SCHEDULER: Final = "kube-scheduler"
CONTROLLERS: Final = "kube-controller-manager"
ALL: Final = (ETCD, API_SERVER, SCHEDULER, CONTROLLERS)

_HOST: Final = "127.0.0.1"
_READY_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1
_END_SECONDS: Final = 10.0

# The sandbox's pods need no ServiceAccount token, and no controller would remove the taint of a new Node.
_WITHOUT: Final = "ServiceAccount,TaintNodesByCondition"


@contextlib.asynccontextmanager
async def real(
    assets: Path,
    folder: Path,
    port: int,
    *,
    programs: Sequence[str] = ALL,
    options: Mapping[str, Mapping[str, object]] | None = None,
) -> AsyncGenerator[ControlPlane]:
    """Runs those of the `programs` that are in `assets`; writes data and logs into `folder`. `options` are added to
    those that each program is given, by the program's name."""
    found = {name: assets / name for name in programs if (assets / name).is_file()}
    for name in (ETCD, API_SERVER):
        if name not in found:
            raise SandboxError(f"KUBEBUILDER_ASSETS is {assets}, which does not contain {name}")
    secret = await _make_secrets(folder)
    server = f"https://{_HOST}:{port or _free_port()}"
    kubeconfig = secret.kubeconfig(server)
    async with contextlib.AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(_started(found[name], folder, *words))
            for name, words in _commands(folder, server, secret, options or {}).items()
            if name in found
        ]
        await _until_ready(secret, processes)

        def parts(client: KubeClient) -> Parts:
            running: Parts = {process.name: process.watched() for process in processes}
            if SCHEDULER not in found:
                running["scheduler"] = Scheduler(client).run()
            if CONTROLLERS not in found:
                running["controllers"] = manager.run(client)
            return running

        yield ControlPlane(f"{', '.join(found)} on {server}", kubeconfig, parts)


@dataclass(frozen=True, slots=True)
class _Secrets:
    """A self-signed certificate with its key, and the administrator's token."""

    certificate: Path
    key: Path
    tokens: Path
    kubeconfig_file: Path
    token: str

    def kubeconfig(self, server: str) -> JsonObject:
        """Returns the administrator's kubeconfig, and writes it to a file for the components."""
        authority = base64.b64encode(self.certificate.read_bytes()).decode()
        document: JsonObject = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "admin"}}],
            "current-context": "sandbox",
        }
        self.kubeconfig_file.write_text(json.dumps(document))
        return document


async def _make_secrets(folder: Path) -> _Secrets:
    await asyncio.to_thread(folder.mkdir, parents=True)
    openssl = shutil.which("openssl")
    if openssl is None:
        raise SandboxError("the real control plane needs certificates, and openssl, which makes them, is not in PATH")
    made = _Secrets(
        folder / "tls.crt", folder / "tls.key", folder / "tokens.csv", folder / "kubeconfig", secrets.token_hex(16)
    )
    made.tokens.write_text(f'{made.token},admin,admin,"system:masters"\n')
    words = (
        *("req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=dracpu-sandbox"),
        *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
        *("-addext", f"subjectAltName=IP:{_HOST},DNS:localhost"),
        *("-addext", "keyUsage=critical,digitalSignature,keyCertSign"),  # Python 3.13 rejects authorities without it
        *("-keyout", str(made.key), "-out", str(made.certificate)),
    )
    process = await asyncio.create_subprocess_exec(openssl, *words, stderr=asyncio.subprocess.PIPE)
    _, output = await process.communicate()
    if process.returncode != 0:
        raise SandboxError(f"openssl cannot make a certificate: {output.decode(errors='replace').strip()}")
    return made


def _commands(
    folder: Path, server: str, secret: _Secrets, added: Mapping[str, Mapping[str, object]]
) -> Mapping[str, list[str]]:
    """Returns the arguments of each program, in the order in which the programs must start."""
    etcd, peers = (f"http://{_HOST}:{_free_port()}" for _ in range(2))
    component = {"kubeconfig": secret.kubeconfig_file, "leader-elect": "false", "secure-port": "0"}
    options: Mapping[str, Mapping[str, object]] = {
        ETCD: {
            "data-dir": folder / "etcd-data",
            "listen-client-urls": etcd,
            "advertise-client-urls": etcd,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "unsafe-no-fsync": "true",
        },
        API_SERVER: {
            "etcd-servers": etcd,
            "bind-address": _HOST,
            "secure-port": server.rpartition(":")[2],
            "tls-cert-file": secret.certificate,
            "tls-private-key-file": secret.key,
            "token-auth-file": secret.tokens,
            "service-account-key-file": secret.certificate,
            "service-account-signing-key-file": secret.key,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-cluster-ip-range": "10.96.0.0/16",
            "authorization-mode": "RBAC",
            "disable-admission-plugins": _WITHOUT,
            "endpoint-reconciler-type": "none",  # no client uses the API server's Service
        },
        SCHEDULER: component,
        CONTROLLERS: {
            **component,
            "service-account-private-key-file": secret.key,
            # the simulated kubelets send no heartbeats
            "controllers": "*,-node-lifecycle-controller",
        },
    }
    return {
        name: [f"--{key}={value}" for key, value in {**flags, **added.get(name, {})}.items()]
        for name, flags in options.items()
    }


class _Process:
    """A program that runs until the sandbox is closed."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    def check(self) -> None:
        """Raises an error with the last line of the log if the program has exited."""
        if self._process.returncode is not None:
            lines = self._log.read_text(errors="replace").splitlines() or ["nothing"]
            raise SandboxError(f"{self.name} has exited with {self._process.returncode}; its last line: {lines[-1]}")

    async def watched(self) -> None:
        """Waits until the program exits, and raises an error then."""
        await self._process.wait()
        self.check()

    async def end(self) -> None:
        """Sends SIGTERM, and SIGKILL if the program does not exit in time."""
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@contextlib.asynccontextmanager
async def _started(program: Path, folder: Path, *words: str) -> AsyncGenerator[_Process]:
    log = folder / f"{program.name}.log"
    with log.open("wb") as output:
        try:
            started = await asyncio.create_subprocess_exec(
                program, *words, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,  # Ctrl-C goes to the sandbox only, which stops the programs in order
                cwd=folder,
            )  # fmt: skip
        except OSError as error:
            raise SandboxError(f"{program} cannot be started: {error.strerror}") from error
    process = _Process(program.name, started, log)
    try:
        yield process
    finally:
        await process.end()


async def _until_ready(secret: _Secrets, processes: list[_Process]) -> None:
    async with KubeClient.from_kubeconfig(secret.kubeconfig_file) as client:
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while True:
                    for process in processes:
                        process.check()
                    with contextlib.suppress(UnreachableError, KubeError):  # the API server is still starting
                        await client.get(NAMESPACES, "kube-system")  # the API server creates it when it is ready
                        return
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError as error:
            raise SandboxError(f"{API_SERVER} is not ready after {_READY_SECONDS:.0f} s") from error


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind((_HOST, 0))
        port: int = bound.getsockname()[1]
        return port
