"""Objects are printed as a real API server prints them: columns, computed cells, ages, JSONPaths."""

from datetime import UTC, datetime
from typing import Any

import pytest
from recorded_answers import things

from dracpu_sandbox.apiserver.kinds import ages
from dracpu_sandbox.apiserver.kinds.jsonpath import PathError, find, parse_path
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.kinds.tables import partial, table

NOW = datetime(2026, 11, 18, 20, 0, tzinfo=UTC)
CREATED = {"creationTimestamp": "2026-11-18T19:55:00Z"}


def cells(plural: str, item: dict[str, Any], group: str = "") -> dict[str, Any]:
    kind = Registry().find(group, "v1", plural)
    assert kind is not None
    shown = table(kind, [{**item, "metadata": {"name": "x", **CREATED, **item.get("metadata", {})}}], {}, now=NOW)
    names = [column["name"] for column in shown["columnDefinitions"]]
    return dict(zip(names, shown["rows"][0]["cells"], strict=True))


def status_of(*, phase: str = "Running", **more: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}, "status": {"phase": phase, **more}}


def container(name: str, *, ready: bool = False, restarts: int = 0, **state: Any) -> dict[str, Any]:
    return {"name": name, "ready": ready, "restartCount": restarts, "state": state}


def test_a_running_pod_is_shown() -> None:
    running = [container("a", ready=True, running={}), container("b", ready=True, restarts=3, running={})]
    shown = cells("pods", status_of(containerStatuses=running, podIPs=[{"ip": "10.0.0.1"}]))
    assert list(shown.items())[:6] == [
        ("Name", "x"),
        ("Ready", "2/2"),
        ("Status", "Running"),
        ("Restarts", "3"),
        ("Age", "5m"),
        ("IP", "10.0.0.1"),
    ]
    assert shown["Node"] == "<none>"


@pytest.mark.parametrize(
    "pod, status",
    [
        (status_of(phase="Pending"), "Pending"),
        (status_of(reason="Evicted", phase="Failed"), "Evicted"),
        (status_of(containerStatuses=[container("a", waiting={"reason": "ErrImagePull"})]), "ErrImagePull"),
        (status_of(containerStatuses=[container("a", terminated={"reason": "Error"})]), "Error"),
        (status_of(containerStatuses=[container("a", terminated={"exitCode": 3})]), "ExitCode:3"),
        (status_of(containerStatuses=[container("a", terminated={"signal": 9})]), "Signal:9"),
        (
            status_of(conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]),
            "SchedulingGated",
        ),
        ({**status_of(), "metadata": {"deletionTimestamp": "2026-11-18T19:59:00Z"}}, "Terminating"),
        (
            {
                "spec": {"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}]},
                "status": {
                    "phase": "Pending",
                    "initContainerStatuses": [
                        container("i", terminated={"exitCode": 0}),
                        container("j", running={}),
                    ],
                },
            },
            "Init:1/2",
        ),
    ],
)
def test_what_keeps_a_pod_is_its_status(pod: dict[str, Any], status: str) -> None:
    assert cells("pods", pod)["Status"] == status


def test_a_completed_pod_has_a_condition_in_its_row() -> None:
    kind = Registry().find("", "v1", "pods")
    assert kind is not None
    pod = {"kind": "Pod", "metadata": {"name": "x"}, **status_of(phase="Succeeded")}
    (row,) = table(kind, [pod], {}, "None", now=NOW)["rows"]
    assert row["conditions"][0]["type"] == "Completed"
    assert "object" not in row


@pytest.mark.parametrize(
    "info, shown",
    [
        ({"kernelVersion": "6.12", "architecture": "amd64"}, "6.12 (amd64)"),
        ({"kernelVersion": "6.12", "architecture": ""}, "6.12"),
        ({}, "<unknown>"),
    ],
)
def test_a_nodes_kernel_is_shown_with_its_processors(info: dict[str, str], shown: str) -> None:
    assert cells("nodes", {"status": {"nodeInfo": info}})["Kernel-Version"] == shown


def test_a_node_is_shown() -> None:
    node = {
        "metadata": {"labels": {"node-role.kubernetes.io/worker": ""}},
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.36.0"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }
    shown = cells("nodes", node)
    assert shown["Status"] == "Ready,SchedulingDisabled"
    assert (shown["Roles"], shown["Version"], shown["Internal-IP"]) == ("worker", "v1.36.0", "10.0.0.1")
    assert (shown["External-IP"], shown["OS-Image"]) == ("<none>", "<unknown>")


@pytest.mark.parametrize(
    "claim, state",
    [
        ({}, "pending"),
        ({"status": {"allocation": {"devices": {}}}}, "allocated"),
        ({"status": {"allocation": {"devices": {}}, "reservedFor": [{"uid": "u"}]}}, "allocated,reserved"),
        (
            {"metadata": {"deletionTimestamp": "x"}, "status": {"allocation": {"devices": {}}, "reservedFor": [{}]}},
            "deleted,allocated,reserved",
        ),
    ],
)
def test_a_claim_shows_its_state(claim: dict[str, Any], state: str) -> None:
    assert cells("resourceclaims", claim, "resource.k8s.io") == {"Name": "x", "State": state, "Age": "5m"}


def test_a_slice_shows_whose_it_is() -> None:
    shown = cells("resourceslices", {"spec": {"driver": "d", "pool": {"name": "p"}}}, "resource.k8s.io")
    assert shown == {"Name": "x", "Node": "<unset>", "Driver": "d", "Pool": "p", "Age": "5m"}


def test_both_faces_of_an_event_are_shown_alike() -> None:
    new = {
        "apiVersion": "events.k8s.io/v1",
        "metadata": {},
        "eventTime": "2026-11-18T19:58:00.000000Z",
        "reportingController": "dra.cpu/agent",
        "regarding": {"kind": "Pod", "name": "p"},
        "note": "it is so",
        "reason": "Because",
        "type": "Normal",
    }
    kind = Registry().find("events.k8s.io", "v1", "events")
    assert kind is not None
    core = kind.to_stored(new)
    assert core["involvedObject"] == {"kind": "Pod", "name": "p"}
    assert core["message"] == "it is so"
    shown = cells("events", core)
    assert shown == cells("events", kind.from_stored(core), "events.k8s.io")
    assert [shown[name] for name in ("Last Seen", "Object", "Message")] == ["2m", "pod/p", "it is so"]
    assert kind.storage == "events"


def test_printer_columns_are_shown_as_recorded() -> None:
    registry = Registry()
    (kind,) = registry.serve(things())
    item = {
        "metadata": {"name": "tt", "annotations": {"example.com/note": "hey"}},
        "spec": {
            "size": 4,
            "items": [{"name": "a"}, {"name": "b"}],
            "labels": {"x": "y"},
            "flag": True,
            "ratio": 0.5,
            "when": "2026-11-18T19:47:00Z",
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    bare = {"metadata": {"name": "uu"}, "spec": {"size": 1}}
    shown = table(kind, [item, bare], {}, now=NOW)
    # recorded from kube-apiserver 1.36.3
    assert [row["cells"] for row in shown["rows"]] == [
        ["tt", "True", "a", "a", '{"x":"y"}', True, 0.5, 4, "13m", "hey", "4"],
        ["uu", None, None, None, None, None, None, 1, None, None, "1"],
    ]
    types = [column["type"] for column in shown["columnDefinitions"]]
    assert types[5:9] == ["boolean", "number", "integer", "date"]


def test_metadata_alone_is_shown() -> None:
    kind = Registry().find("", "v1", "pods")
    assert kind is not None
    item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}
    one = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "p"}}
    assert partial(kind, item) == one
    listed = partial(kind, [item], {"resourceVersion": "7"})
    assert listed["items"] == [one]
    assert listed["metadata"] == {"resourceVersion": "7"}


@pytest.mark.parametrize(
    "seconds, told",
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (47 * 3600, "47h"),
        (2 * 86400, "2d"),
        (2 * 86400 + 3600, "2d1h"),
        (10 * 86400, "10d"),
        (800 * 86400, "2y70d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_durations_are_short(seconds: int, told: str) -> None:
    assert ages.human(seconds) == told


ITEM = {"a": {"b.c": 1, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]}}


@pytest.mark.parametrize(
    "path, found",
    [
        (".a['b.c']", [1]),
        (r".a.b\.c", [1]),
        (".a.list[0].n", ["x"]),
        (".a.list[-1].n", ["y"]),
        (".a.list[5].n", []),
        (".a.list[*].v", [1, 2]),
        ('.a.list[?(@.n=="y")].v', [2]),
        ('.a.list[?(@.n!="y")].v', [1]),
        (".a.list[?(@.v==2)].n", ["y"]),
        (".b.c", []),
        ("{.a.list[0].v}", [1]),
    ],
)
def test_paths_find_values(path: str, found: list[Any]) -> None:
    assert find(path, ITEM) == found


@pytest.mark.parametrize("path", ["a.b", ".a[", ".a[?(@.b)]", ".a..b", ".a[?(@.b==x)]"])
def test_a_text_that_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(PathError):
        parse_path(path)
