"""Keeps the kinds of objects that are served."""

from dracpu_sandbox.apiserver.kinds import definitions
from dracpu_sandbox.apiserver.kinds.builtin import BUILT_IN
from dracpu_sandbox.apiserver.kinds.kind import JsonObject, Kind


class Registry:
    """The built-in kinds, and the kinds of the CustomResourceDefinitions that are served."""

    def __init__(self) -> None:
        self._kinds = {(kind.group, kind.version, kind.plural): kind for kind in BUILT_IN}
        self._custom: dict[str, Kind] = {}  # by the definition's name

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Returns the kind that is served at a path of the API, or None."""
        return self._kinds.get((group, version, plural))

    def all(self) -> tuple[Kind, ...]:
        """Returns all kinds, in the order in which discovery lists them."""
        return tuple(self._kinds.values())

    def serve(self, definition: JsonObject) -> Kind:
        """Serves the kind of a definition instead of the kind that it defined before; raises RefusedError."""
        kind, name = definitions.kind_of(definition), definition["metadata"]["name"]
        self.withdraw(name)
        self._custom[name] = self._kinds[(kind.group, kind.version, kind.plural)] = kind
        return kind

    def withdraw(self, name: str) -> None:
        """Stops serving the kind of a definition."""
        kind = self._custom.pop(name, None)
        if kind is not None:
            del self._kinds[(kind.group, kind.version, kind.plural)]

    def crd_status(self, definition: JsonObject) -> JsonObject:
        """Returns the status of a definition that is served."""
        return definitions.status_of(definition)
