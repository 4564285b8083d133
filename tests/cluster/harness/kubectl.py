"""kubectl as functions: what the tests see is what a person with kubectl sees."""

import json
import re
from dataclasses import dataclass

from lab.cluster import Lab
from lab.errors import CommandFailedError

from harness.manifests import Object

Tables = list[list[dict[str, str]]]  # tables of rows by heading


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with the administrator's rights."""

    lab: Lab

    def run(self, *words: str, text: str | None = None, timeout: float = 60) -> str:
        """Runs kubectl with these words; raises what it printed when it fails."""
        return self.lab.kubectl(*words, text=text, timeout=timeout)

    def get(self, kind: str, name: str, namespace: str = "") -> Object:
        """One object; a CommandFailedError when it is not there."""
        found: Object = json.loads(self.run("get", kind, name, *_in(namespace), "-o", "json"))
        return found

    def find(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """One object, or None."""
        try:
            return self.get(kind, name, namespace)
        except CommandFailedError as error:
            if "(NotFound)" not in error.printed:
                raise
            return None

    def list(self, kind: str, namespace: str = "", *words: str) -> list[Object]:
        """All objects of a kind; words like a selector narrow them."""
        listed = json.loads(self.run("get", kind, *_in(namespace), "-o", "json", *words))
        items: list[Object] = listed["items"]
        return items

    def pod_of(self, component: str, namespace: str, node: str = "") -> Object:
        """The one pod of a component of ours, on a node where there is one on each."""
        where = ("--field-selector", f"spec.nodeName={node}") if node else ()
        pods = self.list("pods", namespace, "--selector", f"app.kubernetes.io/component={component}", *where)
        assert len(pods) == 1, f"there are {len(pods)} pods of the {component}{node and f' on {node}'}"
        return pods[0]

    def tables(self, kinds: str, *words: str) -> Tables:
        """What `kubectl get` shows a person: for each kind its rows, each by the headings of its columns."""
        return [rows(table) for table in self.run("get", kinds, *words).strip().split("\n\n")]

    def may(self, account: str, verb: str, resource: str, namespace: str) -> bool:
        """Whether a ServiceAccount is allowed something anywhere; `resource` may be `kind.group/subresource`."""
        kind, _, part = resource.partition("/")
        words = (verb, kind, f"--subresource={part}", f"--as=system:serviceaccount:{namespace}:{account}")
        try:
            return self.run("auth", "can-i", *words, "--all-namespaces").strip() == "yes"
        except CommandFailedError as error:
            if error.printed.split()[-1:] != ["no"]:
                raise
            return False

    def apply(self, *objects: Object, namespace: str = "") -> None:
        """Creates or changes objects."""
        document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.run("apply", *_in(namespace), "-f", "-", text=json.dumps(document))

    def delete(self, kind: str, *names: str, namespace: str = "", timeout: float = 90) -> None:
        """Deletes objects and waits until they are gone."""
        self.run(
            "delete",
            kind,
            *names,
            *_in(namespace),
            "--ignore-not-found",
            f"--timeout={timeout:.0f}s",
            timeout=timeout + 10,
        )

    def wait(self, condition: str, target: str, namespace: str = "", timeout: float = 90) -> None:
        """Waits for a condition as `kubectl wait --for` understands it."""
        words = ("wait", f"--for={condition}", target, *_in(namespace), f"--timeout={timeout:.0f}s")
        self.run(*words, timeout=timeout + 10)


def _in(namespace: str) -> tuple[str, ...]:
    return ("--namespace", namespace) if namespace else ()


def condition(item: Object, kind: str) -> str:
    """The status of an object's condition: True, False, Unknown, or "" where it has none of that kind."""
    for one in item.get("status", {}).get("conditions", []):
        if one["type"] == kind:
            return str(one["status"])
    return ""


def rows(table: str) -> list[dict[str, str]]:
    """A cell begins where its heading does, and may be empty."""
    header, *lines = table.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", header)]
    spans = list(zip(starts, [*starts[1:], None], strict=True))
    return [{header[a:b].strip(): line[a:b].strip() for a, b in spans} for line in lines]
