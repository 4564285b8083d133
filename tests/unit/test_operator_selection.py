"""Which config a node follows."""

import random

import pytest
from fleets import config, node
from hypothesis import given
from hypothesis import strategies as st

from dracpu_api.objects.models import NodeSelector, SelectorRequirement
from dracpu_operator.decide.selection import matches, precedence, select

LABELS = {"pool": "databases", "zone": "a"}


@pytest.mark.parametrize(
    ("operator", "key", "values", "expected"),
    [
        ("In", "pool", ["databases", "web"], True),
        ("In", "pool", ["web"], False),
        ("In", "absent", ["web"], False),
        ("NotIn", "pool", ["web"], True),
        ("NotIn", "pool", ["databases"], False),
        ("NotIn", "absent", ["web"], True),
        ("Exists", "zone", [], True),
        ("Exists", "absent", [], False),
        ("DoesNotExist", "zone", [], False),
        ("DoesNotExist", "absent", [], True),
    ],
)
def test_each_operator_reads_labels_as_kubernetes_does(operator, key, values, expected) -> None:
    requirement = SelectorRequirement(key=key, operator=operator, values=values)
    assert matches(NodeSelector(match_expressions=(requirement,)), LABELS) is expected


def test_all_requirements_of_a_selector_must_hold() -> None:
    zone = SelectorRequirement(key="zone", operator="In", values=("a",))
    assert matches(NodeSelector(match_labels={"pool": "databases"}, match_expressions=(zone,)), LABELS)
    assert not matches(NodeSelector(match_labels={"pool": "web"}, match_expressions=(zone,)), LABELS)
    assert matches(NodeSelector(), {})


def test_an_empty_selector_selects_linux_nodes_and_nodes_without_the_label() -> None:
    nodes = [node("linux"), node("windows", **{"kubernetes.io/os": "windows"})]
    assert [node.name for node in select(nodes, [config()])["all"].nodes] == ["linux"]
    labelled = config(nodeSelector={"matchLabels": {"kubernetes.io/os": "windows"}})
    assert select(nodes, [labelled])["all"].nodes == []


def test_the_highest_priority_wins_then_the_oldest_then_the_first_by_name() -> None:
    young, old = "2026-02-01T00:00:00Z", "2026-01-01T00:00:00Z"
    configs = [
        config("z-first", priority=1, created=young),
        config("b-old", created=old),
        config("c-old", created=old),
        config("a-young", created=young),
        config("last", priority=-1, created=old),
    ]
    random.Random(1).shuffle(configs)
    assert [config.name for config in sorted(configs, key=precedence)] == [
        "z-first",
        "b-old",
        "c-old",
        "a-young",
        "last",
    ]


def test_nodes_lost_to_a_config_of_equal_priority_are_recorded_and_those_lost_to_a_higher_one_are_not() -> None:
    configs = [config("a"), config("b"), config("low", priority=-1)]
    selected = select([node("n1"), node("n2")], configs)
    assert [node.name for node in selected["a"].nodes] == ["n1", "n2"]
    assert selected["b"].lost == {"a": ["n1", "n2"]}
    assert selected["a"].lost == selected["low"].lost == {}


_configs = st.lists(
    st.builds(
        config,
        name=st.sampled_from("abcdef"),
        created=st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
        priority=st.integers(-1, 1),
        nodeSelector=st.sampled_from([{}, {"matchLabels": {"pool": "x"}}]),
    ),
    unique_by=lambda record: record.name,
)
_nodes = st.lists(
    st.builds(node, name=st.sampled_from("uvwxyz"), pool=st.sampled_from("xy")), unique_by=lambda n: n.name
)


@given(_nodes, _configs, st.randoms(use_true_random=False))
def test_every_node_follows_at_most_one_config_whatever_the_order(nodes, configs, order) -> None:
    first = select(nodes, configs)
    shuffled = list(configs)
    order.shuffle(shuffled)
    assert {name: followed.nodes for name, followed in select(nodes, shuffled).items()} == {
        name: followed.nodes for name, followed in first.items()
    }
    followers = [node.name for selected in first.values() for node in selected.nodes]
    assert len(followers) == len(set(followers))
    everybody = any(not config.wanted.spec.node_selector.match_labels for config in configs)
    if everybody:
        assert set(followers) == {node.name for node in nodes}
