"""With `agent.memory.enabled` the agents serve memory and hugepages, too; without it nothing of that is installed."""

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_chart import CHART, Manifest, RefusedError, Rendered, container_of, pod_of, render

from dracpu_agent.cli import options
from dracpu_api import names

ON = "agent.memory.enabled=true"
PROVISION = "agent.memory.provision=true"
VARIABLE = f"{options.PREFIX}MEMORY_CGROUPS"
EVENTS = "dracpu-agent-own-events"  # the policy and its binding
NODES_VARIABLE = f"{options.PREFIX}MEMORY_NODES"
NODES = "/sys/devices/system/node"
CLASSES = {"dra.memory", "dra.hugepages-2m", "dra.hugepages-1g"}


@pytest.fixture
def made() -> Rendered:
    return render(ON)


def mount_of(workload: Manifest, path: str) -> Manifest:
    """Returns the only mount of a path of the node."""
    (volume,) = (volume for volume in pod_of(workload)["volumes"] if volume["hostPath"]["path"] == path)
    (mount,) = (mount for mount in container_of(workload)["volumeMounts"] if mount["name"] == volume["name"])
    found: Manifest = mount
    return found


def without_memory(manifest: Manifest) -> Manifest:
    """Returns the manifest without all that memory may add to it."""
    drivers, cpus_alone = [names.DRIVER, names.DRIVER_MEMORY], [names.DRIVER]
    rest = copy.deepcopy(manifest)
    match manifest["kind"]:
        case "DaemonSet":
            pod, container = pod_of(rest), container_of(rest)
            container["env"] = [variable for variable in container["env"] if variable["name"] != VARIABLE]
            for holder, field in ((pod, "volumes"), (container, "volumeMounts")):
                holder[field] = [item for item in holder[field] if item["name"] != "plugin-memory"]
            mount_of(rest, "/sys/fs/cgroup")["readOnly"] = True
        case "ClusterRole":
            for rule in rest["rules"]:
                if rule.get("resourceNames") == drivers:
                    rule["resourceNames"] = cpus_alone
            rest["rules"] = [rule for rule in rest["rules"] if rule["resources"] != ["events"]]
        case "ValidatingAdmissionPolicy":
            for part in [*rest["spec"]["validations"], *rest["spec"]["variables"]]:
                part["expression"] = part["expression"].replace(str(drivers), str(cpus_alone))
    return rest


class TestWithoutMemory:
    def test_is_the_default(self) -> None:
        assert render("agent.memory.enabled=false") == render()

    def test_no_object_mentions_it(self) -> None:
        """The CRDs are the same in both cases: they have the settings of memory."""
        manifests = [one for one in render().manifests if one["kind"] != "CustomResourceDefinition"]
        text = yaml.safe_dump_all(manifests).lower()
        assert not [word for word in (names.DRIVER_MEMORY, "hugepages", VARIABLE.lower()) if word in text]

    def test_the_agent_cannot_write_the_cgroup_tree(self) -> None:
        assert mount_of(render().only("DaemonSet"), "/sys/fs/cgroup")["readOnly"] is True

    def test_a_first_config_that_enables_it_is_refused(self) -> None:
        with pytest.raises(RefusedError, match=r"also set agent\.memory\.enabled to true"):
            render("defaultConfig.spec.memory.enabled=true")

    def test_the_spec_of_a_first_config_that_is_not_created_does_not_matter(self) -> None:
        values = ("defaultConfig.create=false", "defaultConfig.spec.memory.enabled=true")
        assert render(*values) == render("defaultConfig.create=false")

    def test_the_variable_that_would_enable_it_without_mounts_is_refused(self) -> None:
        with pytest.raises(RefusedError, match=rf"remove the variable {VARIABLE}: .* agent\.memory\.enabled"):
            render(f"agent.env[0].name={VARIABLE}", "agent.env[0].value=/sys/fs/cgroup")


class TestWithMemory:
    def test_a_first_config_may_enable_it(self) -> None:
        made = render(ON, "defaultConfig.spec.memory.enabled=true")
        (config,) = made.of_kind("ConfigMap")
        assert yaml.safe_load(config["data"]["default.yaml"])["spec"] == {"memory": {"enabled": True}}

    def test_agents_may_create_events_about_pods(self, made: Rendered) -> None:
        rules = [rule for rule in made.named("ClusterRole", "dracpu-agent")["rules"] if "events" in rule["resources"]]
        assert rules == [{"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]}]
        bindings = made.of_kind("ValidatingAdmissionPolicyBinding")
        (binding,) = (one for one in bindings if one["metadata"]["name"] == EVENTS)
        assert binding["spec"] == {"policyName": EVENTS, "validationActions": ["Deny"]}
        policy = made.named("ValidatingAdmissionPolicy", EVENTS)["spec"]
        assert policy["failurePolicy"] == "Fail"
        assert policy["matchConstraints"]["resourceRules"] == [
            {"apiGroups": ["events.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["events"]}
        ]

    def test_nothing_else_changes(self, made: Rendered) -> None:
        added = {*CLASSES, EVENTS}
        kept = [manifest for manifest in made.manifests if manifest["metadata"]["name"] not in added]
        assert [without_memory(manifest) for manifest in kept] == list(render().manifests)
        assert len(made.manifests) == len(kept) + len(CLASSES) + 2  # the policy of Events, and its binding

    def test_the_agent_writes_the_nodes_cgroup_tree_by_a_mount_outside_of_sys(self, made: Rendered) -> None:
        """AppArmor's default profile of runtimes refuses writes below /sys."""
        daemon_set = made.only("DaemonSet")
        mount = mount_of(daemon_set, "/sys/fs/cgroup")
        assert mount["readOnly"] is False
        assert not mount["mountPath"].startswith("/sys/")
        variables = {variable["name"]: variable.get("value") for variable in container_of(daemon_set)["env"]}
        assert variables[VARIABLE] == mount["mountPath"]

    def test_the_agent_has_the_directory_of_the_drivers_socket(self) -> None:
        daemon_set = render(ON, "agent.kubeletRoot=/data/kubelet").only("DaemonSet")
        path = f"/data/kubelet/plugins/{names.DRIVER_MEMORY}"
        assert mount_of(daemon_set, path) == {"name": "plugin-memory", "mountPath": path}

    @pytest.mark.parametrize("value", ["", "null", "mine", "system-cluster-critical"])
    def test_another_priority_class_than_that_of_node_agents_is_refused(self, value: str) -> None:
        """The kubelet gives a low oom_score_adj to the pods of this class alone, whatever another's priority is."""
        with pytest.raises(RefusedError, match="set it to system-node-critical.* must not find the agent first"):
            render(ON, f"agent.priorityClassName={value}")

    @pytest.mark.parametrize("value", ["", "mine"])
    def test_the_priority_class_can_be_chosen_without_memory(self, value: str) -> None:
        pod = pod_of(render(f"agent.priorityClassName={value}").only("DaemonSet"))
        assert pod.get("priorityClassName", "") == value


class TestWithProvision:
    def test_it_is_off_by_default(self, made: Rendered) -> None:
        assert render(ON, "agent.memory.provision=false") == made
        text = yaml.safe_dump_all([one for one in made.manifests if one["kind"] != "CustomResourceDefinition"])
        assert not [word for word in (NODES_VARIABLE, NODES) if word in text]

    def test_the_agent_writes_the_files_of_numa_nodes_by_a_mount_outside_of_sys(self) -> None:
        daemon_set = render(ON, PROVISION).only("DaemonSet")
        mount = mount_of(daemon_set, NODES)
        assert not mount.get("readOnly")
        assert not mount["mountPath"].startswith("/sys/")
        variables = {variable["name"]: variable.get("value") for variable in container_of(daemon_set)["env"]}
        assert variables[NODES_VARIABLE] == mount["mountPath"]

    def test_nothing_else_changes(self, made: Rendered) -> None:
        with_it = copy.deepcopy(render(ON, PROVISION).manifests)
        (daemon_set,) = (one for one in with_it if one["kind"] == "DaemonSet")
        pod, container = pod_of(daemon_set), container_of(daemon_set)
        container["env"] = [variable for variable in container["env"] if variable["name"] != NODES_VARIABLE]
        for holder, field in ((pod, "volumes"), (container, "volumeMounts")):
            holder[field] = [item for item in holder[field] if item["name"] != "numa-nodes"]
        assert list(with_it) == list(made.manifests)

    def test_it_needs_memory(self) -> None:
        with pytest.raises(RefusedError, match=r"also set agent\.memory\.enabled to true"):
            render(PROVISION)

    def test_values_of_an_older_chart_do_not_have_it(self, made: Rendered) -> None:
        """`helm upgrade --reuse-values` keeps them."""
        assert render(ON, "agent.memory.provision=null") == made

    def test_a_first_config_that_names_pages_is_refused_without_it(self) -> None:
        pages = ("defaultConfig.spec.memory.enabled=true", "defaultConfig.spec.memory.provision[0].pages=1")
        with pytest.raises(RefusedError, match=r"also set agent\.memory\.provision to true"):
            render(ON, *pages)
        assert render(ON, PROVISION, *pages)

    def test_the_variable_that_would_enable_it_without_a_mount_is_refused(self) -> None:
        with pytest.raises(RefusedError, match=rf"remove the variable {NODES_VARIABLE}: .* agent\.memory\.provision"):
            render(ON, f"agent.env[0].name={NODES_VARIABLE}", f"agent.env[0].value={NODES}")


class TestNotes:
    def text(self, folder: Path, *values: str) -> str:
        """Helm shows the notes only when it installs the chart, so a template of a copy of the chart has their text."""
        chart = folder / CHART.name
        shutil.copytree(CHART, chart)
        notes = chart / "templates" / "NOTES.txt"
        helper = f'{{{{- define "notes" }}}}{notes.read_text()}{{{{- end }}}}'
        (chart / "templates" / "_notes.tpl").write_text(helper)
        shown = 'kind: Notes\nmetadata: {name: notes}\ntext: {{ include "notes" . | quote }}\n'
        (chart / "templates" / "notes.yaml").write_text(shown)
        found: Any = render(*values, chart=chart).only("Notes")["text"]
        return str(found)

    def test_name_the_classes_of_memory_when_the_agents_serve_it(self, tmp_path: Path) -> None:
        text = self.text(tmp_path, ON)
        assert [name for name in CLASSES if name not in text] == []
        assert "spec.memory.enabled" in text

    def test_do_not_mention_memory_otherwise(self, tmp_path: Path) -> None:
        text = self.text(tmp_path)
        assert "kubectl get resourceslices" in text
        assert "memory" not in text
