"""Turns requests for objects into verbs, and their outcomes into answers."""

from dataclasses import dataclass
from typing import Any, Final

from dracpu_sandbox.apiserver import pods
from dracpu_sandbox.apiserver.deletion import read_deletion
from dracpu_sandbox.apiserver.fieldsets import shape_of
from dracpu_sandbox.apiserver.kinds.kind import Kind
from dracpu_sandbox.apiserver.objects import Objects, Writing, Written
from dracpu_sandbox.apiserver.patches import json_patched, merge_patched
from dracpu_sandbox.apiserver.refusal import (
    Cause,
    RefusedError,
    bad_request,
    named,
    not_allowed,
    not_supported,
    nothing_here,
)
from dracpu_sandbox.apiserver.rendering import Rendering, encoded, requested_view
from dracpu_sandbox.apiserver.request import Request, unknown_format
from dracpu_sandbox.apiserver.selectors import Predicate, selects
from dracpu_sandbox.apiserver.store import Stored
from dracpu_sandbox.apiserver.strategic import strategic_patched
from dracpu_sandbox.apiserver.strategies import PODS

JsonObject = dict[str, Any]

_SUBRESOURCE_VERBS: Final = {
    "binding": ("create",),
    "log": ("get",),
    "resize": ("get", "patch", "update"),
    "status": ("get", "patch", "update"),
}
_IN_CONTAINERS: Final = {"attach", "exec", "portforward"}
_CUSTOM_PATCHES: Final = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_INCLUDES: Final = ("Metadata", "Object", "None")
_VALIDATIONS: Final = ("Ignore", "Strict", "Warn")
_SUCCESS: Final[JsonObject] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; the body is encoded JSON."""

    body: bytes
    code: int = 200
    warnings: tuple[str, ...] = ()


def rendering_for(request: Request, kind: Kind) -> Rendering:
    """Returns the form in which the client requests objects."""
    view = requested_view(request.headers.get("Accept", ""))
    return Rendering(kind, view, _choice(request, "includeObject", _INCLUDES, "Metadata"))


def selection(request: Request, kind: Kind) -> Predicate:
    """Returns a function that tests whether the request's selectors select an object."""
    return selects(kind, request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))


class Handler:
    """Answers requests for objects."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def kind_of(self, request: Request) -> Kind:
        """Returns the requested kind; raises RefusedError when it is not served, or not with this method."""
        kind = self._objects.registry.find(request.group, request.version, request.plural)
        if kind is None or (request.namespace and not kind.namespaced):
            raise nothing_here()
        if request.subresource and request.subresource not in kind.subresources:
            if kind.storage == PODS and request.subresource in _IN_CONTAINERS:
                raise bad_request(f"the sandbox has no {request.subresource}: its containers run no programs")
            raise nothing_here()
        if request.verb not in _SUBRESOURCE_VERBS.get(request.subresource, kind.verbs):
            raise not_allowed()
        needs_name = request.verb != "create" or bool(request.subresource)
        if request.verb in {"create", "patch", "update"} and bool(request.name) is not needs_name:
            raise not_allowed()
        if kind.namespaced and not request.namespace and request.verb not in {"list", "watch"}:
            raise not_allowed()
        return kind

    def answer(self, request: Request, kind: Kind) -> Answer:
        """Answers all requests except watches and logs."""
        verb = "bind" if request.subresource == "binding" else request.verb
        answers = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._replace,
            "patch": self._patch,
            "delete": self._delete,
            "bind": self._bind,
        }
        if verb not in answers:
            raise not_supported(f"the verb {verb}")
        return answers[verb](request, kind)

    def _get(self, request: Request, kind: Kind) -> Answer:
        return self._shown(request, kind, self._objects.get(kind, request.namespace, request.name))

    def _create(self, request: Request, kind: Kind) -> Answer:
        made = self._objects.create(kind, request.namespace, request.body, _writing(request))
        return self._written(request, kind, made)

    def _list(self, request: Request, kind: Kind) -> Answer:
        if request.query.get("resourceVersionMatch") == "Exact":
            raise not_supported("lists at an exact resourceVersion, except for the further pages of a list")
        page = self._objects.list(
            kind,
            request.namespace,
            selection(request, kind),
            limit=request.number("limit"),
            token=request.query.get("continue", ""),
        )
        return Answer(rendering_for(request, kind).list(page.stored, page.metadata))

    def _replace(self, request: Request, kind: Kind) -> Answer:
        place = (kind, request.namespace, request.name)
        made = self._objects.replace(*place, request.body, _writing(request), request.subresource)
        return self._written(request, kind, made)

    def _patch(self, request: Request, kind: Kind) -> Answer:
        patch, shape = request.body, shape_of(kind)
        changes = {
            "json": lambda shown: json_patched(shown, patch),
            "merge": lambda shown: merge_patched(shown, patch),
            "strategic": lambda shown: strategic_patched(shown, patch, shape),
        }
        place, writing = (kind, request.namespace, request.name), _writing(request)
        if request.patch_kind == "apply":
            _check_apply(request)
            made = self._objects.apply(*place, patch, writing, request.subresource)
        elif request.patch_kind == "strategic" and kind.is_custom:
            raise unknown_format(_CUSTOM_PATCHES)  # custom kinds declare no keys for these patches
        else:
            made = self._objects.patch(*place, changes[request.patch_kind], writing, request.subresource)
        return self._written(request, kind, made)

    def _delete(self, request: Request, kind: Kind) -> Answer:
        deletion = read_deletion(request.query, request.body)
        stored, gone = self._objects.delete(kind, request.namespace, request.name, deletion)
        if not gone or kind.storage == PODS:
            return self._shown(request, kind, stored)
        details = {**named(kind, request.name), "uid": stored.object["metadata"]["uid"]}
        return Answer(encoded({**_SUCCESS, "details": details}))

    def _bind(self, request: Request, kind: Kind) -> Answer:
        pods.bind(self._objects, kind, request.namespace, request.name, request.body, _writing(request))
        return Answer(encoded({**_SUCCESS, "code": 201}), code=201)

    def _written(self, request: Request, kind: Kind, written: Written) -> Answer:
        shown = self._shown(request, kind, written.stored)
        return Answer(shown.body, 201 if written.created else 200, written.warnings)

    def _shown(self, request: Request, kind: Kind, stored: Stored) -> Answer:
        return Answer(rendering_for(request, kind).single(stored))


def _choice(request: Request, name: str, choices: tuple[str, ...], default: str) -> Any:
    chosen = request.query.get(name) or default
    if chosen not in choices:
        raise bad_request(f"{name} must be one of {', '.join(choices)}, not {chosen}")
    return chosen


def _writing(request: Request) -> Writing:
    return Writing(
        request.manager,
        dry_run=bool(request.query.get("dryRun")),
        force=request.flag("force"),
        validation=_choice(request, "fieldValidation", _VALIDATIONS, "Warn"),
    )


def _check_apply(request: Request) -> None:
    if not request.query.get("fieldManager"):
        cause = Cause("fieldManager", "Required value: is required for apply patch", "FieldValueRequired")
        message = f'PatchOptions.meta.k8s.io "" is invalid: {cause.field}: {cause.message}'
        raise RefusedError(422, "Invalid", message, causes=[cause])
