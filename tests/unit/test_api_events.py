"""The bodies of Events are such that the API server accepts them."""

from datetime import UTC, datetime

from dracpu_api.events import Event, event_body

AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


def body_of(name: str = "all", instance: str = "pod-1", note: str = "2 nodes failed") -> dict[str, object]:
    event = Event("Warning", "NodesFailed", "Reconcile", note)
    regarding = {"apiVersion": "dra.cpu/v1alpha1", "kind": "CpuDriverConfig", "name": name, "uid": "u1"}
    return event_body(event, regarding=regarding, controller="dracpu-operator", instance=instance, at=AT)


def test_an_event_names_its_object_its_time_and_its_source() -> None:
    body = body_of()
    metadata = body.pop("metadata")
    assert isinstance(metadata, dict)
    assert metadata["name"].startswith("all.")
    assert metadata["namespace"] == "default"
    assert body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingController": "dracpu-operator",
        "reportingInstance": "pod-1",
        "type": "Warning",
        "reason": "NodesFailed",
        "action": "Reconcile",
        "note": "2 nodes failed",
        "regarding": {"apiVersion": "dra.cpu/v1alpha1", "kind": "CpuDriverConfig", "name": "all", "uid": "u1"},
    }


def test_two_events_about_an_object_have_different_names() -> None:
    assert body_of()["metadata"] != body_of()["metadata"]


def test_long_texts_are_cut_to_what_the_api_server_accepts() -> None:
    body = body_of(name="n" * 235 + "." * 18, instance="p" * 200, note="ü" * 2000)
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    assert len(metadata["name"]) <= 253
    assert ".." not in metadata["name"]
    assert body["reportingInstance"] == "p" * 128
    assert body["note"] == "ü" * 512
