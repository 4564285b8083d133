"""The chart installs the operator, without access to its node, and with only the rights that it uses."""

import pytest
import yaml
from helm_chart import CHART, NAMESPACE, Manifest, Rendered, container_of, pod_of, render, rights_of

from dracpu_operator import options
from dracpu_operator.api import lease
from dracpu_operator.known.read_agents import AGENT_LABELS

# all objects with pods of the operator's image
WORKLOADS = [
    ("Deployment", "dracpu-operator"),
    ("Job", "dracpu-default-config"),
    ("Job", "dracpu-uninstall-check"),
]


@pytest.fixture(params=WORKLOADS, ids=[name for _, name in WORKLOADS])
def workload(request: pytest.FixtureRequest) -> Manifest:
    kind, name = request.param
    return render().named(kind, name)


@pytest.fixture
def deployment() -> Manifest:
    return render().named("Deployment", "dracpu-operator")


class TestEveryPodWithTheOperatorsImage:
    def test_does_not_run_as_root_and_has_no_capabilities(self, workload: Manifest) -> None:
        assert pod_of(workload)["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert container_of(workload)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
        }

    def test_uses_no_namespace_and_no_path_of_the_host(self, workload: Manifest) -> None:
        pod = pod_of(workload)
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert not [volume for volume in pod.get("volumes", []) if "hostPath" in volume]

    def test_uses_an_image_without_a_registry_by_default(self, workload: Manifest) -> None:
        app_version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
        assert container_of(workload)["image"] == f"dracpu-operator:{app_version}"

    def test_has_a_memory_limit_and_no_cpu_limit(self, workload: Manifest) -> None:
        assert container_of(workload)["resources"] == {
            "requests": {"cpu": "50m", "memory": "128Mi"},
            "limits": {"memory": "512Mi"},
        }

    def test_requests_its_token(self, workload: Manifest) -> None:
        pod = pod_of(workload)
        account = render().named("ServiceAccount", pod["serviceAccountName"])
        assert account["automountServiceAccountToken"] is False
        assert pod["automountServiceAccountToken"] is True

    def test_has_arguments_that_the_command_accepts(self, workload: Manifest) -> None:
        assert options.parse(container_of(workload)["args"], {}).command in {
            "run",
            "default-config",
            "uninstall-check",
        }

    @pytest.mark.parametrize(("kind", "name"), WORKLOADS)
    def test_runs_as_and_where_the_values_say(self, kind: str, name: str) -> None:
        made = render(
            "operator.image.repository=localhost/dracpu-operator",
            "operator.image.tag=lab",
            "operator.image.pullPolicy=Never",
            "operator.nodeSelector.pool=system",
            "operator.tolerations[0].operator=Exists",
            "operator.affinity.podAffinity.a=b",
            "operator.priorityClassName=mine",
            "operator.env[0].name=HTTPS_PROXY",
            "operator.env[0].value=http://proxy:3128",
            "imagePullSecrets[0].name=registry",
        ).named(kind, name)
        pod, container = pod_of(made), container_of(made)
        assert (container["image"], container["imagePullPolicy"]) == ("localhost/dracpu-operator:lab", "Never")
        assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "system"}
        assert pod["tolerations"] == [{"operator": "Exists"}]
        assert pod["affinity"] == {"podAffinity": {"a": "b"}}
        assert pod["priorityClassName"] == "mine"
        assert {"name": "HTTPS_PROXY", "value": "http://proxy:3128"} in container["env"]
        assert pod["imagePullSecrets"] == [{"name": "registry"}]


class TestOperator:
    def test_runs_once_by_default_and_never_beside_a_former_version(self, deployment: Manifest) -> None:
        assert deployment["spec"]["replicas"] == 1
        assert deployment["spec"]["strategy"] == {"type": "Recreate"}
        assert "topologySpreadConstraints" not in pod_of(deployment)
        assert render().of_kind("PodDisruptionBudget") == []

    def test_is_not_preempted_by_ordinary_pods(self, deployment: Manifest) -> None:
        assert pod_of(deployment)["priorityClassName"] == "system-cluster-critical"

    def test_has_no_probe_whose_failure_restarts_it(self, deployment: Manifest) -> None:
        """Other pods reach its port, so they could make such a probe fail."""
        container = container_of(deployment)
        assert {name for name in container if name.endswith("Probe")} == {"readinessProbe"}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}

    def test_gets_options_that_it_accepts(self) -> None:
        made = render("operator.httpPort=9090", "operator.logLevel=debug", "operator.logFormat=text")
        container = container_of(made.only("Deployment"))
        parsed = options.run_options(options.parse(container["args"], {}))
        assert (parsed.http_address, parsed.log_level, parsed.log_format) == (":9090", "debug", "text")
        assert container["ports"] == [{"name": "http", "containerPort": 9090}]

    def test_gets_the_name_of_its_pod_and_the_namespace_of_the_agents_and_of_the_lease(
        self, deployment: Manifest
    ) -> None:
        variables = {found["name"]: found["valueFrom"] for found in container_of(deployment)["env"]}
        assert variables["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
        assert variables["POD_NAMESPACE"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}

    def test_selects_the_pods_and_the_daemon_set_of_the_chart(self) -> None:
        daemon_set = render().only("DaemonSet")
        labels = dict(label.split("=") for label in AGENT_LABELS.split(","))
        assert labels.items() <= daemon_set["metadata"]["labels"].items()
        assert labels.items() <= daemon_set["spec"]["template"]["metadata"]["labels"].items()

    def test_takes_part_in_the_election(self, deployment: Manifest) -> None:
        assert options.run_options(options.parse(container_of(deployment)["args"], {})).leader_elect

    def test_is_selected_by_labels_that_upgrades_do_not_change(self, deployment: Manifest) -> None:
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"] == labels
        assert not [value for value in labels.values() if "0.1" in value]

    def test_does_not_select_other_pods_of_the_chart(self, deployment: Manifest) -> None:
        wanted = deployment["spec"]["selector"]["matchLabels"].items()
        others = [*render().of_kind("Job"), *render().of_kind("DaemonSet")]
        assert others
        assert not [pod for pod in others if wanted <= pod["spec"]["template"]["metadata"]["labels"].items()]


class TestTwoReplicas:
    @pytest.fixture
    def made(self) -> Rendered:
        return render("operator.replicas=2")

    def test_are_replaced_one_after_the_other(self, made: Rendered) -> None:
        spec = made.only("Deployment")["spec"]
        assert spec["replicas"] == 2
        rolling = {"maxSurge": 1, "maxUnavailable": 0}
        assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}

    def test_are_not_evicted_at_the_same_time(self, made: Rendered) -> None:
        budget = made.only("PodDisruptionBudget")
        assert budget["metadata"]["namespace"] == NAMESPACE
        assert budget["spec"] == {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": made.only("Deployment")["spec"]["selector"],
        }

    def test_are_spread_over_nodes_and_zones_if_possible(self, made: Rendered) -> None:
        deployment = made.only("Deployment")
        constraints = pod_of(deployment)["topologySpreadConstraints"]
        assert [constraint["topologyKey"] for constraint in constraints] == [
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
        ]
        for constraint in constraints:
            assert constraint["whenUnsatisfiable"] == "ScheduleAnyway"
            assert constraint["labelSelector"] == deployment["spec"]["selector"]

    def test_are_spread_as_the_values_say(self) -> None:
        prefix = "operator.topologySpreadConstraints[0]"
        made = render("operator.replicas=2", f"{prefix}.topologyKey=rack", f"{prefix}.maxSkew=2")
        (constraint,) = pod_of(made.only("Deployment"))["topologySpreadConstraints"]
        assert constraint == {"topologyKey": "rack", "maxSkew": 2}


class TestOperatorRights:
    def test_are_exactly_these(self) -> None:
        assert rights_of(render().named("ClusterRole", "dracpu-operator")) == {
            ("", "nodes"): {"list", "watch"},
            ("dra.cpu", "cpudriverconfigs"): {"list", "watch"},
            ("dra.cpu", "cpudriverconfigs/status"): {"patch"},
            ("dra.cpu", "cpunodes"): {"get", "list", "watch", "create", "patch", "delete"},
            ("dra.cpu", "cpunodes/status"): {"patch"},
            ("resource.k8s.io", "resourceclaims"): {"list", "watch"},
        }

    def test_to_create_events_are_limited_to_the_namespace_of_config_events(self) -> None:
        role = render().named("Role", "dracpu-operator")
        assert role["metadata"]["namespace"] == "default"
        assert rights_of(role) == {("events.k8s.io", "events"): {"create"}}

    def test_to_follow_the_agents_are_limited_to_their_namespace(self) -> None:
        role = render().named("Role", "dracpu-operator-agents")
        assert role["metadata"]["namespace"] == NAMESPACE
        assert rights_of(role) == {("", "pods"): {"list", "watch"}, ("apps", "daemonsets"): {"list", "watch"}}

    def test_to_the_lease_are_limited_to_the_one_of_the_election(self) -> None:
        role = render().named("Role", "dracpu-operator-election")
        assert role["metadata"]["namespace"] == NAMESPACE
        create, others = role["rules"]
        assert create == {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}
        assert others == {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [lease.NAME],
            "verbs": ["get", "update"],
        }

    @pytest.mark.parametrize(
        ("kind", "role"),
        [
            ("ClusterRole", "dracpu-operator"),
            ("Role", "dracpu-operator"),
            ("Role", "dracpu-operator-agents"),
            ("Role", "dracpu-operator-election"),
        ],
    )
    def test_belong_to_the_service_account_of_the_pod(self, kind: str, role: str, deployment: Manifest) -> None:
        binding = render().named(f"{kind}Binding", role)
        name = pod_of(deployment)["serviceAccountName"]
        assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}]


class TestNoAccountOfTheChart:
    def roles(self) -> list[Manifest]:
        return [*render().of_kind("ClusterRole"), *render().of_kind("Role")]

    def test_has_a_right_with_a_wildcard(self) -> None:
        assert len(self.roles()) == 7
        for role in self.roles():
            for rule in role["rules"]:
                assert not [word for words in rule.values() for word in words if "*" in word]

    def test_has_rights_that_allow_it_to_gain_others(self) -> None:
        resources = {resource for role in self.roles() for _, resource in rights_of(role)}
        assert not resources & {"secrets", "pods/exec", "serviceaccounts/token", "configmaps"}
        groups = {group for role in self.roles() for group, _ in rights_of(role)}
        assert groups == {"", "apps", "coordination.k8s.io", "dra.cpu", "events.k8s.io", "resource.k8s.io"}

    def test_may_write_nodes_pods_or_claims(self) -> None:
        for role in self.roles():
            for (_, resource), verbs in rights_of(role).items():
                if resource in {"daemonsets", "nodes", "pods", "resourceclaims"}:
                    assert verbs <= {"get", "list", "watch"}

    def test_is_bound_to_a_role_that_does_not_exist(self) -> None:
        made = render()
        for binding in [*made.of_kind("ClusterRoleBinding"), *made.of_kind("RoleBinding")]:
            assert made.named(binding["roleRef"]["kind"], binding["roleRef"]["name"])
            for subject in binding["subjects"]:
                assert made.named("ServiceAccount", subject["name"])["metadata"]["namespace"] == subject["namespace"]
