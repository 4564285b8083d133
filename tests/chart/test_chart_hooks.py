"""The chart's hooks: one creates the default config, another lets `helm uninstall` fail while claims hold CPUs."""

import re
from typing import Any

import helm_chart
import pytest
import yaml
from helm_chart import HOOK, NAMESPACE, Manifest, container_of, pod_of, render, rights_of

from dracpu_api.objects.models import CpuDriverConfig
from dracpu_api.objects.validate import parse


def hooks_at(event: str, *values: str) -> list[Manifest]:
    """Returns the hooks of an event, in the order in which helm runs them."""
    return [hook for hook in render(*values).hooks() if event in hook["metadata"]["annotations"][HOOK].split(",")]


def default_config(*values: str) -> Any:
    """Returns the config from the file that the Job's arguments name."""
    job = render(*values).named("Job", "dracpu-default-config")
    (mount,), (volume,) = container_of(job)["volumeMounts"], pod_of(job)["volumes"]
    assert mount["name"] == volume["name"]
    _, file = container_of(job)["args"]
    content = render(*values).named("ConfigMap", volume["configMap"]["name"])["data"]
    return yaml.safe_load(content[file.removeprefix(f"{mount['mountPath']}/")])


class TestEveryHook:
    def test_is_deleted_when_it_succeeded(self) -> None:
        for hook in render().hooks():
            policies = hook["metadata"]["annotations"][f"{HOOK}-delete-policy"].split(",")
            assert policies == ["before-hook-creation", "hook-succeeded"]

    def test_that_fails_is_kept_for_a_day(self) -> None:
        for job in render().of_kind("Job"):
            assert "hook-failed" not in job["metadata"]["annotations"][f"{HOOK}-delete-policy"]
            assert job["spec"]["ttlSecondsAfterFinished"] == 86400

    def test_that_fails_has_its_log_printed_by_helm(self) -> None:
        for job in render().of_kind("Job"):
            assert "hook-failed" in job["metadata"]["annotations"][f"{HOOK}-output-log-policy"]

    def test_ends_before_the_timeout_of_helm(self) -> None:
        for job in render().of_kind("Job"):
            assert job["spec"]["activeDeadlineSeconds"] < 300  # the default of helm's --timeout

    def test_that_fails_is_not_retried(self) -> None:
        for job in render().of_kind("Job"):
            assert job["spec"]["backoffLimit"] == 0
            assert pod_of(job)["restartPolicy"] == "Never"


class TestDefaultConfig:
    @pytest.mark.parametrize("event", ["post-install", "post-upgrade"])
    def test_is_written_after_all_other_hooks(self, event: str) -> None:
        assert [hook["kind"] for hook in hooks_at(event)][-1] == "Job"

    def test_job_starts_after_the_objects_that_it_needs(self) -> None:
        *needed, job = hooks_at("post-install")
        assert {manifest["kind"] for manifest in needed} == {
            "ConfigMap",
            "ServiceAccount",
            "ClusterRole",
            "ClusterRoleBinding",
        }
        weights = [int(manifest["metadata"]["annotations"][f"{HOOK}-weight"]) for manifest in needed]
        assert max(weights) < int(job["metadata"]["annotations"][f"{HOOK}-weight"])

    def test_has_an_empty_spec_by_default(self) -> None:
        assert default_config() == {
            "apiVersion": "dra.cpu/v1alpha1",
            "kind": "CpuDriverConfig",
            "metadata": {"name": "default"},
            "spec": {},
        }

    def test_has_the_spec_of_the_values(self) -> None:
        made = default_config(
            "defaultConfig.spec.mode=individual",
            "defaultConfig.spec.reservedCPUs=0-1",
            "defaultConfig.spec.priority=1000000",
            "defaultConfig.spec.allocation.fullCores=true",
            "defaultConfig.spec.nodeSelector.matchLabels.pool=a<b",
            "defaultConfig.spec.rollout.maxUnavailable=10%",
        )["spec"]
        assert made == {
            "mode": "individual",
            "reservedCPUs": "0-1",
            "priority": 1000000,  # Helm's own YAML would have 1e+06, which the API server does not accept as an integer
            "allocation": {"fullCores": True},
            "nodeSelector": {"matchLabels": {"pool": "a<b"}},
            "rollout": {"maxUnavailable": "10%"},
        }

    def test_is_valid(self) -> None:
        assert isinstance(parse(default_config("defaultConfig.spec.mode=individual")), CpuDriverConfig)

    def test_job_may_write_only_this_config(self) -> None:
        role = render().named("ClusterRole", "dracpu-default-config")
        assert rights_of(role) == {("dra.cpu", "cpudriverconfigs"): {"get", "create", "patch"}}
        assert [rule["resourceNames"] for rule in role["rules"]] == [["default"]]
        binding = render().named("ClusterRoleBinding", "dracpu-default-config")
        account = pod_of(render().named("Job", "dracpu-default-config"))["serviceAccountName"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]

    def test_rights_of_the_job_exist_only_while_it_runs(self) -> None:
        for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding"):
            assert render().named(kind, "dracpu-default-config") in render().hooks()

    def test_can_be_left_out(self) -> None:
        made = render("defaultConfig.create=false")
        assert [hook["metadata"]["name"] for hook in made.hooks()] == ["dracpu-uninstall-check"]
        assert not [manifest for manifest in made.manifests if "default-config" in manifest["metadata"]["name"]]


class TestUninstallCheck:
    def test_runs_before_anything_is_deleted(self) -> None:
        (job,) = hooks_at("pre-delete")
        assert (job["kind"], job["metadata"]["name"]) == ("Job", "dracpu-uninstall-check")
        assert job["metadata"]["annotations"][HOOK] == "pre-delete"

    def test_uses_the_operators_account_which_may_list_claims_and_cpu_nodes(self) -> None:
        (job,) = hooks_at("pre-delete")
        assert pod_of(job)["serviceAccountName"] == "dracpu-operator"
        rights = rights_of(render().named("ClusterRole", "dracpu-operator"))
        assert "list" in rights["resource.k8s.io", "resourceclaims"]
        assert "list" in rights["dra.cpu", "cpunodes"]

    def test_can_be_disabled(self) -> None:
        assert not hooks_at("pre-delete", "uninstall.force=true")


def test_without_default_config_and_uninstall_check_there_are_no_hooks() -> None:
    assert not render("defaultConfig.create=false", "uninstall.force=true").hooks()


def test_the_pages_name_the_jobs_that_the_chart_creates() -> None:
    """A user reads the log of a failed Job by its name."""
    text = "\n".join((helm_chart.ROOT / "docs" / "user" / name).read_text() for name in ("install.md", "uninstall.md"))
    assert set(re.findall(r"job/([a-z-]+)", text)) == {job["metadata"]["name"] for job in render().of_kind("Job")}
