"""Which nodes are followed, and when claims are listed for them."""

from fleets import cpu_node

from dracpu_api.settings import OutstandingClaim
from dracpu_operator.decide.following import Following
from dracpu_operator.decide.records import CpuNode

CLAIM = OutstandingClaim("u1", "default", "c", (("cpudevnuma000", 2),))
RESTS = cpu_node("n1")


def reconcile(following: Following, now: float, *cpu_nodes: CpuNode, took: float = 0.0) -> tuple[list[str], bool]:
    """Returns the names of the followed nodes, and whether claims were listed."""
    followed = following.nodes(cpu_nodes)
    due = following.is_due(followed, now)
    if due:
        following.listed(now, now + took)
    return [cpu_node.name for cpu_node in followed], due


def lists_at(following: Following, times: range, *cpu_nodes: CpuNode, took: float = 0.0) -> list[int]:
    return [now for now in times if reconcile(following, now, *cpu_nodes, took=took)[1]]


def following_settled(*cpu_nodes: CpuNode) -> Following:
    """Returns a Following for which these nodes have settled."""
    following = Following(first=5, cap=20)
    assert lists_at(following, range(-100, 0), *cpu_nodes)
    return following


def test_an_operator_that_starts_lists_claims_twice_for_all_nodes() -> None:
    following = Following(first=5, cap=20)
    assert lists_at(following, range(100), RESTS, cpu_node("n2")) == [5, 10]
    assert reconcile(following, 100, RESTS) == ([], False)
    assert following.due_at == float("inf")


def test_a_node_that_changes_is_followed_until_the_second_list_after_it_has_settled() -> None:
    following = following_settled(RESTS)
    given = cpu_node("n1", given="r2", applied="r1", generation=3)
    assert lists_at(following, range(30), given) == [5, 10, 20]  # its agent may be away
    settling = cpu_node("n1", given="r2", applied="r1", phase="Settling", generation=3)
    assert lists_at(following, range(30, 36), settling) == [35]
    done = cpu_node("n1", given="r2", applied="r2", generation=3)
    assert lists_at(following, range(36, 100), done) == [40, 45]


def test_a_node_is_followed_while_claims_are_outstanding_and_less_often_while_nothing_changes() -> None:
    draining = cpu_node("n1", phase="Draining", generation=3, outstanding=(CLAIM,))
    following = following_settled(RESTS)
    assert lists_at(following, range(100), draining) == [5, 10, 20, 40, 60, 80]
    moved = cpu_node("n1", phase="Draining", generation=3, outstanding=(CLAIM, CLAIM))
    assert lists_at(following, range(100, 112), moved) == [100, 105]


def test_a_node_whose_spec_somebody_has_edited_is_followed_again() -> None:
    following = following_settled(RESTS)
    assert lists_at(following, range(100), cpu_node("n1", generation=3)) == [5, 10]


def test_a_node_is_followed_while_its_agent_restarts() -> None:
    following = following_settled(RESTS)
    away = cpu_node("n1", applied=None, phase="Pending")
    assert reconcile(following, 0, away) == (["n1"], False)
    assert reconcile(following, 1, RESTS) == ([], False)


def test_cpu_nodes_of_others_and_nodes_without_an_agent_are_not_followed() -> None:
    following = Following(first=5, cap=20)
    strange = [cpu_node("by-hand", owner=None, outstanding=(CLAIM,)), cpu_node("silent", phase=None)]
    assert reconcile(following, 100, *strange) == ([], False)


def test_lists_that_take_long_are_rare_even_when_nodes_change() -> None:
    following = Following(first=5, cap=20)
    nodes = [cpu_node("n1", given="r2", generation=number) for number in range(200)]
    listed = [now for now, cpu_node in enumerate(nodes) if reconcile(following, now, cpu_node, took=7)[1]]
    assert listed == [5, 82, 159]  # seven seconds, and ten times as long without
