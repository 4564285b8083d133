"""The description of a kind of object."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from dracpu_sandbox.apiserver.kinds.schemas import Schema

if TYPE_CHECKING:
    from dracpu_sandbox.apiserver.kinds.rules import Rules

JsonObject = dict[str, Any]
Path = tuple[str, ...]  # field names; the items of a list have the path of the list

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """A column that `kubectl get` shows."""

    name: str
    path: str  # see paths.py; "" when `cell` computes the value
    type: str = "string"  # string, integer, number, boolean, date (shown as an age), time (shown as it is)
    format: str = ""
    description: str = ""
    priority: int = 0  # above 0: with -o wide only
    cell: Callable[[JsonObject], object] | None = None  # of the object


@dataclass(frozen=True, slots=True)
class ListType:
    """Describes how a list is merged: as one value, as a set of values, or as a map whose items have these keys."""

    kind: Literal["atomic", "set", "map"]
    keys: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of keys that an item may leave out


ATOMIC: Final = ListType("atomic")


def _unchanged(item: JsonObject) -> JsonObject:
    return item


@dataclass(frozen=True)
class Kind:
    """A kind of object, as it is served under one version."""

    group: str  # "" is the core group
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    schema: Schema
    type: str  # the schema's name in OpenAPI
    is_custom: bool = False  # a CustomResourceDefinition defines it
    list_kind: str = ""  # "": the kind followed by List
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()  # status, binding, log, ...
    columns: tuple[Column, ...] = ()  # after NAME; empty: AGE alone
    name_first: bool = True  # whether NAME is the first column; events show it with -o wide only
    rules: "Rules | None" = None  # the rules of the schema, compiled
    list_types: Mapping[Path, ListType] = field(default_factory=dict)  # of the lists that are not atomic
    atomic_maps: frozenset[Path] = frozenset()  # objects, or items of lists, that are merged as one value
    verbs: tuple[str, ...] = ALL_VERBS
    stored_as: str = ""  # the resource that stores the objects, with other field names; "": its own
    to_stored: Callable[[JsonObject], JsonObject] = _unchanged
    from_stored: Callable[[JsonObject], JsonObject] = _unchanged

    @property
    def api_version(self) -> str:
        """Returns the apiVersion of the kind's objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Returns the name for messages, like cpunodes.dra.cpu."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> str:
        """Returns the resource that stores the kind's objects; both kinds of events share a resource."""
        return self.stored_as or self.resource

    def list_type(self, path: Path) -> ListType:
        """Returns the type of the list at a path."""
        return self.list_types.get(path, ATOMIC)
