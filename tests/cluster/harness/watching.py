"""What was true in between: every state of some objects in the order in which the API server had them."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.processes import terminate

from harness.kubectl import Kubectl
from harness.manifests import Object
from harness.waiting import eventually


@dataclass(frozen=True, slots=True)
class Recording:
    """The answers of one watch, while it lasts."""

    file: Path

    def events(self) -> list[Object]:
        """All events until now, each with `type` and `object`; at first every object is ADDED."""
        text, decode = self.file.read_text(), json.JSONDecoder().raw_decode
        found, at = [], 0
        while at < len(text):
            try:
                event, at = decode(text, at)
            except json.JSONDecodeError:  # the last one is still being written
                break
            found.append(event)
            at += len(text[at:]) - len(text[at:].lstrip())
        return found

    def states(self) -> Iterator[dict[str, Object]]:
        """After each event, all objects by name."""
        now: dict[str, Object] = {}
        for event in self.events():
            item = event["object"]
            now = {**now, item["metadata"]["name"]: item}
            if event["type"] == "DELETED":
                del now[item["metadata"]["name"]]
            yield now


@contextmanager
def recorded(kubectl: Kubectl, kind: str, *words: str) -> Iterator[Recording]:
    """Watches the objects of a kind, of which there has to be one, while this lasts."""
    command = kubectl.lab.kubectl_command("get", kind, *words, "--watch", "--output-watch-events", "--output", "json")
    with tempfile.NamedTemporaryFile() as file:
        process = subprocess.Popen(command, stdout=file)
        try:
            recording = Recording(Path(file.name))

            def begun() -> None:
                assert recording.events(), f"the watch of {kind} tells nothing"

            eventually(begun)
            yield recording
        finally:
            terminate(process)
