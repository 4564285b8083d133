"""Label and field selectors."""

import pytest
from dra_objects import slice_of

from dracpu_sandbox.apiserver.kinds.kind import Kind
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.refusal import RefusedError
from dracpu_sandbox.apiserver.selectors import selected_name, selects

REGISTRY = Registry()
POD = {
    "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web", "tier.x/y": "front", "empty": ""}},
    "spec": {"nodeName": "n1"},
}


def kind(plural: str, group: str = "") -> Kind:
    found = REGISTRY.find(group, "v1", plural)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "labels, selected",
    [
        ("", True),
        ("app=web", True),
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
    ],
)
def test_a_label_selector_selects_objects_by_their_labels(labels: str, selected: bool) -> None:
    assert selects(kind("pods"), labels, "")(POD) is selected


@pytest.mark.parametrize(
    "fields, selected",
    [
        ("metadata.name=web", True),
        ("spec.nodeName=n1,metadata.namespace=default", True),
        ("spec.nodeName=", False),
        ("status.phase=", True),
        ("status.phase!=Running", True),
    ],
)
def test_a_field_selector_selects_objects_by_their_fields(fields: str, selected: bool) -> None:
    assert selects(kind("pods"), "", fields)(POD) is selected


@pytest.mark.parametrize("pool, selected", [("n1", True), ("n2", False)])
def test_slices_are_selected_by_their_pool(pool: str, selected: bool) -> None:
    assert (
        selects(kind("resourceslices", "resource.k8s.io"), "", f"spec.pool.name={pool}")(slice_of("n1", [])) is selected
    )


@pytest.mark.parametrize(
    "labels, fields",
    [("a=b=c", ""), ("a in b", ""), ("!a=b", ""), ("(a)", ""), ("a b", ""), ("a=b,", ""), ("", "nonsense")],
)
def test_a_malformed_selector_is_refused(labels: str, fields: str) -> None:
    with pytest.raises(RefusedError, match="is not a .* selector: write") as refused:
        selects(kind("pods"), labels, fields)
    assert refused.value.code == 400


@pytest.mark.parametrize("plural, field", [("pods", "spec.image"), ("nodes", "metadata.namespace")])
def test_an_unknown_field_is_refused_by_name(plural: str, field: str) -> None:
    with pytest.raises(RefusedError, match=rf"'{field}' for {plural} \(use metadata.name"):
        selects(kind(plural), "", f"{field}=x")


@pytest.mark.parametrize(
    "fields, name",
    [("metadata.name=a", "a"), ("spec.nodeName=n,metadata.name==a", "a"), ("metadata.name!=a", ""), ("", "")],
)
def test_a_field_selector_for_a_name_returns_the_name(fields: str, name: str) -> None:
    assert selected_name(fields) == name
