"""What the API server knows of a kind of object."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from dracpu_sandbox.apiserver.kinds.rules import Rules

JsonObject = dict[str, Any]

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """A column that `kubectl get` shows."""

    name: str
    path: str  # a JSONPath like .status.phase; "" when `cell` computes what is shown
    type: str = "string"  # string, integer, number, boolean, date (shown as an age), time (shown as it is)
    format: str = ""
    description: str = ""
    priority: int = 0  # above 0: with -o wide only
    cell: Callable[[JsonObject], object] | None = None  # of the object


@dataclass(frozen=True, slots=True)
class ListType:
    """How a list is merged: as one value, as a set of values, or as a map whose items have these keys."""

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
    list_kind: str = ""  # "": the kind with List behind it
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()  # status, binding, log, ...
    columns: tuple[Column, ...] = ()  # after NAME; empty: AGE alone
    name_first: bool = True  # whether NAME is the first column (events have it among the wide ones)
    schema: Mapping[str, Any] | None = None  # structural, of custom resources
    rules: "Rules | None" = None  # those of the schema, compiled
    model: str = ""  # the class of the Python client that tells the fields; built-in kinds only
    list_types: Mapping[tuple[str, ...], ListType] = field(
        default_factory=dict
    )  # path of field names -> its list's type
    # paths of objects that are merged as one value; of a list: each of its items is
    atomic_maps: frozenset[tuple[str, ...]] = frozenset()
    hub: str = ""  # the version that objects are stored in; "": this one
    verbs: tuple[str, ...] = ALL_VERBS
    stored_as: str = ""  # the resource whose objects these are, seen another way; "": its own
    to_stored: Callable[[JsonObject], JsonObject] = _unchanged
    from_stored: Callable[[JsonObject], JsonObject] = _unchanged

    @property
    def api_version(self) -> str:
        """What objects bear as apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The name in messages: cpunodes.dra.cpu."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> str:
        """Where its objects lie: two kinds with the same storage are two faces of the same objects."""
        return self.stored_as or self.resource

    @property
    def is_custom(self) -> bool:
        """Whether a CustomResourceDefinition has made it."""
        return self.schema is not None

    def list_type(self, path: tuple[str, ...]) -> ListType:
        """The type of the list at a path of field names; items of lists on the way have no part of the path."""
        return self.list_types.get(path, ATOMIC)
