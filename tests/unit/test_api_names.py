"""Names that manifests, dashboards and other drivers rely on."""

from typing import get_args

from dracpu_api import names
from dracpu_api.objects.models import CpuDriverConfig, CpuNode


def test_a_claim_with_one_request_is_named_by_its_uid_alone() -> None:
    assert names.CPUS.cdi_device("u-1", None) == "dra.k8s.io/cpu=claim-u-1"
    assert names.CPUS.variable("u-1", None) == "DRA_CPUSET_u-1"


def test_a_request_of_several_is_named_too() -> None:
    assert names.CPUS.cdi_device("u-1", "big-part") == "dra.k8s.io/cpu=claim-u-1-big-part"
    assert names.CPUS.variable("u-1", "big-part") == "DRA_CPUSET_u-1_big_part"


def test_the_models_have_the_group_and_version_of_the_api() -> None:
    for model in (CpuDriverConfig, CpuNode):
        assert get_args(model.model_fields["api_version"].annotation) == (f"{names.API_GROUP}/{names.API_VERSION}",)
