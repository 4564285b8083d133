"""Makes the certificates, tokens and kubeconfigs of the lab. They are of no use outside its network."""

import json
from pathlib import Path
from typing import Final

from lab.host import run, write_whole
from lab.paths import Paths

SERVICE_ADDRESS: Final = "10.96.0.1"  # of `kubernetes.default.svc`; nodes and components use it for the API server
HOST_ADDRESS: Final = "192.168.77.1"
MAX_NODES: Final = 9

# equal to what kubeadm makes; Python 3.13 refuses an authority without key usage
_AUTHORITY: Final = ("keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign",)
_SIGNED: Final = (
    "authorityKeyIdentifier=keyid",
    "basicConstraints=critical,CA:FALSE",
    "extendedKeyUsage=serverAuth,clientAuth",
    "keyUsage=critical,digitalSignature,keyEncipherment",
)
_CERTIFICATES: Final = (
    (
        "apiserver",
        "/CN=kube-apiserver",
        f"subjectAltName=IP:127.0.0.1,IP:{SERVICE_ADDRESS},IP:{HOST_ADDRESS},DNS:kubernetes.default.svc",
    ),
    ("kubelet-client", "/O=system:masters/CN=apiserver-kubelet-client"),
)

# token, user, uid, groups
_COMPONENTS: Final = (
    ("admin-token", "admin", "admin", "system:masters"),
    ("scheduler-token", "system:kube-scheduler", "scheduler", ""),
    ("controllers-token", "system:kube-controller-manager", "controllers", ""),
)


def component_kubeconfig(paths: Paths, component: str) -> Path:
    """Returns the path of the kubeconfig of `admin`, `scheduler` or `controllers`."""
    return paths.control_plane / f"{component}.kubeconfig"


def node_token(node: str) -> str:
    """Returns the bearer token of a node's kubelet; each node replaces `@NODE@` in a template by its own name."""
    return f"node-token-{node}"


def kubeconfig(token: str, authority: Path) -> str:
    """Returns a kubeconfig as JSON, which is also valid YAML."""
    cluster = {"server": f"https://{SERVICE_ADDRESS}", "certificate-authority": str(authority)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "user"}}],
        "current-context": "lab",
    }
    return json.dumps(document, indent=1)


def make_pki(paths: Paths) -> None:
    """Makes certificates if they are missing or their recipe has changed; always writes tokens and kubeconfigs."""
    pki, stamp = paths.pki, paths.pki / "recipe"
    recipe = repr((_AUTHORITY, _SIGNED, _CERTIFICATES))
    if not stamp.exists() or stamp.read_text() != recipe:
        pki.mkdir(parents=True, exist_ok=True)
        stamp.unlink(missing_ok=True)
        _make_certificates(pki)
        write_whole(stamp, recipe)
    nodes = [f"vm{number}" for number in range(1, MAX_NODES + 1)]
    rows = [f'{token},{user},{uid},"{groups}"' for token, user, uid, groups in _COMPONENTS]
    rows += [f'{node_token(node)},system:node:{node},{node},"system:nodes"' for node in nodes]
    write_whole(pki / "tokens.csv", "\n".join(rows) + "\n")
    for token, _, component, _ in _COMPONENTS:
        write_whole(component_kubeconfig(paths, component), kubeconfig(token, pki / "ca.crt"))


def _make_certificates(pki: Path) -> None:
    key = ("-newkey", "rsa:2048", "-nodes")
    extensions = [word for extension in _AUTHORITY for word in ("-addext", extension)]
    files = ("-keyout", "ca.key", "-out", "ca.crt")
    run("openssl", "req", "-x509", *key, "-days", "3650", "-subj", "/CN=lab-ca", *extensions, *files, cwd=pki)
    for name, subject, *own in _CERTIFICATES:
        (pki / f"{name}.ext").write_text("\n".join([*_SIGNED, *own]) + "\n")
        request = ("-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        run("openssl", "req", *key, *request, cwd=pki)
        authority = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "3650")
        signed = ("-in", f"{name}.csr", "-extfile", f"{name}.ext", "-out", f"{name}.crt")
        run("openssl", "x509", "-req", *authority, *signed, cwd=pki)
    run("openssl", "genrsa", "-out", "sa.key", "2048", cwd=pki)  # signs the tokens of ServiceAccounts
    run("openssl", "rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub", cwd=pki)
