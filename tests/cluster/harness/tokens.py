"""Runs kubectl with the token of a ServiceAccount, to test what a holder of the token is allowed to do."""

from dataclasses import dataclass

from harness.kubectl import Kubectl
from harness.manifests import Object


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Runs kubectl with a token and no other credentials."""

    kubectl: Kubectl
    token: str

    def run(self, *words: str, text: str | None = None) -> str:
        """Runs kubectl with the token; when it fails, the CommandFailedError holds its output."""
        return self.kubectl.run("--token", self.token, *words, text=text)


def issue(kubectl: Kubectl, account: str, namespace: str, pod: Object | None = None) -> TokenHolder:
    """Requests a token of a ServiceAccount. A token that is bound to a pod contains the pod's node."""
    bound = []
    if pod is not None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        bound = ["--bound-object-kind=Pod", f"--bound-object-name={name}", f"--bound-object-uid={uid}"]
    return TokenHolder(kubectl, kubectl.run("create", "token", account, "--namespace", namespace, *bound).strip())
