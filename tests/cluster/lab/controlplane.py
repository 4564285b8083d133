"""etcd, the API server, the scheduler and the controller manager, as processes in the lab's network."""

import shutil
from typing import Final

from lab.errors import LabError
from lab.host import Argument, run, wait_until
from lab.network import network_command
from lab.paths import Paths
from lab.pki import HOST_ADDRESS, component_kubeconfig
from lab.processes import spawn

ETCD: Final = "http://127.0.0.1:2379"
API_SERVER: Final = "apiserver"  # the name of its process and its log in this lab


def start_control_plane(paths: Paths, feature_gates: str) -> None:
    """Starts all components on an empty etcd."""
    gates = _gates(feature_gates)
    _start_etcd(paths)
    start_api_server(paths, feature_gates)
    _start_controllers(paths, gates)
    spawn(paths, "scheduler", paths.bin / "kube-scheduler", *_component(paths, "scheduler"), *gates)


def kubectl_command(paths: Paths, *arguments: Argument) -> list[str]:
    """Returns the command line of kubectl as the administrator, for a caller that starts the process itself."""
    return network_command(paths, paths.bin / "kubectl", "--kubeconfig", paths.kubeconfig, *arguments)


def kubectl(paths: Paths, *arguments: Argument, text: str | None = None, timeout: float = 60) -> str:
    """Runs kubectl as the administrator."""
    return run(*kubectl_command(paths, *arguments), text=text, timeout=timeout)


def helm(paths: Paths, *arguments: Argument, timeout: float = 60) -> str:
    """Runs helm as the administrator."""
    command = network_command(paths, paths.bin / "helm", "--kubeconfig", paths.kubeconfig, *arguments)
    return run(*command, timeout=timeout)


def _answers(paths: Paths) -> bool:
    try:
        return kubectl(paths, "get", "--raw", "/readyz", timeout=10) == "ok"
    except LabError:
        return False


def _start_etcd(paths: Paths) -> None:
    data = paths.control_plane / "etcd"
    shutil.rmtree(data, ignore_errors=True)
    urls = (
        "--listen-client-urls",
        ETCD,
        "--advertise-client-urls",
        ETCD,
        "--listen-peer-urls",
        "http://127.0.0.1:2380",
    )
    spawn(paths, "etcd", paths.bin / "etcd", "--data-dir", data, *urls, "--unsafe-no-fsync")


def start_api_server(paths: Paths, feature_gates: str, *, again: bool = False) -> None:
    """Starts the API server on the running etcd and waits until it serves; `again` appends to its log."""
    pki = paths.pki
    options: dict[str, Argument] = {
        "--etcd-servers": ETCD,
        "--secure-port": "443",
        "--bind-address": "0.0.0.0",
        "--advertise-address": HOST_ADDRESS,
        "--tls-cert-file": pki / "apiserver.crt",
        "--tls-private-key-file": pki / "apiserver.key",
        "--client-ca-file": pki / "ca.crt",
        "--token-auth-file": pki / "tokens.csv",
        "--service-account-key-file": pki / "sa.pub",
        "--service-account-signing-key-file": pki / "sa.key",
        "--service-account-issuer": "https://kubernetes.default.svc",
        "--service-cluster-ip-range": "10.96.0.0/16",
        "--authorization-mode": "Node,RBAC",
        "--enable-admission-plugins": "NodeRestriction",
        "--kubelet-client-certificate": pki / "kubelet-client.crt",
        "--kubelet-client-key": pki / "kubelet-client.key",
        "--kubelet-preferred-address-types": "InternalIP",
    }
    words = [word for option in options.items() for word in option]
    command = (paths.bin / "kube-apiserver", *words, "--allow-privileged", *_gates(feature_gates))
    spawn(paths, API_SERVER, *command, keep_log=again)
    wait_until("the API server", lambda: _answers(paths), 90, look=f"{paths.logs}/{API_SERVER}.log")


def _gates(feature_gates: str) -> tuple[str, ...]:
    return ("--feature-gates", feature_gates) if feature_gates else ()


def _start_controllers(paths: Paths, gates: tuple[str, ...]) -> None:
    keys = ("--service-account-private-key-file", paths.pki / "sa.key", "--root-ca-file", paths.pki / "ca.crt")
    options = (*_component(paths, "controllers"), *keys, "--use-service-account-credentials", *gates)
    spawn(paths, "controllers", paths.bin / "kube-controller-manager", *options)


def _component(paths: Paths, name: str) -> tuple[Argument, ...]:
    config = component_kubeconfig(paths, name)
    purposes = ("--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig")
    return (*(word for purpose in purposes for word in (purpose, config)), "--leader-elect=false")
