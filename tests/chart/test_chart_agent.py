"""What the chart installs on the nodes: an agent with few rights, and the rules that hold it to its own node."""

from typing import Any

import pytest
import yaml
from helm_chart import CHART, NAMESPACE, Manifest, container_of, granted, pod_of, render

from dracpu_agent.cli import options
from dracpu_api import names


@pytest.fixture
def daemon_set() -> Manifest:
    return render().only("DaemonSet")


@pytest.fixture
def pod(daemon_set: Manifest) -> Manifest:
    return pod_of(daemon_set)


@pytest.fixture
def container(daemon_set: Manifest) -> Manifest:
    return container_of(daemon_set)


@pytest.fixture
def role() -> Manifest:
    return render().the("ClusterRole", "dracpu-agent")


def host_paths(pod: Manifest) -> dict[str, Any]:
    return {volume["hostPath"]["path"]: volume["hostPath"]["type"] for volume in pod["volumes"]}


def mounts(pod: Manifest, container: Manifest) -> dict[str, bool]:
    """Path on the node -> whether it is mounted for reading only; the path in the container has to be the same."""
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    for mount in container["volumeMounts"]:
        assert mount["mountPath"] == paths[mount["name"]]
    return {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}


class TestTheAgentsPod:
    def test_has_root_without_any_of_its_powers(self, pod: Manifest, container: Manifest) -> None:
        assert pod["securityContext"]["runAsUser"] == 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
        }

    def test_shares_no_namespace_with_the_node(self, pod: Manifest) -> None:
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()

    def test_sees_of_the_node_only_what_it_works_with(self, pod: Manifest, container: Manifest) -> None:
        assert mounts(pod, container) == {
            "/var/lib/kubelet/plugins/dra.cpu": False,
            "/var/lib/kubelet/plugins_registry": False,
            "/var/lib/kubelet/cpu_manager_state": True,
            "/var/run/cdi": False,
            "/var/run/nri": True,
            "/var/lib/dracpu": False,
        }

    def test_makes_no_folder_that_the_kubelet_should_have_made(self, pod: Manifest) -> None:
        kinds = host_paths(pod)
        assert kinds["/var/lib/kubelet/plugins_registry"] == "Directory"
        assert kinds["/var/lib/kubelet/cpu_manager_state"] == "File"

    def test_runs_on_every_linux_node_and_is_the_last_to_go(self, pod: Manifest) -> None:
        assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert pod["tolerations"] == [{"operator": "Exists"}]
        assert pod["priorityClassName"] == "system-node-critical"

    def test_is_never_there_twice(self, daemon_set: Manifest) -> None:
        assert daemon_set["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": "10%"}

    def test_has_a_memory_limit_and_is_not_throttled(self, container: Manifest) -> None:
        assert container["resources"] == {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"memory": "128Mi"},
        }

    def test_is_asked_how_it_is_once_it_has_started(self, container: Manifest) -> None:
        assert container["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}

    def test_gives_the_agent_options_that_it_knows(self, pod: Manifest, container: Manifest) -> None:
        parsed = options.run_options(options.parser({}).parse_args(container["args"]))
        assert parsed.node_name == "$(NODE_NAME)"  # the kubelet puts the variable's value in
        assert container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
        mounted = mounts(pod, container)
        assert {str(parsed.cdi_dir), str(parsed.state_dir), str(parsed.nri_socket.parent)} <= mounted.keys()
        assert str(parsed.kubelet_root / "plugins" / names.DRIVER) in mounted

    def test_image_names_no_registry(self, container: Manifest) -> None:
        app_version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
        assert container["image"] == f"dracpu-agent:{app_version}"

    def test_is_selected_by_labels_that_no_upgrade_changes(self, daemon_set: Manifest) -> None:
        labels = daemon_set["spec"]["template"]["metadata"]["labels"]
        assert daemon_set["spec"]["selector"]["matchLabels"] == labels
        assert not [value for value in labels.values() if "0.1" in value]

    def test_follows_the_values(self) -> None:
        made = render(
            "agent.image.repository=localhost/dracpu-agent",
            "agent.image.tag=lab",
            "agent.image.pullPolicy=Never",
            "agent.kubeletRoot=/data/kubelet",
            "agent.nriSocket=/run/crio/nri.sock",
            "agent.httpPort=9090",
        ).only("DaemonSet")
        container = container_of(made)
        assert container["image"] == "localhost/dracpu-agent:lab"
        assert container["imagePullPolicy"] == "Never"
        assert {"/data/kubelet/plugins/dra.cpu", "/run/crio"} <= mounts(pod_of(made), container).keys()
        parsed = options.run_options(options.parser({}).parse_args(container["args"]))
        assert (str(parsed.kubelet_root), parsed.http_address) == ("/data/kubelet", ":9090")
        assert container["ports"] == [{"name": "http", "containerPort": 9090}]


class TestTheAgentsRights:
    def test_are_these_and_no_others(self, role: Manifest) -> None:
        assert granted(role) == {
            ("resource.k8s.io", "resourceclaims"): {"get"},
            ("resource.k8s.io", "resourceclaims/status"): {"patch"},
            ("resource.k8s.io", "resourceclaims/driver"): {"associated-node:patch"},
            ("resource.k8s.io", "resourceslices"): {"list", "watch", "create", "update", "delete"},
            ("", "nodes"): {"get"},
            ("dra.cpu", "cpunodes"): {"list", "watch"},
            ("dra.cpu", "cpunodes/status"): {"patch"},
        }

    def test_over_events_end_at_the_namespace_that_has_those_of_cpu_nodes(self) -> None:
        role = render().the("Role", "dracpu-agent")
        assert role["metadata"]["namespace"] == "default"
        assert granted(role) == {("events.k8s.io", "events"): {"create"}}

    def test_over_claims_end_at_its_own_driver(self, role: Manifest) -> None:
        (rule,) = (rule for rule in role["rules"] if rule["resources"] == ["resourceclaims/driver"])
        assert rule["resourceNames"] == [names.DRIVER]

    @pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
    def test_belong_to_the_account_that_the_pod_runs_as(self, kind: str, pod: Manifest) -> None:
        binding = render().the(f"{kind}Binding", "dracpu-agent")
        account = {"kind": "ServiceAccount", "name": pod["serviceAccountName"], "namespace": NAMESPACE}
        assert binding["subjects"] == [account]
        assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "dracpu-agent"}

    def test_token_is_mounted_only_where_it_is_asked_for(self, pod: Manifest) -> None:
        account = render().the("ServiceAccount", pod["serviceAccountName"])
        assert account["automountServiceAccountToken"] is False
        assert pod["automountServiceAccountToken"] is True


class TestTheAdmissionPolicies:
    @pytest.mark.parametrize("name", ["dracpu-agent-own-slices", "dracpu-agent-own-cpunode"])
    def test_deny_and_fail_closed(self, name: str) -> None:
        policy = render().the("ValidatingAdmissionPolicy", name)
        (binding,) = (
            one for one in render().of_kind("ValidatingAdmissionPolicyBinding") if one["spec"]["policyName"] == name
        )
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert binding["spec"]["validationActions"] == ["Deny"]

    def test_concern_the_agents_account_only(self, pod: Manifest) -> None:
        account = f"system:serviceaccount:{NAMESPACE}:{pod['serviceAccountName']}"
        for policy in render().of_kind("ValidatingAdmissionPolicy"):
            (condition,) = policy["spec"]["matchConditions"]
            assert condition["expression"] == f"request.userInfo.username == '{account}'"

    def test_cover_every_way_of_writing_a_slice_and_a_cpu_node(self) -> None:
        covered = {
            (group, resource): set(rule["operations"])
            for policy in render().of_kind("ValidatingAdmissionPolicy")
            for rule in policy["spec"]["matchConstraints"]["resourceRules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        }
        every_way = {"CREATE", "UPDATE", "DELETE"}
        assert covered == {
            ("resource.k8s.io", "resourceslices"): every_way,
            ("dra.cpu", "cpunodes"): every_way,
            ("dra.cpu", "cpunodes/status"): every_way,
        }

    def test_can_be_left_out(self) -> None:
        assert not render("admissionPolicy.create=false").of_kind("ValidatingAdmissionPolicy")
