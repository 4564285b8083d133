"""Answers of the API server are read as objects, events and errors."""

import json

import pytest

from dracpu_api.answers import read_event, read_list, read_object, read_stored, refusal
from dracpu_api.errors import ExpiredError, ForbiddenError, NotServedError, UnavailableError
from dracpu_api.resources import NODES


def test_an_object_is_read() -> None:
    assert read_object(b'{"kind": "Node"}', "get nodes n1") == {"kind": "Node"}


@pytest.mark.parametrize("payload", [b"", b"ok", b"[]", b"\xff", b'{"kind":'])
def test_an_answer_that_is_not_an_object_is_an_error_worth_retrying(payload: bytes) -> None:
    with pytest.raises(UnavailableError, match="get nodes n1: the answer is not a JSON object") as caught:
        read_object(payload, "get nodes n1")
    assert caught.value.reason == "NotUnderstood"


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])
def test_an_event_is_read(kind: str) -> None:
    event = read_event(json.dumps({"type": kind, "object": {"kind": "Node"}}).encode(), "watch nodes")
    assert (event.type, event.object) == (kind, {"kind": "Node"})


def test_an_error_event_raises_what_it_reports() -> None:
    line = b'{"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}'
    with pytest.raises(ExpiredError, match="watch nodes: Expired: too old"):
        read_event(line, "watch nodes")


@pytest.mark.parametrize("line", [b"{}", b'{"type": "ADDED"}', b'{"type": "GONE", "object": {}}', b'{"type": "ERROR"}'])
def test_anything_else_is_not_an_event(line: bytes) -> None:
    with pytest.raises(UnavailableError, match="not an event"):
        read_event(line, "watch nodes")


def test_a_refusal_has_the_servers_reason_and_message() -> None:
    error = refusal(403, b'{"reason": "Forbidden", "message": "not yours"}', "get nodes n1", retry_after="7")
    assert isinstance(error, ForbiddenError)
    assert (str(error), error.retry_after) == ("get nodes n1: Forbidden: not yours", 7)


@pytest.mark.parametrize("header", ["", "Wed, 21 Oct 2026 07:28:00 GMT", "-1", "\u0663"])
def test_a_retry_after_that_is_not_seconds_is_ignored(header: str) -> None:
    assert refusal(429, b"{}", "get nodes n1", retry_after=header).retry_after is None


def test_a_plain_text_is_quoted_and_a_page_is_not() -> None:
    error = refusal(404, b"404 page not found\n", "list cpunodes")
    assert isinstance(error, NotServedError)
    assert str(error) == "list cpunodes: Http404: 404 page not found"
    assert str(refusal(502, b"<html>...", "list cpunodes")) == "list cpunodes: Http502: no explanation was given"
    assert len(str(refusal(404, b"x" * 10_000, "list cpunodes"))) < 300


METADATA = {"name": "n1", "uid": "u1", "resourceVersion": "7"}
STORED = {"kind": "Node", "metadata": METADATA}
LIST = {"kind": "NodeList", "metadata": {"resourceVersion": "7"}, "items": [STORED]}


@pytest.mark.parametrize("kind", ["Node", "PartialObjectMetadata"])
def test_a_stored_object_is_read_by_its_kind_and_name(kind: str) -> None:
    payload = json.dumps(STORED | {"kind": kind}).encode()
    for name in ("n1", ""):
        assert read_stored(payload, "get nodes n1", NODES, name)["metadata"]["uid"] == "u1"


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"status": "ok"},
        STORED | {"kind": "Pod"},
        STORED | {"metadata": None},
        *(STORED | {"metadata": METADATA | {field: None}} for field in ("name", "uid", "resourceVersion")),
        STORED | {"metadata": METADATA | {"name": "n2"}},
    ],
)
def test_an_answer_that_is_not_the_requested_object_is_an_error_worth_retrying(answer: object) -> None:
    with pytest.raises(UnavailableError, match="get nodes n1: the answer is not the Node"):
        read_stored(json.dumps(answer).encode(), "get nodes n1", NODES, "n1")


@pytest.mark.parametrize("kind", ["NodeList", "PartialObjectMetadataList"])
@pytest.mark.parametrize("items", [[STORED], [], None])
def test_a_list_is_read_by_its_kind(kind: str, items: object) -> None:
    payload = json.dumps(LIST | {"kind": kind, "items": items}).encode()
    assert read_list(payload, "list nodes", NODES)["items"] == items


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"items": []},
        LIST | {"kind": "PodList"},
        LIST | {"metadata": {}},
        LIST | {"items": "none"},
        {"kind": "NodeList", "metadata": {"resourceVersion": "7"}},
    ],
)
def test_an_answer_that_is_not_a_list_of_the_kind_is_never_an_empty_list(answer: object) -> None:
    with pytest.raises(UnavailableError, match="list nodes: the answer is not a NodeList"):
        read_list(json.dumps(answer).encode(), "list nodes", NODES)
