"""The pool's slices as far as this process knows them. Pure.

A watch lags behind the agent's own writes. A plan from the watch alone would undo or repeat them, so the answers to
writes count until the watch has caught up, or until a list that was requested later shows what became of them: after
the API server's data was restored from a backup, the watch never catches up with the versions in those answers.
"""

from collections.abc import Mapping

from dracpu_api.resources import JsonObject, resource_version


class SliceView:
    """The watch's slices, updated by the agent's own writes that the watch has not shown yet."""

    def __init__(self) -> None:
        self._watched: Mapping[str, JsonObject] = {}
        self._written: dict[str, tuple[JsonObject, float]] = {}  # with the time of the answer
        self._deleted: dict[str, float] = {}  # UIDs, which are never reused, with the time of the answer

    def replace(self, objects: Mapping[str, JsonObject], revision: int, listed_at: float) -> None:
        """Sets the watch's slices at a revision; they include the writes up to it, and the writes that were answered
        before `listed_at`, when the list was requested that the watch began with."""
        self._watched = objects
        self._written = {
            name: (written, at)
            for name, (written, at) in self._written.items()
            if resource_version(written) > revision and at >= listed_at
        }
        watched = {stored["metadata"]["uid"] for stored in objects.values()}
        self._deleted = {uid: at for uid, at in self._deleted.items() if uid in watched and at >= listed_at}

    def record_write(self, answer: JsonObject, at: float) -> None:
        """Records the server's answer to a creation or an update."""
        self._written[answer["metadata"]["name"]] = answer, at

    def record_deletion(self, uid: str, at: float) -> None:
        """Records that the slice with this UID does not exist any more."""
        self._deleted[uid] = at

    def slices(self) -> list[JsonObject]:
        """The merged slices, sorted by name."""
        merged = {**self._watched, **{name: written for name, (written, _) in self._written.items()}}
        return [merged[name] for name in sorted(merged) if merged[name]["metadata"]["uid"] not in self._deleted]
