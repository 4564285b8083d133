"""kubectl as functions: what the tests see is what a person with kubectl sees."""

import json
from dataclasses import dataclass

from lab.cluster import Lab
from lab.errors import CommandFailedError

from harness.manifests import Object


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
