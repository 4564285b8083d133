"""The names of the metrics, which dashboards use, and the events that change their values."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dracpu_agent.observe.metrics import Metrics, NodeGauges


def samples(metrics: Metrics) -> dict[str, float]:
    """All series by their names as in a query: name{label=value}."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_metrics_of_the_go_driver_exist_from_the_start() -> None:
    found = samples(Metrics("1.2.3"))
    for name in ("allocated_cpus", "available_cpus", "reserved_cpus", "resource_claims_active"):
        assert found[f"dra_cpu_{name}"] == 0
    for verb in ("prepare", "unprepare"):
        for result in ("success", "error", "unknown"):
            assert found[f"dra_cpu_{verb}_claims_total{{result={result}}}"] == 0
    assert found["dra_cpu_prepare_claim_duration_seconds_count"] == 0
    assert found["dra_cpu_claim_allocated_cpus_count"] == 0


def test_every_metric_has_a_help_text_and_only_labels_with_a_limited_number_of_values() -> None:
    metrics = Metrics("1.2.3")
    metrics.set_config(config="default", mode="grouped", group_by="numanode")
    metrics.hook_answered("CreateContainer", 0.002)
    allowed = {"result", "hook", "le", "version", "config", "mode", "group_by"}
    for family in text_string_to_metric_families(metrics.render().decode()):
        assert family.documentation
        assert family.name.startswith(("dra_cpu_", "process_"))
        for sample in family.samples:
            assert set(sample.labels) <= allowed
            assert not sample.name.endswith("_created")


def test_gauges_show_the_latest_numbers_of_the_node() -> None:
    metrics = Metrics("1.2.3")
    cpus = metrics.drivers["dra.cpu"]
    metrics.set_node(NodeGauges(allocated=6, available=8, reserved=2))
    cpus.set_claims(3, 1)
    metrics.set_node(NodeGauges(allocated=5, available=9, reserved=2))
    cpus.set_claims(2, 0)
    found = samples(metrics)
    assert found["dra_cpu_allocated_cpus"] == 5
    assert found["dra_cpu_available_cpus"] == 9
    assert found["dra_cpu_reserved_cpus"] == 2
    assert found["dra_cpu_resource_claims_active"] == 2
    assert found["dra_cpu_lingering_claims"] == 0


def test_claims_are_counted_by_their_result() -> None:
    metrics = Metrics("1.2.3")
    cpus = metrics.drivers["dra.cpu"]
    cpus.claim_prepared(0.004, 8)
    cpus.prepare_failed()
    cpus.claim_unprepared("success")
    cpus.claim_unprepared("error")
    found = samples(metrics)
    for verb in ("prepare", "unprepare"):
        assert found[f"dra_cpu_{verb}_claims_total{{result=success}}"] == 1
        assert found[f"dra_cpu_{verb}_claims_total{{result=error}}"] == 1
    assert found["dra_cpu_prepare_claim_duration_seconds_sum"] == pytest.approx(0.004)
    assert found["dra_cpu_claim_allocated_cpus_bucket{le=4.0}"] == 0
    assert found["dra_cpu_claim_allocated_cpus_bucket{le=8.0}"] == 1


def test_connections_and_slices_are_shown_as_1_or_0() -> None:
    metrics = Metrics("1.2.3")
    cpus = metrics.drivers["dra.cpu"]
    cpus.set_kubelet_registered(True)
    metrics.set_nri_connected(True)
    metrics.set_nri_connected(False)
    cpus.set_slices(published=False, failed=True)
    cpus.set_slices(published=True, failed=False)
    found = samples(metrics)
    assert found["dra_cpu_kubelet_registered"] == 1
    assert found["dra_cpu_nri_connected"] == 0
    assert found["dra_cpu_slices_published"] == 1
    assert found["dra_cpu_slice_errors_total"] == 1


def test_writes_hooks_pushes_and_repairs_are_counted_and_timed() -> None:
    metrics = Metrics("1.2.3")
    metrics.checkpoint_written(0.03, "success")
    metrics.checkpoint_written(20, "error")
    metrics.hook_answered("CreateContainer", 0.002)
    metrics.pool_pushed("error")
    metrics.drivers["dra.cpu"].cdi_repaired("success")
    found = samples(metrics)
    assert found["dra_cpu_checkpoint_writes_total{result=error}"] == 1
    assert found["dra_cpu_checkpoint_write_duration_seconds_count"] == 2
    assert found["dra_cpu_nri_hook_duration_seconds_count{hook=CreateContainer}"] == 1
    assert found["dra_cpu_pool_pushes_total{result=success}"] == 0
    assert found["dra_cpu_pool_pushes_total{result=error}"] == 1
    assert found["dra_cpu_cdi_repairs_total{result=success}"] == 1
    assert found["dra_cpu_cdi_repairs_total{result=error}"] == 0


def test_the_agents_version_and_its_latest_settings_are_shown() -> None:
    metrics = Metrics("1.2.3")
    metrics.set_config(config="default", mode="grouped", group_by="numanode")
    metrics.set_config(config="other", mode="individual", group_by="")
    found = samples(metrics)
    assert found["dra_cpu_build_info{version=1.2.3}"] == 1
    assert [name for name in found if name.startswith("dra_cpu_config_info")] == [
        "dra_cpu_config_info{config=other,group_by=,mode=individual}"
    ]


def test_two_agents_in_one_process_count_separately() -> None:
    first, second = Metrics("1"), Metrics("2")
    first.drivers["dra.cpu"].prepare_failed()
    assert samples(second)["dra_cpu_prepare_claims_total{result=error}"] == 0


def test_each_driver_has_metrics_of_its_own() -> None:
    metrics = Metrics("1", ["dra.cpu", "dra.memory"])
    metrics.drivers["dra.memory"].claim_prepared(0.004, 2**30)
    found = samples(metrics)
    assert found["dra_memory_prepare_claims_total{result=success}"] == 1
    assert found["dra_cpu_prepare_claims_total{result=success}"] == 0
