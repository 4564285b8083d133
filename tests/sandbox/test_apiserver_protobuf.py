"""Bodies in protobuf, as a few of kubectl's commands send them."""

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_sandbox.apiserver.protobuf import decode
from dracpu_sandbox.apiserver.refusal import RefusedError


def field(number: int, value: bytes | str | int) -> bytes:
    """One field of a message."""
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2]) + varint(len(raw)) + raw


def varint(value: int) -> bytes:
    head, rest = value & 0x7F, value >> 7
    return bytes([head | 0x80]) + varint(rest) if rest else bytes([head])


def envelope(kind: str, body: bytes, version: str = "v1") -> bytes:
    return b"k8s\x00" + field(1, field(1, version) + field(2, kind)) + field(2, body) + field(3, "") + field(4, "")


def test_the_question_what_one_may_do() -> None:
    body = field(1, b"") + field(2, field(1, "default"))
    asked = decode(envelope("SelfSubjectRulesReview", body, "authorization.k8s.io/v1"))
    assert asked["spec"] == {"namespace": "default"}


def test_a_namespace() -> None:
    metadata = field(1, "foo") + field(2, "") + field(7, 0) + field(8, b"") + field(11, field(1, "a") + field(2, "b"))
    body = field(1, metadata) + field(2, b"") + field(3, field(1, "Active"))
    assert decode(envelope("Namespace", body)) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "foo", "labels": {"a": "b"}},
        "spec": {},
    }


def test_texts_and_bytes_by_key() -> None:
    data = field(2, field(1, "k") + field(2, "v")) + field(2, field(1, "empty") + field(2, ""))
    decoded = decode(envelope("ConfigMap", data + field(3, field(1, "b") + field(2, b"\xff")) + field(4, 1)))
    assert decoded["data"] == {"k": "v", "empty": ""}
    assert decoded["binaryData"] == {"b": base64.b64encode(b"\xff").decode()}
    assert decoded["immutable"] is True


def test_the_rules_of_a_role() -> None:
    rules = field(2, field(1, "get") + field(1, "list") + field(2, "") + field(3, "pods"))
    decoded = decode(envelope("Role", field(1, field(1, "r")) + rules, "rbac.authorization.k8s.io/v1"))
    assert decoded["rules"] == [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]


def test_how_something_shall_be_deleted() -> None:
    decoded = decode(envelope("DeleteOptions", field(1, 5) + field(2, field(1, "uid-1")) + field(4, "Foreground")))
    assert decoded["gracePeriodSeconds"] == 5
    assert decoded["preconditions"] == {"uid": "uid-1"}
    assert decoded["propagationPolicy"] == "Foreground"


def test_a_time() -> None:
    metadata = field(1, field(8, field(1, 1767225600)))
    assert decode(envelope("Namespace", metadata))["metadata"] == {"creationTimestamp": "2026-01-01T00:00:00Z"}


def test_a_kind_that_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(RefusedError, match="does not read Deployment in protobuf") as refused:
        decode(envelope("Deployment", b""))
    assert refused.value.code == 415


@given(st.binary(max_size=60))
def test_nonsense_is_refused_if_it_cannot_be_read(nonsense: bytes) -> None:
    for payload in (nonsense, b"k8s\x00" + nonsense, envelope("ConfigMap", nonsense)):
        with contextlib.suppress(RefusedError):
            assert isinstance(decode(payload), dict)
