"""The pool's slices as they are now, as far as this process can know. Pure.

A watch lags behind one's own writes. Planning on what it shows alone would undo or repeat them, so the answers to
writes count until the watch has caught up.
"""

from collections.abc import Mapping

from dracpu_api.resources import JsonObject, resource_version


class SliceView:
    """What the watch showed, with the own writes that it has not shown yet laid over it."""

    def __init__(self) -> None:
        self._seen: Mapping[str, JsonObject] = {}
        self._written: dict[str, JsonObject] = {}
        self._deleted: set[str] = set()  # UIDs, which never come back

    def see(self, objects: Mapping[str, JsonObject], revision: int) -> None:
        """The watch's state at a revision; it outdates the writes up to there."""
        self._seen = objects
        self._written = {name: one for name, one in self._written.items() if resource_version(one) > revision}
        self._deleted &= {one["metadata"]["uid"] for one in objects.values()}

    def wrote(self, answer: JsonObject) -> None:
        """The server's answer to a creation or an update."""
        self._written[answer["metadata"]["name"]] = answer

    def deleted(self, uid: str) -> None:
        """The object with this UID is gone."""
        self._deleted.add(uid)

    def slices(self) -> list[JsonObject]:
        """The merged state, by name."""
        merged = {**self._seen, **self._written}
        return [merged[name] for name in sorted(merged) if merged[name]["metadata"]["uid"] not in self._deleted]
