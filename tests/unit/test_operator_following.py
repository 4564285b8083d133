"""Whose claims are listed again, and when."""

from fleets import cpu_node

from dracpu_api.settings import OutstandingClaim
from dracpu_operator.decide.following import Following
from dracpu_operator.decide.records import CpuNode

CLAIM = OutstandingClaim("u1", "default", "c", (("cpudevnuma000", 2),))
RESTS = cpu_node("n1")


def look(following: Following, now: float, *cpu_nodes: CpuNode, took: float = 0.0) -> tuple[list[str], bool]:
    """Whom it follows, and whether it listed claims."""
    followed = following.nodes(cpu_nodes)
    due = following.is_due(followed, now)
    if due:
        following.listed(now, now + took)
    return [one.name for one in followed], due


def lists(following: Following, times: range, *cpu_nodes: CpuNode, took: float = 0.0) -> list[int]:
    return [now for now in times if look(following, now, *cpu_nodes, took=took)[1]]


def at_ease(*cpu_nodes: CpuNode) -> Following:
    """One that has looked at these for long."""
    following = Following(first=5, cap=20)
    assert lists(following, range(-100, 0), *cpu_nodes)
    return following


def test_an_operator_that_starts_looks_at_all_nodes_twice() -> None:
    following = Following(first=5, cap=20)
    assert lists(following, range(100), RESTS, cpu_node("n2")) == [5, 10]
    assert look(following, 100, RESTS) == ([], False)
    assert following.due_at == float("inf")


def test_a_node_that_changes_is_followed_until_two_lists_after_it_came_to_rest() -> None:
    following = at_ease(RESTS)
    given = cpu_node("n1", given="r2", applied="r1", generation=3)
    assert lists(following, range(30), given) == [5, 10, 20]  # its agent may be away
    settling = cpu_node("n1", given="r2", applied="r1", phase="Settling", generation=3)
    assert lists(following, range(30, 36), settling) == [35]
    done = cpu_node("n1", given="r2", applied="r2", generation=3)
    assert lists(following, range(36, 100), done) == [40, 45]


def test_a_node_is_followed_as_long_as_something_is_outstanding_ever_more_rarely_while_nothing_moves() -> None:
    draining = cpu_node("n1", phase="Draining", generation=3, outstanding=(CLAIM,))
    following = at_ease(RESTS)
    assert lists(following, range(100), draining) == [5, 10, 20, 40, 60, 80]
    moved = cpu_node("n1", phase="Draining", generation=3, outstanding=(CLAIM, CLAIM))
    assert lists(following, range(100, 112), moved) == [100, 105]


def test_a_spec_that_somebody_has_edited_is_looked_at_again() -> None:
    following = at_ease(RESTS)
    assert lists(following, range(100), cpu_node("n1", generation=3)) == [5, 10]


def test_an_agent_that_restarts_on_the_same_spec_is_followed_until_it_is_back() -> None:
    following = at_ease(RESTS)
    away = cpu_node("n1", applied=None, phase="Pending")
    assert look(following, 0, away) == (["n1"], False)
    assert look(following, 1, RESTS) == ([], False)


def test_nodes_of_others_and_nodes_that_never_had_an_agent_are_not_followed() -> None:
    following = Following(first=5, cap=20)
    strange = [cpu_node("by-hand", owner=None, outstanding=(CLAIM,)), cpu_node("silent", phase=None)]
    assert look(following, 100, *strange) == ([], False)


def test_lists_that_take_long_are_rare_whatever_moves() -> None:
    following = Following(first=5, cap=20)
    nodes = [cpu_node("n1", given="r2", generation=number) for number in range(200)]
    listed = [now for now, one in enumerate(nodes) if look(following, now, one, took=7)[1]]
    assert listed == [5, 82, 159]  # seven seconds, and ten times as long without
