"""The chart installs an agent on each node, with few rights and with policies that limit it to its own node."""

from typing import Any

import pytest
import yaml
from helm_chart import CHART, NAMESPACE, Manifest, container_of, pod_of, render, rights_of

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
    return render().named("ClusterRole", "dracpu-agent")


def host_paths(pod: Manifest) -> dict[str, Any]:
    return {volume["hostPath"]["path"]: volume["hostPath"]["type"] for volume in pod["volumes"]}


def mounts(pod: Manifest, container: Manifest) -> dict[str, bool]:
    """Path on the node -> whether it is mounted read-only; asserts that the container has it at the same path, or below
    /host if it is in /sys."""
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    for mount in container["volumeMounts"]:
        path = paths[mount["name"]]
        assert mount["mountPath"] == (f"/host{path}" if path.startswith("/sys/") else path)
    return {paths[mount["name"]]: mount.get("readOnly", False) for mount in container["volumeMounts"]}


class TestAgentPod:
    def test_runs_as_root_without_capabilities(self, pod: Manifest, container: Manifest) -> None:
        assert pod["securityContext"]["runAsUser"] == 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
        }

    def test_uses_no_namespace_of_the_host(self, pod: Manifest) -> None:
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()

    def test_mounts_only_the_paths_of_the_node_that_it_needs(self, pod: Manifest, container: Manifest) -> None:
        assert mounts(pod, container) == {
            "/var/lib/kubelet/plugins/dra.cpu": False,
            "/var/lib/kubelet/plugins_registry": False,
            "/var/lib/kubelet/pod-resources": True,
            "/sys/fs/cgroup": True,
            "/var/run/cdi": False,
            "/var/run/nri": True,
            "/var/lib/dracpu": False,
        }

    def test_does_not_create_paths_that_the_kubelet_creates(self, pod: Manifest) -> None:
        kinds = host_paths(pod)
        assert kinds["/var/lib/kubelet/plugins_registry"] == "Directory"
        assert kinds["/var/lib/kubelet/pod-resources"] == "Directory"

    def test_mounts_no_file_that_the_kubelet_replaces(self, pod: Manifest) -> None:
        """The mount of a file keeps showing the file that was there when the container started."""
        assert "File" not in host_paths(pod).values()

    def test_runs_on_all_linux_nodes_and_is_not_preempted(self, pod: Manifest) -> None:
        assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert pod["tolerations"] == [{"operator": "Exists"}]
        assert pod["priorityClassName"] == "system-node-critical"

    def test_never_runs_twice_on_a_node(self, daemon_set: Manifest) -> None:
        assert daemon_set["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": "10%"}

    def test_has_a_memory_limit_and_no_cpu_limit(self, container: Manifest) -> None:
        assert container["resources"] == {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"memory": "128Mi"},
        }

    def test_has_no_probe_whose_failure_restarts_it(self, container: Manifest) -> None:
        """Other pods reach its port, so they could make such a probe fail."""
        assert {name for name in container if name.endswith("Probe")} == {"readinessProbe"}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}

    def test_passes_options_that_the_agent_accepts(self, pod: Manifest, container: Manifest) -> None:
        parsed = options.run_options(options.parser({}).parse_args(container["args"]))
        assert parsed.node_name == "$(NODE_NAME)"  # the kubelet replaces it by the variable's value
        assert container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
        mounted = mounts(pod, container)
        assert {str(parsed.cdi_dir), str(parsed.state_dir), str(parsed.nri_socket.parent)} <= mounted.keys()
        assert str(parsed.kubelet_root / "plugins" / names.DRIVER) in mounted
        assert str(parsed.cgroupfs_root) in {mount["mountPath"] for mount in container["volumeMounts"]}

    def test_has_the_runtimes_default_profiles_unless_the_values_name_others(self, container: Manifest) -> None:
        assert not {"appArmorProfile", "seLinuxOptions"} & container["securityContext"].keys()
        made = render(
            "agent.seLinuxOptions.type=spc_t",
            "agent.seLinuxOptions.level=s0",
            "agent.appArmorProfile.type=Localhost",
            "agent.appArmorProfile.localhostProfile=dracpu-agent",
        ).only("DaemonSet")
        assert container_of(made)["securityContext"] == {
            **container["securityContext"],
            "seLinuxOptions": {"type": "spc_t", "level": "s0"},
            "appArmorProfile": {"type": "Localhost", "localhostProfile": "dracpu-agent"},
        }

    def test_image_has_no_registry_by_default(self, container: Manifest) -> None:
        app_version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
        assert container["image"] == f"dracpu-agent:{app_version}"

    def test_is_selected_by_labels_that_upgrades_do_not_change(self, daemon_set: Manifest) -> None:
        labels = daemon_set["spec"]["template"]["metadata"]["labels"]
        assert daemon_set["spec"]["selector"]["matchLabels"] == labels
        assert not [value for value in labels.values() if "0.1" in value]

    def test_uses_the_values(self) -> None:
        made = render(
            "agent.image.repository=localhost/dracpu-agent",
            "agent.image.tag=lab",
            "agent.image.pullPolicy=Never",
            "agent.kubeletRoot=/data/kubelet",
            "agent.cgroupRoot=/a/b",
            "agent.nriSocket=/run/crio/nri.sock",
            "agent.httpPort=9090",
        ).only("DaemonSet")
        container = container_of(made)
        assert container["image"] == "localhost/dracpu-agent:lab"
        assert container["imagePullPolicy"] == "Never"
        assert {"/data/kubelet/plugins/dra.cpu", "/run/crio"} <= mounts(pod_of(made), container).keys()
        parsed = options.run_options(options.parser({}).parse_args(container["args"]))
        assert (str(parsed.kubelet_root), parsed.cgroup_root) == ("/data/kubelet", "/a/b")
        assert parsed.http_address == ":9090"
        assert container["ports"] == [{"name": "http", "containerPort": 9090}]


class TestAgentRights:
    def test_are_exactly_these(self, role: Manifest) -> None:
        assert rights_of(role) == {
            ("resource.k8s.io", "resourceclaims"): {"get"},
            ("resource.k8s.io", "resourceclaims/status"): {"patch"},
            ("resource.k8s.io", "resourceclaims/driver"): {"associated-node:patch"},
            ("resource.k8s.io", "resourceslices"): {"list", "watch", "create", "update", "delete"},
            ("", "nodes"): {"get"},
            ("dra.cpu", "cpunodes"): {"list", "watch"},
            ("dra.cpu", "cpunodes/status"): {"patch"},
        }

    def test_to_create_events_are_limited_to_the_namespace_of_cpu_node_events(self) -> None:
        role = render().named("Role", "dracpu-agent")
        assert role["metadata"]["namespace"] == "default"
        assert rights_of(role) == {("events.k8s.io", "events"): {"create"}}

    def test_to_write_claims_are_limited_to_its_own_driver(self, role: Manifest) -> None:
        (rule,) = (rule for rule in role["rules"] if rule["resources"] == ["resourceclaims/driver"])
        assert rule["resourceNames"] == [names.DRIVER]

    @pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
    def test_belong_to_the_service_account_of_the_pod(self, kind: str, pod: Manifest) -> None:
        binding = render().named(f"{kind}Binding", "dracpu-agent")
        account = {"kind": "ServiceAccount", "name": pod["serviceAccountName"], "namespace": NAMESPACE}
        assert binding["subjects"] == [account]
        assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "dracpu-agent"}

    def test_token_is_mounted_only_by_the_pods_that_request_it(self, pod: Manifest) -> None:
        account = render().named("ServiceAccount", pod["serviceAccountName"])
        assert account["automountServiceAccountToken"] is False
        assert pod["automountServiceAccountToken"] is True


class TestAdmissionPolicies:
    @pytest.mark.parametrize("name", ["dracpu-agent-own-slices", "dracpu-agent-own-claims", "dracpu-agent-own-cpunode"])
    def test_deny_and_fail_closed(self, name: str) -> None:
        policy = render().named("ValidatingAdmissionPolicy", name)
        (binding,) = (
            binding
            for binding in render().of_kind("ValidatingAdmissionPolicyBinding")
            if binding["spec"]["policyName"] == name
        )
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert binding["spec"]["validationActions"] == ["Deny"]

    def test_apply_only_to_the_agents_account(self, pod: Manifest) -> None:
        account = f"system:serviceaccount:{NAMESPACE}:{pod['serviceAccountName']}"
        for policy in render().of_kind("ValidatingAdmissionPolicy"):
            (condition,) = policy["spec"]["matchConditions"]
            assert condition["expression"] == f"request.userInfo.username == '{account}'"

    def test_cover_every_write_of_slices_and_cpu_nodes_and_of_the_status_of_claims(self) -> None:
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
            ("resource.k8s.io", "resourceclaims/status"): {"UPDATE"},  # a status is neither created nor deleted
            ("dra.cpu", "cpunodes"): every_way,
            ("dra.cpu", "cpunodes/status"): every_way,
        }

    @pytest.mark.parametrize(
        ("values", "drivers"),
        [((), [names.DRIVER]), (("agent.memory.enabled=true",), [names.DRIVER, names.DRIVER_MEMORY])],
        ids=["CPUs", "CPUs and memory"],
    )
    def test_allow_the_drivers_that_the_role_allows(self, values: tuple[str, ...], drivers: list[str]) -> None:
        made = render(*values)
        rules = made.named("ClusterRole", "dracpu-agent")["rules"]
        assert [rule["resourceNames"] for rule in rules if "resourceNames" in rule] == [drivers]
        expressions = [
            part["expression"]
            for policy in made.of_kind("ValidatingAdmissionPolicy")
            for part in [*policy["spec"]["validations"], *policy["spec"]["variables"]]
        ]
        named = [text for text in expressions if "'dra." in text]
        assert len(named) == 2  # of slices and of claims
        assert all(str(drivers) in text for text in named)

    def test_can_be_disabled(self) -> None:
        assert not render("admissionPolicy.create=false").of_kind("ValidatingAdmissionPolicy")
