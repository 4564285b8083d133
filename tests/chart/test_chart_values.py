"""The chart's values: each has an effect, and wrong ones are refused. The DeviceClass and the CRDs."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_chart
import pytest
import yaml
from helm_chart import CHART, Manifest, RefusedError, package, render

from dracpu_api import names
from dracpu_api.objects import definitions
from dracpu_operator.known.read_agents import AGENT_LABELS

# value -> its setting for --set; a path with a dictionary stands for all values below it
EXAMPLES = {
    "crds.install": "false",
    "deviceClass.create": "false",
    "deviceClass.extendedResourceName": "example.com/cpu",
    "admissionPolicy.create": "false",
    "networkPolicy.create": "true",
    "networkPolicy.metricsFrom": {"[0].podSelector.matchLabels.app": "prometheus"},
    "networkPolicy.egress": {"[0].ports[0].port": "6443"},
    "defaultConfig.create": "false",
    "defaultConfig.spec": {".groupBy": "socket"},
    "uninstall.force": "true",
    "imagePullSecrets": {"[0].name": "registry"},
} | {
    f"{component}.{value}": example
    for component in ("agent", "operator")
    for value, example in {
        "image.repository": "localhost/image",
        "image.tag": "lab",
        "image.pullPolicy": "Never",
        "httpPort": "9090",
        "logLevel": "debug",
        "logFormat": "text",
        "env": {"[0].name": "A", "[0].value": "b"},
        "priorityClassName": "mine",
        "nodeSelector": {".pool": "a"},
        "affinity": {".nodeAffinity.a": "b"},
        "tolerations": {"[0].key": "a"},
        "podAnnotations": {".a": "b"},
        "podLabels": {".a": "b"},
        "resources": {".limits.memory": "1Gi"},
        "serviceAccount.annotations": {".a": "b"},
    }.items()
}
EXAMPLES |= {
    "agent.kubeletRoot": "/data/kubelet",
    "agent.cgroupRoot": "/a/b",
    "agent.cdiDir": "/etc/cdi",
    "agent.nriSocket": "/run/nri.sock",
    "agent.stateDir": "/data/dracpu",
    "agent.memory.enabled": "true",
    "agent.memory.provision": "true",
    "agent.seLinuxOptions": {".type": "spc_t"},
    "agent.appArmorProfile": {".type": "Unconfined"},
    "agent.maxUnavailable": "1",
    "operator.replicas": "2",
    "operator.topologySpreadConstraints": {"[0].topologyKey": "rack"},
}

# value -> what has to be set, too, so that it has an effect
ENABLED_BY = {
    "agent.memory.provision": ("agent.memory.enabled=true",),
    "networkPolicy.metricsFrom": ("networkPolicy.create=true",),
    "networkPolicy.egress": ("networkPolicy.create=true",),
    "operator.topologySpreadConstraints": ("operator.replicas=2",),
}


def leaves(values: Any, above: str = "") -> Iterator[str]:
    """Returns the paths of all values that can be set."""
    for name, value in values.items():
        path = f"{above}{name}"
        if path not in EXAMPLES and isinstance(value, dict):
            yield from leaves(value, f"{path}.")
        else:
            yield path


def described(schema: Any, path: str) -> Any:
    """Returns the schema of a value; follows references."""
    found = schema
    for name in path.split("."):
        found = found["properties"][name]
        if "$ref" in found:
            found = schema["definitions"][found["$ref"].removeprefix("#/definitions/")]
    return found


def load_schema() -> Any:
    return json.loads((CHART / "values.schema.json").read_text())


def test_every_value_has_an_example() -> None:
    assert set(leaves(yaml.safe_load((CHART / "values.yaml").read_text()))) == EXAMPLES.keys()


@pytest.mark.parametrize("path", EXAMPLES)
def test_a_value_has_a_type_and_an_effect(path: str) -> None:
    """Setting a value that no template reads would do nothing."""
    assert described(load_schema(), path).keys() & {"type", "enum", "oneOf"}
    example = EXAMPLES[path]
    parts = example if isinstance(example, dict) else {"": example}
    before = ENABLED_BY.get(path, ())
    assert render(*before, *(f"{path}{below}={value}" for below, value in parts.items())) != render(*before)


def test_the_schema_has_no_value_that_is_not_in_the_chart() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = load_schema()
    assert schema["properties"].keys() - {"global"} == values.keys()
    for name in values.keys() - {"imagePullSecrets"}:
        assert schema["properties"][name]["properties"].keys() == values[name].keys()


def test_the_pages_name_values_that_exist() -> None:
    texts = [file.read_text() for file in sorted((helm_chart.ROOT / "docs" / "user").glob("*.md"))]
    tops = "|".join(load_schema()["properties"])
    named = {found for text in texts for found in re.findall(rf"`((?:{tops})\.[A-Za-z.]+)[`=]", text)}
    assert "agent.kubeletRoot" in named
    for path in named:
        assert described(load_schema(), path)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("agents.logLevel=debug", "agents"),
        ("agent.loglevel=debug", "loglevel"),
        ("agent.logLevel=verbose", "logLevel"),
        ("agent.image.pullPolicy=Sometimes", "pullPolicy"),
        ("agent.image.registry=example.com", "registry"),
        ("agent.kubeletRoot=var/lib/kubelet", "kubeletRoot"),
        ("agent.kubeletRoot=/var/lib/kubelet/", "kubeletRoot"),
        ("agent.cgroupRoot=a/b", "cgroupRoot"),
        ("agent.httpPort=0", "httpPort"),
        ("agent.httpPort=http", "httpPort"),
        ("agent.maxUnavailable=0", "maxUnavailable"),
        ("agent.maxUnavailable=150%", "maxUnavailable"),
        ("agent.resources.limit.memory=1Gi", "limit"),
        ("agent.memory.enabled=yes", "enabled"),
        ("agent.memory.provision=yes", "provision"),
        ("agent.memory.enable=true", "enable"),
        ("agent.seLinuxOptions.types=spc_t", "types"),
        ("agent.seLinuxOptions.type=", "type"),
        ("agent.appArmorProfile.type=unconfined", "type"),
        ("agent.appArmorProfile.type=Localhost", "localhostProfile is required"),
        ("agent.appArmorProfile.localhostProfile=mine", "appArmorProfile.localhostProfile: remove it"),
        ("operator.replicas=0", "replicas"),
        ("operator.replicas=two", "replicas"),
        ("operator.topologySpreadConstraints.maxSkew=1", "topologySpreadConstraints"),
        ("operator.loglevel=debug", "loglevel"),
        ("operator.logFormat=yaml", "logFormat"),
        ("operator.image.name=dracpu-operator", "name"),
        ("operator.httpPort=70000", "httpPort"),
        ("operator.serviceAccount.name=mine", "name"),
        ("networkPolicy.enabled=true", "enabled"),
        ("networkPolicy.metricsFrom[0].pods.app=prometheus", "pods"),
        ("networkPolicy.egress[0].from[0].podSelector.a=b", "from"),
        ("defaultConfig.mode=individual", "mode"),
        ("defaultConfig.spec=individual", "spec"),
        ("defaultConfig.spec.reservedCPUs=3", "reservedCPUs"),
        ("uninstall.forced=true", "forced"),
        ("uninstall.force=yes", "force"),
        ("deviceClass.extendedResourceName=cpu", "extendedResourceName"),
        ("crds.install=1", "install"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name(value: str, named: str) -> None:
    with pytest.raises(RefusedError, match=named):
        render(value)


@pytest.mark.parametrize("component", ["agent", "operator"])
@pytest.mark.parametrize(
    "label", ["app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"]
)
def test_a_pod_label_that_the_chart_sets_is_refused_with_its_name(component: str, label: str) -> None:
    escaped = label.replace(".", r"\.")
    with pytest.raises(RefusedError, match=rf"{component}\.podLabels: remove the label {label}"):
        render(f"{component}.podLabels.{escaped}=mine")


@pytest.mark.parametrize(("component", "kind"), [("agent", "DaemonSet"), ("operator", "Deployment")])
def test_a_variable_that_the_chart_sets_is_refused_with_its_name(component: str, kind: str) -> None:
    own = [variable["name"] for variable in helm_chart.container_of(render().only(kind))["env"]]
    assert own
    for name in own:
        with pytest.raises(RefusedError, match=rf"{component}\.env: remove the variable {name}"):
            render(f"{component}.env[0].name={name}", f"{component}.env[0].value=mine")


@pytest.mark.parametrize(("component", "kind"), [("agent", "DaemonSet"), ("operator", "Deployment")])
def test_pod_labels_and_annotations_are_added_to_those_of_the_chart(component: str, kind: str) -> None:
    before = render().only(kind)["spec"]["template"]["metadata"]
    added = render(f"{component}.podLabels.team=a", f"{component}.podAnnotations.note=b").only(kind)
    after = added["spec"]["template"]["metadata"]
    assert after["labels"] == {**before["labels"], "team": "a"}
    assert after["annotations"] == {**before.get("annotations", {}), "note": "b"}


def test_an_annotation_of_the_agents_pods_can_be_replaced() -> None:
    made = render(r"agent.podAnnotations.kubectl\.kubernetes\.io/default-container=sidecar").only("DaemonSet")
    annotations = made["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"kubectl.kubernetes.io/default-container": "sidecar"}


def test_a_release_whose_values_are_older_than_the_chart_can_be_upgraded_with_them() -> None:
    """`helm upgrade --reuse-values` replaces all defaults of the chart by those of the release's former chart."""
    newer = (
        "operator.replicas",
        "operator.topologySpreadConstraints",
        "networkPolicy.egress",
        "agent.memory",
        "agent.seLinuxOptions",
        "agent.appArmorProfile",
    )
    assert render(*(f"{value}=null" for value in newer)).manifests == render().manifests


def test_a_namespace_of_digits_is_a_text() -> None:
    for manifest in render(namespace="123").manifests:
        assert isinstance(manifest["metadata"].get("namespace", ""), str)
        assert all(subject["namespace"] == "123" for subject in manifest.get("subjects", ()))


def test_as_a_subchart_with_an_alias_the_chart_keeps_the_labels_by_which_the_operator_finds_agents(
    tmp_path: Path,
) -> None:
    name = "dra-cpu-operator"
    shutil.copytree(CHART, tmp_path / "charts" / name)
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    parent = {
        "apiVersion": "v2",
        "name": "parent",
        "version": "1.0.0",
        "dependencies": [{"name": name, "version": version, "alias": "cpu"}],
    }
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(parent))
    labels = render(chart=tmp_path).only("DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert dict(item.split("=") for item in AGENT_LABELS.split(",")).items() <= labels.items()


def test_a_cluster_without_the_api_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"requires kubeVersion: >=1\.34"):
        render(kubernetes="1.33.9")


@pytest.mark.parametrize("kubernetes", ["1.34.0", "1.34.1-gke.100", "1.36.3", "1.37.0-rc.1"])
def test_a_cluster_with_the_api_is_accepted(kubernetes: str) -> None:
    assert render(kubernetes=kubernetes).manifests


class TestDeviceClass:
    def test_selects_the_driver(self) -> None:
        device_class = render().only("DeviceClass")
        assert device_class["metadata"]["name"] == names.DRIVER
        assert device_class["spec"] == {"selectors": [{"cel": {"expression": f'device.driver == "{names.DRIVER}"'}}]}

    def test_can_have_an_extended_resource(self) -> None:
        spec = render("deviceClass.extendedResourceName=example.com/cpu").only("DeviceClass")["spec"]
        assert spec["extendedResourceName"] == "example.com/cpu"

    def test_can_be_disabled(self) -> None:
        assert not render("deviceClass.create=false").of_kind("DeviceClass")


class TestNetworkPolicy:
    def test_is_off_by_default(self) -> None:
        assert not render().of_kind("NetworkPolicy")

    def test_lets_nobody_connect_to_the_pods_of_the_chart(self) -> None:
        made = render("networkPolicy.create=true")
        policy = made.only("NetworkPolicy")
        assert policy["metadata"]["namespace"] == helm_chart.NAMESPACE
        assert policy["spec"].keys() == {"podSelector", "policyTypes"}
        assert policy["spec"]["policyTypes"] == ["Ingress"]
        selected = policy["spec"]["podSelector"]["matchLabels"].items()
        for kind in ("DaemonSet", "Deployment"):
            assert selected <= made.only(kind)["spec"]["template"]["metadata"]["labels"].items()

    def test_restricts_connections_of_the_pods_only_to_named_peers(self) -> None:
        made = render(
            "networkPolicy.create=true",
            "networkPolicy.egress[0].to[0].ipBlock.cidr=192.0.2.10/32",
            "networkPolicy.egress[0].ports[0].port=6443",
        )
        spec = made.only("NetworkPolicy")["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert spec["egress"] == [{"to": [{"ipBlock": {"cidr": "192.0.2.10/32"}}], "ports": [{"port": 6443}]}]
        assert "ingress" not in spec

    def test_lets_named_peers_read_metrics(self) -> None:
        peer = {"podSelector": {"matchLabels": {"app": "prometheus"}}}
        made = render(
            "networkPolicy.create=true", "networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus"
        )
        assert made.only("NetworkPolicy")["spec"]["ingress"] == [{"from": [peer], "ports": [{"port": "http"}]}]
        for kind in ("DaemonSet", "Deployment"):
            (port,) = helm_chart.container_of(made.only(kind))["ports"]
            assert port["name"] == "http"


class TestCrds:
    def crds(self) -> list[Manifest]:
        return render().of_kind("CustomResourceDefinition")

    def test_are_generated_and_stay_when_the_chart_is_uninstalled(self) -> None:
        written = [yaml.safe_load(text) for text in definitions.crds().values()]
        assert sorted(self.crds(), key=str) == sorted(written, key=str)
        for definition in self.crds():
            assert definition["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}

    def test_are_upgraded_with_the_chart(self) -> None:
        """Helm installs, but never upgrades, CRDs that are in a folder `crds` of the chart."""
        assert self.crds()
        assert not (CHART / "crds").exists()

    def test_are_in_the_packaged_chart(self, tmp_path: Path) -> None:
        assert render(chart=package(tmp_path)) == render()

    def test_can_be_left_out(self) -> None:
        assert not render("crds.install=false").of_kind("CustomResourceDefinition")
