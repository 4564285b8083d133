"""What helm runs beside installing: the default config is made, and nothing is uninstalled under held claims."""

import re
from typing import Any

import helm_chart
import pytest
import yaml
from helm_chart import HOOK, NAMESPACE, Manifest, container_of, granted, pod_of, render

from dracpu_api.objects.models import CpuDriverConfig
from dracpu_api.objects.validate import parse


def hooks_at(event: str, *values: str) -> list[Manifest]:
    """The hooks of an event, in order."""
    return [one for one in render(*values).hooks() if event in one["metadata"]["annotations"][HOOK].split(",")]


def default_config(*values: str) -> Any:
    """The object that the Job is given, read from where the Job is told to read it."""
    job = render(*values).the("Job", "dracpu-default-config")
    (mount,), (volume,) = container_of(job)["volumeMounts"], pod_of(job)["volumes"]
    assert mount["name"] == volume["name"]
    _, file = container_of(job)["args"]
    content = render(*values).the("ConfigMap", volume["configMap"]["name"])["data"]
    return yaml.safe_load(content[file.removeprefix(f"{mount['mountPath']}/")])


class TestEveryHook:
    def test_leaves_nothing_behind_when_all_goes_well(self) -> None:
        for hook in render().hooks():
            policies = hook["metadata"]["annotations"][f"{HOOK}-delete-policy"].split(",")
            assert policies == ["before-hook-creation", "hook-succeeded"]

    def test_that_fails_stays_for_its_log_but_not_for_ever(self) -> None:
        for job in render().of_kind("Job"):
            assert "hook-failed" not in job["metadata"]["annotations"][f"{HOOK}-delete-policy"]
            assert job["spec"]["ttlSecondsAfterFinished"] == 86400

    def test_that_fails_has_its_log_printed_by_helm(self) -> None:
        for job in render().of_kind("Job"):
            assert "hook-failed" in job["metadata"]["annotations"][f"{HOOK}-output-log-policy"]

    def test_ends_before_helm_stops_waiting_for_it(self) -> None:
        for job in render().of_kind("Job"):
            assert job["spec"]["activeDeadlineSeconds"] < 300  # helm's --timeout

    def test_that_refuses_is_not_asked_again(self) -> None:
        for job in render().of_kind("Job"):
            assert job["spec"]["backoffLimit"] == 0
            assert pod_of(job)["restartPolicy"] == "Never"


class TestTheDefaultConfig:
    @pytest.mark.parametrize("event", ["post-install", "post-upgrade"])
    def test_is_brought_up_to_date_after_helm_has_done_the_rest(self, event: str) -> None:
        assert [hook["kind"] for hook in hooks_at(event)][-1] == "Job"

    def test_job_starts_when_all_that_it_needs_is_there(self) -> None:
        *needed, job = hooks_at("post-install")
        assert {one["kind"] for one in needed} == {"ConfigMap", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
        weights = [int(one["metadata"]["annotations"][f"{HOOK}-weight"]) for one in needed]
        assert max(weights) < int(job["metadata"]["annotations"][f"{HOOK}-weight"])

    def test_is_an_empty_spec_unless_values_say_more(self) -> None:
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
            "priority": 1000000,  # Helm's own YAML would say 1e+06, which is no integer to others
            "allocation": {"fullCores": True},
            "nodeSelector": {"matchLabels": {"pool": "a<b"}},
            "rollout": {"maxUnavailable": "10%"},
        }

    def test_is_an_object_that_the_project_itself_takes(self) -> None:
        assert isinstance(parse(default_config("defaultConfig.spec.mode=individual")), CpuDriverConfig)

    def test_job_may_touch_this_one_config_only(self) -> None:
        role = render().the("ClusterRole", "dracpu-default-config")
        assert granted(role) == {("dra.cpu", "cpudriverconfigs"): {"get", "create", "patch"}}
        assert [rule["resourceNames"] for rule in role["rules"]] == [["default"]]
        binding = render().the("ClusterRoleBinding", "dracpu-default-config")
        account = pod_of(render().the("Job", "dracpu-default-config"))["serviceAccountName"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]

    def test_rights_are_there_only_while_the_job_runs(self) -> None:
        for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding"):
            assert render().the(kind, "dracpu-default-config") in render().hooks()

    def test_can_be_left_to_somebody_else(self) -> None:
        made = render("defaultConfig.create=false")
        assert [hook["metadata"]["name"] for hook in made.hooks()] == ["dracpu-uninstall-check"]
        assert not [one for one in made.manifests if "default-config" in one["metadata"]["name"]]


class TestTheUninstallCheck:
    def test_comes_before_anything_is_deleted(self) -> None:
        (job,) = hooks_at("pre-delete")
        assert (job["kind"], job["metadata"]["name"]) == ("Job", "dracpu-uninstall-check")
        assert job["metadata"]["annotations"][HOOK] == "pre-delete"

    def test_has_the_operators_account_which_may_list_what_it_lists(self) -> None:
        (job,) = hooks_at("pre-delete")
        assert pod_of(job)["serviceAccountName"] == "dracpu-operator"
        rights = granted(render().the("ClusterRole", "dracpu-operator"))
        assert "list" in rights["resource.k8s.io", "resourceclaims"]
        assert "list" in rights["dra.cpu", "cpunodes"]

    def test_can_be_left_out(self) -> None:
        assert not hooks_at("pre-delete", "uninstall.force=true")


def test_without_both_there_is_no_hook() -> None:
    assert not render("defaultConfig.create=false", "uninstall.force=true").hooks()


def test_the_documents_name_the_jobs_as_they_are_named() -> None:
    """Whoever is refused reads the log of a Job by its name."""
    text = "\n".join((helm_chart.ROOT / "docs" / "user" / name).read_text() for name in ("install.md", "uninstall.md"))
    assert set(re.findall(r"job/([a-z-]+)", text)) == {job["metadata"]["name"] for job in render().of_kind("Job")}
