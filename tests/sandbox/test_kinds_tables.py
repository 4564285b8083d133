"""`kubectl get` shows objects as a real API server prints them: columns, computed cells, ages."""

from datetime import UTC, datetime
from typing import Any

import pytest
from recorded_answers import things

from dracpu_sandbox.apiserver.kinds import ages
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.kinds.tables import table

NOW = datetime(2026, 11, 18, 20, 0, tzinfo=UTC)
CREATED = {"creationTimestamp": "2026-11-18T19:55:00Z"}


def cells(plural: str, item: dict[str, Any], group: str = "") -> dict[str, Any]:
    kind = Registry().find(group, "v1", plural)
    assert kind is not None
    shown = table(kind, [{**item, "metadata": {"name": "x", **CREATED, **item.get("metadata", {})}}], {}, now=NOW)
    names = [column["name"] for column in shown["columnDefinitions"]]
    return dict(zip(names, shown["rows"][0]["cells"], strict=True))


def pod(*containers: dict[str, Any], phase: str = "Running", **status: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "a"}, {"name": "b"}]}
    return {"spec": spec, "status": {"phase": phase, "containerStatuses": list(containers), **status}}


def container(name: str, *, ready: bool = False, restarts: int = 0, **state: Any) -> dict[str, Any]:
    return {"name": name, "ready": ready, "restartCount": restarts, "state": state}


def test_the_cells_of_a_running_pod_are_computed() -> None:
    running = [container("a", ready=True, running={}), container("b", ready=True, restarts=3, running={})]
    shown = cells("pods", pod(*running, podIPs=[{"ip": "10.0.0.1"}]))
    assert list(shown.values())[:7] == ["x", "2/2", "Running", "3", "5m", "10.0.0.1", "<none>"]


@pytest.mark.parametrize(
    "shown, status",
    [
        (pod(phase="Pending"), "Pending"),
        (pod(reason="Evicted", phase="Failed"), "Evicted"),
        (pod(container("a", waiting={"reason": "ErrImagePull"})), "ErrImagePull"),
        (pod(container("a", terminated={"reason": "Error"})), "Error"),
        (pod(container("a", terminated={"exitCode": 3})), "ExitCode:3"),
        (
            pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]),
            "SchedulingGated",
        ),
        ({**pod(), "metadata": {"deletionTimestamp": "2026-11-18T19:59:00Z"}}, "Terminating"),
        (
            {
                "spec": {"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}]},
                "status": {
                    "initContainerStatuses": [container("i", terminated={"exitCode": 0}), container("j", running={})]
                },
            },
            "Init:1/2",
        ),
    ],
)
def test_the_status_of_a_pod_is_its_phase_or_the_reason_why_it_does_not_run(shown: dict[str, Any], status: str) -> None:
    assert cells("pods", shown)["Status"] == status


def test_the_cells_of_a_node_are_computed() -> None:
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kubeletVersion": "v1.36.0", "kernelVersion": "6.12", "architecture": "amd64"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    }
    worker = {"metadata": {"labels": {"node-role.kubernetes.io/worker": ""}}, "spec": {"unschedulable": True}}
    shown = list(cells("nodes", {**worker, "status": status}).values())
    assert shown[1:5] == ["Ready,SchedulingDisabled", "worker", "5m", "v1.36.0"]
    assert shown[5:] == ["10.0.0.1", "<none>", "<unknown>", "6.12 (amd64)", "<unknown>"]


@pytest.mark.parametrize(
    "claim, state",
    [
        ({}, "pending"),
        ({"status": {"allocation": {"devices": {}}}}, "allocated"),
        (
            {"metadata": {"deletionTimestamp": "x"}, "status": {"allocation": {"devices": {}}, "reservedFor": [{}]}},
            "deleted,allocated,reserved",
        ),
    ],
)
def test_a_claim_shows_its_state(claim: dict[str, Any], state: str) -> None:
    assert list(cells("resourceclaims", claim, "resource.k8s.io").values()) == ["x", state, "5m"]


def test_events_of_both_groups_are_shown_alike() -> None:
    event = {
        "metadata": {},
        "eventTime": "2026-11-18T19:58:00.000000Z",
        "regarding": {"kind": "Pod", "name": "p"},
        "note": "it has happened",
    }
    kind = Registry().find("events.k8s.io", "v1", "events")
    assert kind is not None
    core = kind.to_stored(event)
    shown = cells("events", core)
    assert shown == cells("events", kind.from_stored(core), "events.k8s.io")
    assert [shown[name] for name in ("Last Seen", "Object", "Message")] == ["2m", "pod/p", "it has happened"]


def test_columns_of_custom_resources_show_the_fields_at_their_paths() -> None:
    kind = Registry().serve(things())
    spec = {"size": 4, "labels": {"x": "y"}, "flag": True, "when": "2026-11-18T19:47:00Z"}
    shown = table(kind, [{"metadata": {"name": "t"}, "spec": spec}, {"metadata": {"name": "u"}}], {}, now=NOW)
    assert [row["cells"] for row in shown["rows"]] == [
        ["t", '{"x":"y"}', True, 4, "13m"],
        ["u", None, None, None, None],
    ]
    assert [column["type"] for column in shown["columnDefinitions"]][2:] == ["boolean", "integer", "date"]


@pytest.mark.parametrize(
    "items, shown",
    [
        (None, None),
        ([], None),
        ([{"name": "b", "text": "second"}, {"name": "a", "text": "first"}], "first"),
        ([{"name": "a"}, {"name": "a", "text": "first"}, {"name": "a", "text": "again"}], "first"),
        ([{"name": "b", "text": "second"}, {"text": "nameless"}], None),
    ],
)
def test_a_column_shows_the_first_value_among_the_items_that_its_path_selects(items: Any, shown: str | None) -> None:
    definition = things()
    (version,) = definition["spec"]["versions"]
    version["additionalPrinterColumns"] = [
        {"name": "Text", "type": "string", "jsonPath": '.spec.items[?(@.name=="a")].text'}
    ]
    spec = {"size": 4} if items is None else {"size": 4, "items": items}
    table_of_one = table(Registry().serve(definition), [{"metadata": {"name": "t"}, "spec": spec}], {}, now=NOW)
    assert table_of_one["rows"][0]["cells"] == ["t", shown]


@pytest.mark.parametrize(
    "seconds, shown",
    [(-5, "<invalid>"), (119, "119s"), (150, "2m30s"), (600, "10m"), (10860, "3h1m"), (172800, "2d"), (9**9, "12y")],
)
def test_durations_are_rendered_as_by_kubectl(seconds: int, shown: str) -> None:
    assert ages.duration(seconds) == shown
