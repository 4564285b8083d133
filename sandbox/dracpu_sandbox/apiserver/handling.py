"""What each request for objects is answered."""

from dataclasses import dataclass
from typing import Any, Final

from dracpu_sandbox.apiserver import pods
from dracpu_sandbox.apiserver.deletion import read_deletion
from dracpu_sandbox.apiserver.fieldsets import shape_of
from dracpu_sandbox.apiserver.kinds.model import Kind
from dracpu_sandbox.apiserver.objects import Objects, Writing, Written
from dracpu_sandbox.apiserver.patches import json_patched, merge_patched
from dracpu_sandbox.apiserver.refusal import (
    Cause,
    RefusedError,
    invalid,
    named,
    not_allowed,
    not_found,
    not_supported,
    nothing_here,
)
from dracpu_sandbox.apiserver.rendering import Rendering, encoded, wanted_view
from dracpu_sandbox.apiserver.request import Request, unknown_format
from dracpu_sandbox.apiserver.selectors import selects
from dracpu_sandbox.apiserver.store import Stored
from dracpu_sandbox.apiserver.strategic import strategic_patched
from dracpu_sandbox.apiserver.strategies import PODS

JsonObject = dict[str, Any]

_SUBRESOURCE_VERBS: Final = {
    "binding": ("create",),
    "log": ("get",),
    "status": ("get", "patch", "update"),
}
_IN_CONTAINERS: Final = {"attach", "exec", "portforward"}
_CUSTOM_PATCHES: Final = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")


@dataclass(frozen=True, slots=True)
class Answer:
    """The body is JSON, encoded."""

    body: bytes
    code: int = 200
    warnings: tuple[str, ...] = ()


def rendering_for(request: Request, kind: Kind) -> Rendering:
    """How who asks wants to see objects."""
    include = request.query.get("includeObject", "Metadata")
    if include not in {"Metadata", "Object", "None"}:
        raise RefusedError(400, "BadRequest", f"includeObject must be Metadata, Object or None, not {include}")
    return Rendering(kind, wanted_view(request.headers.get("Accept", "")), include)  # type: ignore[arg-type]  # checked


class Handler:
    """Turns requests into verbs, and what these return into answers."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def kind_of(self, request: Request) -> Kind:
        """The kind that is asked for; raises RefusedError when it is not served, or not so."""
        kind = self._objects.registry.find(request.group, request.version, request.plural)
        if kind is None or (request.namespace and not kind.namespaced):
            raise nothing_here()
        if request.subresource and request.subresource not in kind.subresources:
            raise _no_subresource(kind, request)
        if request.verb not in _SUBRESOURCE_VERBS.get(request.subresource, kind.verbs):
            raise not_allowed()
        named_wrongly = {
            "create": bool(request.name) != bool(request.subresource),
            "update": not request.name,
            "patch": not request.name,
        }
        if named_wrongly.get(request.verb):
            raise not_allowed()
        if kind.namespaced and not request.namespace and request.verb not in {"list", "watch"}:
            raise not_allowed()
        return kind

    def answer(self, request: Request, kind: Kind) -> Answer:
        """What is answered at once: everything but watches and logs."""
        verb = "bind" if request.subresource == "binding" else request.verb
        answers = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._replace,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
            "bind": self._bind,
        }
        return answers[verb](request, kind)

    def _get(self, request: Request, kind: Kind) -> Answer:
        return self._shown(request, kind, self._objects.get(kind, request.namespace, request.name))

    def _create(self, request: Request, kind: Kind) -> Answer:
        made = self._objects.create(kind, request.namespace, request.body, _writing(request, kind))
        return self._written(request, kind, made)

    def _list(self, request: Request, kind: Kind) -> Answer:
        rendering = rendering_for(request, kind)
        if request.query.get("resourceVersionMatch") == "Exact":
            raise not_supported("lists of a past resourceVersion, only their further pages")
        page = self._objects.list(
            kind,
            request.namespace,
            selects(kind, request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")),
            limit=request.number("limit"),
            token=request.query.get("continue", ""),
        )
        return Answer(rendering.list(page.stored, page.metadata))

    def _replace(self, request: Request, kind: Kind) -> Answer:
        writing = _writing(request, kind)
        made = self._objects.replace(kind, request.namespace, request.name, request.body, writing, request.subresource)
        return self._written(request, kind, made)

    def _patch(self, request: Request, kind: Kind) -> Answer:
        place = (kind, request.namespace, request.name)
        writing, patch = _writing(request, kind), request.body
        match request.patch_kind:
            case "apply":
                _check_apply(request)
                made = self._objects.apply(*place, patch, writing, request.subresource)
                return self._written(request, kind, made)
            case "json":
                made = self._objects.patch(*place, lambda one: json_patched(one, patch), writing, request.subresource)
            case "strategic":
                if kind.is_custom:  # nobody knows how the lists in it merge
                    raise unknown_format(_CUSTOM_PATCHES)
                shape = shape_of(kind)
                made = self._objects.patch(
                    *place, lambda one: strategic_patched(one, patch, shape), writing, request.subresource
                )
            case "merge":
                made = self._objects.patch(*place, lambda one: merge_patched(one, patch), writing, request.subresource)
        return self._written(request, kind, made)

    def _delete(self, request: Request, kind: Kind) -> Answer:
        deletion = read_deletion(request.query, request.body)
        stored, gone = self._objects.delete(kind, request.namespace, request.name, deletion)
        if not gone or kind.storage == PODS:
            return self._shown(request, kind, stored)
        details = {**named(kind, request.name), "uid": stored.object["metadata"]["uid"]}
        return Answer(encoded(_success(details)))

    def _delete_collection(self, request: Request, kind: Kind) -> Answer:
        deletion = read_deletion(request.query, request.body)
        chosen = selects(kind, request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))
        page = self._objects.list(kind, request.namespace, chosen)
        for stored in page.stored:
            self._objects.delete(kind, *stored.key, deletion)
        return Answer(rendering_for(request, kind).list(page.stored, page.metadata))

    def _bind(self, request: Request, kind: Kind) -> Answer:
        pods.bind(self._objects, kind, request.namespace, request.name, request.body, _writing(request, kind))
        return Answer(encoded({**_success({}), "code": 201}), code=201)

    def _written(self, request: Request, kind: Kind, written: Written) -> Answer:
        shown = self._shown(request, kind, written.stored)
        return Answer(shown.body, 201 if written.created else 200, written.warnings)

    def _shown(self, request: Request, kind: Kind, stored: Stored) -> Answer:
        return Answer(rendering_for(request, kind).one(stored))


def _no_subresource(kind: Kind, request: Request) -> RefusedError:
    if kind.storage == PODS and request.subresource in _IN_CONTAINERS:
        told = f"the sandbox has no {request.subresource}: its containers are records, in which nothing runs"
        return RefusedError(400, "BadRequest", told)
    return not_found(kind, request.name) if kind.is_custom else nothing_here()


def _writing(request: Request, kind: Kind) -> Writing:
    validation = request.query.get("fieldValidation") or "Warn"
    if validation not in {"Strict", "Warn", "Ignore"}:
        told = f'Unsupported value: "{validation}": supported values: "Ignore", "Strict", "Warn"'
        raise invalid(kind, "", Cause("fieldValidation", told, "FieldValueNotSupported"))
    return Writing(
        request.manager,
        dry_run=bool(request.query.get("dryRun")),
        force=request.flag("force"),
        validation=validation,  # type: ignore[arg-type]  # checked
    )


def _check_apply(request: Request) -> None:
    if not request.query.get("fieldManager"):
        cause = Cause("fieldManager", "Required value: is required for apply patch", "FieldValueRequired")
        told = f'PatchOptions.meta.k8s.io "" is invalid: {cause.field}: {cause.message}'
        raise RefusedError(422, "Invalid", told, causes=[cause])


def _success(details: JsonObject) -> JsonObject:
    body: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**body, "details": details} if details else body
