"""README and docs agree with the code: manifests, parameters of claims, options, metrics."""

import doc_manifests
import pytest
from doc_manifests import ROOT, Shown

from dracpu_agent.claims.memory_parameters import read_memory_parameters
from dracpu_agent.claims.parameters import read_parameters
from dracpu_agent.cli import options
from dracpu_agent.observe.metrics import Metrics
from dracpu_api import names
from dracpu_api.objects.validate import parse
from dracpu_operator.metrics import Metrics as OperatorMetrics

SHOWN = doc_manifests.shown()
OWN = [example for example in SHOWN if example.manifest["apiVersion"].startswith(f"{names.API_GROUP}/")]
CLAIMS = [example for example in SHOWN if example.manifest["kind"].startswith("ResourceClaim")]


@pytest.mark.parametrize("example", OWN, ids=str)
def test_our_objects_are_valid(example: Shown) -> None:
    parse(example.manifest)


@pytest.mark.parametrize("example", CLAIMS, ids=str)
def test_claims_name_our_class_and_parameters_that_the_agent_reads(example: Shown) -> None:
    spec = example.manifest["spec"]
    devices = spec.get("spec", spec)["devices"]
    for request in devices["requests"]:
        assert request["exactly"]["deviceClassName"] in {names.DRIVER, *names.CLASSES_OF_MEMORY}
        capacities = request["exactly"].get("capacity", {}).get("requests", {}).keys()
        assert capacities <= {names.CAPACITY_CPU, names.CAPACITY_SIZE, *names.CAPACITIES_BESIDE_CPUS.values()}
    for config in devices.get("config", ()):
        read = {names.DRIVER: read_parameters, names.MEMORY.driver: read_memory_parameters}[config["opaque"]["driver"]]
        read(config["opaque"]["parameters"])


def test_every_option_of_the_agent_is_explained_with_its_default() -> None:
    explained = (ROOT / "docs/user/configure.md").read_text()
    parsed = vars(options.parser({}).parse_args(["run", "--node-name", "n"]))
    for name, default in parsed.items():
        if name != "command":
            (line,) = (line for line in explained.splitlines() if line.startswith(f"| `--{name.replace('_', '-')}` |"))
            shown = f"{default:g}" if isinstance(default, float) else default
            assert name == "node_name" or not default or f"`{shown}`" in line


def test_every_metric_is_explained() -> None:
    explained = (ROOT / "docs/user/metrics.md").read_text()
    metrics = Metrics("0.1.0")
    metrics.set_config(config="c", mode="grouped", group_by="numanode")
    shown = metrics.render().decode() + OperatorMetrics().render().decode()
    types = [line.split()[2] for line in shown.splitlines() if line.startswith("# TYPE")]
    ours = [name for name in types if name.startswith("dra_cpu_") and not name.endswith("_created")]
    assert len(ours) > 14
    assert [name for name in ours if f"`{name}`" not in explained and f"`{name}{{" not in explained] == []
