"""Runs kubectl and reads its output, so that the tests see what a person with kubectl sees."""

import json
import re
from dataclasses import dataclass

from lab.cluster import Lab
from lab.errors import CommandFailedError

from harness.manifests import Object

Tables = list[list[dict[str, str]]]  # each table is a list of rows; a row has its cells by the column's heading


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Runs kubectl with the administrator's rights."""

    lab: Lab

    def run(self, *words: str, text: str | None = None, timeout: float = 60) -> str:
        """Runs kubectl with these words; when it fails, the CommandFailedError holds its output."""
        return self.lab.kubectl(*words, text=text, timeout=timeout)

    def get(self, kind: str, name: str, namespace: str = "") -> Object:
        """Returns one object; raises a CommandFailedError when it does not exist."""
        item: Object = json.loads(self.run("get", kind, name, *_namespace_option(namespace), "-o", "json"))
        return item

    def find(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Returns one object, or None when it does not exist."""
        try:
            return self.get(kind, name, namespace)
        except CommandFailedError as error:
            if "(NotFound)" not in error.printed:
                raise
            return None

    def list(self, kind: str, namespace: str = "", *words: str) -> list[Object]:
        """Returns the objects of a kind; more words can restrict them, for example a selector."""
        listed = json.loads(self.run("get", kind, *_namespace_option(namespace), "-o", "json", *words))
        items: list[Object] = listed["items"]
        return items

    def pod_of(self, component: str, namespace: str, node: str = "") -> Object:
        """Returns the only pod of a component, `operator` or `agent`; of the agent there is one on each node."""
        where = ("--field-selector", f"spec.nodeName={node}") if node else ()
        pods = self.list("pods", namespace, "--selector", f"app.kubernetes.io/component={component}", *where)
        assert len(pods) == 1, f"there are {len(pods)} pods of the {component}{node and f' on {node}'}"
        return pods[0]

    def tables(self, kinds: str, *words: str) -> Tables:
        """Returns the tables that `kubectl get` prints, one for each kind."""
        return [rows(table) for table in self.run("get", kinds, *words).strip().split("\n\n")]

    def may(self, account: str, verb: str, resource: str, namespace: str) -> bool:
        """Returns whether a ServiceAccount may do this in all namespaces; a resource is `kind.group/subresource`."""
        kind, _, subresource = resource.partition("/")
        words = (verb, kind, f"--subresource={subresource}", f"--as=system:serviceaccount:{namespace}:{account}")
        try:
            return self.run("auth", "can-i", *words, "--all-namespaces").strip() == "yes"
        except CommandFailedError as error:
            if error.printed.split()[-1:] != ["no"]:
                raise
            return False

    def apply(self, *objects: Object, namespace: str = "") -> None:
        """Creates or changes objects."""
        document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.run("apply", *_namespace_option(namespace), "-f", "-", text=json.dumps(document))

    def delete(self, kind: str, *names: str, namespace: str = "", timeout: float = 90) -> None:
        """Deletes objects and waits until they are gone."""
        self.run(
            "delete",
            kind,
            *names,
            *_namespace_option(namespace),
            "--ignore-not-found",
            f"--timeout={timeout:.0f}s",
            timeout=timeout + 10,
        )

    def wait(self, condition: str, target: str, namespace: str = "", timeout: float = 90) -> None:
        """Waits for a condition in the notation of `kubectl wait --for`."""
        words = ("wait", f"--for={condition}", target, *_namespace_option(namespace), f"--timeout={timeout:.0f}s")
        self.run(*words, timeout=timeout + 10)


def _namespace_option(namespace: str) -> tuple[str, ...]:
    return ("--namespace", namespace) if namespace else ()


def condition(item: Object, kind: str) -> str:
    """Returns the status of an object's condition: True, False or Unknown, or "" when it has no such condition."""
    for entry in item.get("status", {}).get("conditions", []):
        if entry["type"] == kind:
            return str(entry["status"])
    return ""


def rows(table: str) -> list[dict[str, str]]:
    """Reads a table of kubectl. A cell starts at the column of its heading and may be empty."""
    header, *lines = table.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", header)]
    spans = list(zip(starts, [*starts[1:], None], strict=True))
    return [{header[a:b].strip(): line[a:b].strip() for a, b in spans} for line in lines]
