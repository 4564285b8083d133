"""Answers of the API server become errors that callers can tell apart and people can act on."""

import pytest

from dracpu_api.errors import (
    ApiError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
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
        (404, NotFoundError),
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
