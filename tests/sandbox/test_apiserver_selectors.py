"""Label and field selectors."""

import pytest

from dracpu_sandbox.apiserver.kinds.model import Kind
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.refusal import RefusedError
from dracpu_sandbox.apiserver.selectors import selected_name, selects

REGISTRY = Registry()
POD = {
    "metadata": {
        "name": "web",
        "namespace": "default",
        "labels": {"app": "web", "tier.x/y": "front", "empty": "", "size": "5"},
    },
    "spec": {"nodeName": "n1", "hostNetwork": True},
}


def kind(plural: str, group: str = "") -> Kind:
    found = REGISTRY.find(group, "v1", plural)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "labels, chosen",
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app!=web", False),
        ("missing!=web", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("app in (db, web)", True),
        ("app in (db)", False),
        ("app notin (db)", True),
        ("missing notin (db)", True),
        ("missing in (db)", False),
        ("app=web,tier.x/y=front", True),
        ("app in (db,web),tier.x/y=back", False),
        ("empty=", True),
        ("app=", False),
        ("app in (web,)", True),
        ("empty in ()", True),
        ("in notin (in)", True),
        ("size>4", True),
        ("size<5,app", False),
        ("app>4", False),
    ],
)
def test_label_selectors(labels: str, chosen: bool) -> None:
    assert selects(kind("pods"), labels, "")(POD) is chosen


@pytest.mark.parametrize(
    "fields, chosen",
    [
        ("metadata.name=web", True),
        ("metadata.name!=web", False),
        ("spec.nodeName=n1,metadata.namespace=default", True),
        ("spec.nodeName=", False),
        ("status.phase=", True),
        ("status.phase!=Running", True),
        ("spec.hostNetwork=true", True),
        (r"metadata.name=we\,b", False),
    ],
)
def test_field_selectors(fields: str, chosen: bool) -> None:
    assert selects(kind("pods"), "", fields)(POD) is chosen


def test_what_is_true_or_false_is_false_where_it_is_not_said() -> None:
    node = {"metadata": {"name": "n1"}, "spec": {}}
    assert selects(kind("nodes"), "", "spec.unschedulable=false")(node)
    assert selects(kind("pods"), "", "spec.hostNetwork=false")({**POD, "spec": {}})


def test_events_are_selected_by_the_names_of_both_their_faces() -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"name": "web"}, "source": {"component": "kubelet"}}
    assert selects(kind("events"), "", "involvedObject.name=web,source=kubelet")(event)
    assert selects(kind("events", "events.k8s.io"), "", "regarding.name=web")(event)


@pytest.mark.parametrize(
    "labels, fields",
    [("a=b=c", ""), ("a in b", ""), ("!a=b", ""), ("(a)", ""), ("", "spec.image=x"), ("", "nonsense")],
)
def test_what_is_no_selector_is_refused(labels: str, fields: str) -> None:
    with pytest.raises(RefusedError) as refused:
        selects(kind("pods"), labels, fields)
    assert refused.value.code == 400


NOT_KNOWN = '"spec.mode" is not a known field selector: only "metadata.name", "metadata.namespace"'
SLICES = "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.mode"


@pytest.mark.parametrize(
    "plural, group, told",
    [
        ("pods", "", "field label not supported: spec.mode"),
        ("configmaps", "", NOT_KNOWN),
        ("resourceclaims", "resource.k8s.io", NOT_KNOWN),
        ("resourceslices", "resource.k8s.io", SLICES),
    ],
)
def test_a_field_that_cannot_be_selected_is_named(plural: str, group: str, told: str) -> None:
    with pytest.raises(RefusedError) as refused:
        selects(kind(plural, group), "", "spec.mode=x")
    assert str(refused.value) == told


def test_nodes_have_no_namespace_to_be_selected_by() -> None:
    with pytest.raises(RefusedError, match=r"field label not supported: metadata\.namespace"):
        selects(kind("nodes"), "", "metadata.namespace=x")


@pytest.mark.parametrize(
    "labels, told",
    [
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a=b,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a=?", 'unable to parse requirement: values[0][a]: Invalid value: "?": must be empty, or letters'),
        ("?a", 'unable to parse requirement: <nil>: Invalid value: "?a": must be letters, digits'),
        ("a>x", "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value"),
    ],
)
def test_what_is_wrong_with_a_label_selector_is_told(labels: str, told: str) -> None:
    with pytest.raises(RefusedError) as refused:
        selects(kind("pods"), labels, "")
    assert str(refused.value).startswith(told)


@pytest.mark.parametrize(
    "fields, told",
    [
        ("status.phase=x,y", "invalid selector: 'status.phase=x,y'; can't understand 'y'"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_what_is_wrong_with_a_field_selector_is_told(fields: str, told: str) -> None:
    with pytest.raises(RefusedError) as refused:
        selects(kind("pods"), "", fields)
    assert str(refused.value) == told


@pytest.mark.parametrize(
    "fields, name",
    [("metadata.name=a", "a"), ("spec.nodeName=n,metadata.name==a", "a"), ("metadata.name!=a", ""), ("", "")],
)
def test_a_selector_may_leave_one_name(fields: str, name: str) -> None:
    assert selected_name(fields) == name
