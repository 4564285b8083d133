"""Answers of the API server become errors that callers can tell apart and people can act on."""

import pytest

from dracpu_api.errors import (
    ApiError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    Named,
    NotFoundError,
    NotServedError,
    RefusedError,
    UnavailableError,
    api_error,
)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (302, ApiError),
        (400, InvalidError),
        (401, ForbiddenError),
        (403, ForbiddenError),
        (404, NotServedError),
        (405, RefusedError),
        (409, ConflictError),
        (410, ExpiredError),
        (422, InvalidError),
        (429, UnavailableError),
        (500, UnavailableError),
        (503, UnavailableError),
    ],
)
def test_each_status_has_its_error(status: int, expected: type[ApiError]) -> None:
    assert type(api_error(status, {"reason": "Some", "message": "because"}, what="get nodes n1")) is expected


def test_the_message_names_the_request_and_what_the_server_answered() -> None:
    error = api_error(403, {"reason": "Forbidden", "message": "not yours"}, what="get nodes n1", retry_after=7)
    assert str(error) == "get nodes n1: Forbidden: not yours"
    assert (error.reason, error.retry_after) == ("Forbidden", 7)


@pytest.mark.parametrize("body", [None, "<html>", [], {}])
def test_an_answer_without_a_status_object_is_named_by_its_code(body: object) -> None:
    error = api_error(503, body, what="list resourceslices")
    assert str(error) == "list resourceslices: Http503: no explanation was given"


def test_a_field_that_the_crd_does_not_have_is_not_worth_retrying() -> None:
    body = {"message": "failed to create typed patch object (/n1): .spec.wings: field not declared in schema"}
    assert type(api_error(500, body, what="apply cpunodes n1")) is InvalidError


MISSING = {
    "kind": "Status",
    "apiVersion": "v1",
    "reason": "NotFound",
    "message": 'resourceclaims.resource.k8s.io "c" not found',
    "details": {"name": "c", "group": "resource.k8s.io", "kind": "resourceclaims"},
}
CLAIM = Named("resourceclaims", "c")


def test_the_api_server_reports_a_missing_object_by_its_name() -> None:
    error = api_error(404, MISSING, what="get resourceclaims c", named=CLAIM)
    assert type(error) is NotFoundError
    assert str(error) == 'get resourceclaims c: NotFound: resourceclaims.resource.k8s.io "c" not found'


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "Error"},
        {"apiVersion": "v2"},
        {"reason": "Missing"},
        {"details": None},
        {"details": {}},
        {"details": "c"},
        {"details": {"name": "c", "kind": "namespaces"}},
        {"details": {"name": "other", "kind": "resourceclaims"}},
    ],
)
def test_a_404_that_does_not_name_the_object_is_worth_retrying(changed: dict[str, object]) -> None:
    assert type(api_error(404, MISSING | changed, what="get resourceclaims c", named=CLAIM)) is NotServedError
    assert issubclass(NotServedError, UnavailableError)


def test_a_404_about_a_request_that_names_no_object_does_not_report_a_missing_one() -> None:
    assert type(api_error(404, MISSING, what="list resourceclaims")) is NotServedError
