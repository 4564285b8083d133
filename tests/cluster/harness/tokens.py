"""kubectl with the token of a ServiceAccount: what whoever holds the token could do."""

from dataclasses import dataclass

from harness.kubectl import Kubectl
from harness.manifests import Object


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Somebody with a token, and with nothing else."""

    kubectl: Kubectl
    token: str

    def run(self, *words: str, text: str | None = None) -> str:
        """Runs kubectl with the token; raises what it printed when it fails."""
        return self.kubectl.run("--token", self.token, *words, text=text)


def issue(kubectl: Kubectl, account: str, namespace: str, pod: Object | None = None) -> TokenHolder:
    """A new token of a ServiceAccount; one that is bound to a pod names the pod's node, like the pod's own."""
    bound = []
    if pod is not None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        bound = ["--bound-object-kind=Pod", f"--bound-object-name={name}", f"--bound-object-uid={uid}"]
    return TokenHolder(kubectl, kubectl.run("create", "token", account, "--namespace", namespace, *bound).strip())
