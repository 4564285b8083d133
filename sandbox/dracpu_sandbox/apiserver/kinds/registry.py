"""Which kinds of objects are served at this moment."""

from collections.abc import Iterable

from dracpu_sandbox.apiserver.kinds import definitions
from dracpu_sandbox.apiserver.kinds.builtin import BUILT_IN
from dracpu_sandbox.apiserver.kinds.model import JsonObject, Kind


class Registry:
    """The built-in kinds, and those of CustomResourceDefinitions while these are served."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self._custom: dict[str, tuple[Kind, ...]] = {}  # by the definition's name
        self._add(BUILT_IN)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind below a path of the API."""
        return self._kinds.get((group, version, plural))

    def all(self) -> tuple[Kind, ...]:
        """All kinds, in the order in which they are told of."""
        return tuple(self._kinds.values())

    def serve(self, crd: JsonObject) -> tuple[Kind, ...]:
        """Serves what a definition defines, in place of what it defined before; raises RefusedError when it is bad."""
        kinds = definitions.kinds_of(crd)
        self.withdraw(crd["metadata"]["name"])
        self._custom[crd["metadata"]["name"]] = kinds
        self._add(kinds)
        return kinds

    def withdraw(self, crd_name: str) -> None:
        """Serves a definition's kinds no longer."""
        for kind in self._custom.pop(crd_name, ()):
            del self._kinds[(kind.group, kind.version, kind.plural)]

    def crd_status(self, crd: JsonObject) -> JsonObject:
        """The status that a definition has once it is served."""
        return definitions.status_of(crd)

    def _add(self, kinds: Iterable[Kind]) -> None:
        self._kinds.update({(kind.group, kind.version, kind.plural): kind for kind in kinds})
