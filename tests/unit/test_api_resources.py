"""The URL paths of objects are those that the API server serves."""

import pytest

from dracpu_api.resources import CPU_NODES, EVENTS, NODES, RESOURCE_CLAIMS


def test_the_core_api_has_a_path_of_its_own() -> None:
    assert NODES.path("n1") == "/api/v1/nodes/n1"
    assert NODES.api_version == "v1"


def test_paths_of_other_groups_begin_with_apis() -> None:
    assert CPU_NODES.path("n1", subresource="status") == "/apis/dra.cpu/v1alpha1/cpunodes/n1/status"
    assert CPU_NODES.api_version == "dra.cpu/v1alpha1"


def test_paths_of_namespaced_objects_have_the_namespace() -> None:
    assert EVENTS.path(namespace="default") == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert RESOURCE_CLAIMS.path("one", namespace="a") == "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims/one"


def test_a_collection_without_a_namespace_has_the_objects_of_all_namespaces() -> None:
    assert RESOURCE_CLAIMS.path() == "/apis/resource.k8s.io/v1/resourceclaims"


def test_names_are_quoted() -> None:
    assert NODES.path("../secrets") == "/api/v1/nodes/..%2Fsecrets"


def test_a_missing_or_needless_namespace_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs a namespace"):
        RESOURCE_CLAIMS.path("one")
    with pytest.raises(ValueError, match="have no namespace"):
        NODES.path("n1", namespace="a")
