"""The pool's slices as far as this process knows them. Pure.

A watch lags behind the agent's own writes. A plan from the watch alone would undo or repeat them, so the answers to
writes count until the watch has caught up.
"""

from collections.abc import Mapping

from dracpu_api.resources import JsonObject, resource_version


class SliceView:
    """The watch's slices, updated by the agent's own writes that the watch has not shown yet."""

    def __init__(self) -> None:
        self._watched: Mapping[str, JsonObject] = {}
        self._written: dict[str, JsonObject] = {}
        self._deleted: set[str] = set()  # UIDs, which are never reused

    def replace(self, objects: Mapping[str, JsonObject], revision: int) -> None:
        """Sets the watch's slices at a revision; they include the writes up to it."""
        self._watched = objects
        self._written = {
            name: written for name, written in self._written.items() if resource_version(written) > revision
        }
        self._deleted &= {watched["metadata"]["uid"] for watched in objects.values()}

    def record_write(self, answer: JsonObject) -> None:
        """Records the server's answer to a creation or an update."""
        self._written[answer["metadata"]["name"]] = answer

    def record_deletion(self, uid: str) -> None:
        """Records that the slice with this UID does not exist any more."""
        self._deleted.add(uid)

    def slices(self) -> list[JsonObject]:
        """The merged slices, sorted by name."""
        merged = {**self._watched, **self._written}
        return [merged[name] for name in sorted(merged) if merged[name]["metadata"]["uid"] not in self._deleted]
