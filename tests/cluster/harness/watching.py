"""Records a watch of objects, so that a test can check every state that they had and not only the last one."""

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
    """The file to which a watch writes its events."""

    file: Path

    def events(self) -> list[Object]:
        """Returns all events so far, each with `type` and `object`; the first ones report every object as ADDED."""
        text, decode = self.file.read_text(), json.JSONDecoder().raw_decode
        events, position = [], 0
        while position < len(text):
            try:
                event, position = decode(text, position)
            except json.JSONDecodeError:  # kubectl is still writing the last event
                break
            events.append(event)
            position += len(text[position:]) - len(text[position:].lstrip())
        return events

    def states(self) -> Iterator[dict[str, Object]]:
        """Yields all objects by name, as they were after each event."""
        objects: dict[str, Object] = {}
        for event in self.events():
            item = event["object"]
            objects = {**objects, item["metadata"]["name"]: item}
            if event["type"] == "DELETED":
                del objects[item["metadata"]["name"]]
            yield objects


@contextmanager
def recorded(kubectl: Kubectl, kind: str, *words: str) -> Iterator[Recording]:
    """Watches the objects of a kind during the body. At least one object has to exist at the start."""
    command = kubectl.lab.kubectl_command("get", kind, *words, "--watch", "--output-watch-events", "--output", "json")
    with tempfile.NamedTemporaryFile() as file:
        process = subprocess.Popen(command, stdout=file)
        try:
            recording = Recording(Path(file.name))

            def started() -> None:
                assert recording.events(), f"the watch of {kind} has reported no event yet"

            eventually(started)
            yield recording
        finally:
            terminate(process)
