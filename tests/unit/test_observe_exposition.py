"""The text format, parsed by Prometheus' own parser."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from dracpu_agent.observe.exposition import Gauge, Histogram, Info, process_families, render


def samples(*families):
    text = render(families).decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('"\\\n{},=')))
def test_any_text_in_a_label_is_parsed_unchanged(text):
    info = Info("thing", "A thing")
    info.set(name=text)
    (sample,) = samples(info)
    assert (sample.name, sample.labels, sample.value) == ("thing_info", {"name": text}, 1)


@given(st.floats(allow_nan=False))
def test_any_number_is_parsed_unchanged(value):
    gauge = Gauge("number", "A number")
    gauge.set(value)
    (sample,) = samples(gauge)
    assert sample.value == value


@given(st.lists(st.floats(0, 100)))
def test_a_bucket_counts_all_values_up_to_its_bound(values):
    histogram = Histogram("size", "A size", (1, 5, 10))
    for value in values:
        histogram.observe(value)
    found = {(sample.name, sample.labels.get("le")): sample.value for sample in samples(histogram)}
    for bound in (1.0, 5.0, 10.0, float("inf")):
        label = "+Inf" if bound == float("inf") else str(bound)
        assert found["size_bucket", label] == sum(1 for value in values if value <= bound)
    assert found["size_count", None] == len(values)


def test_the_process_has_the_metrics_that_dashboards_use():
    found = {sample.name: sample.value for sample in samples(*process_families())}
    assert set(found) == {
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_open_fds",
        "process_start_time_seconds",
        "process_cpu_seconds_total",
    }
    assert 1e6 < found["process_resident_memory_bytes"] < found["process_virtual_memory_bytes"]
    assert found["process_open_fds"] >= 3
