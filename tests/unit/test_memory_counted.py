"""Whether the request of a container covers its claim is seen in the oom_score_adj that the kubelet gives it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_agent.memory.counted import request_covers

GI = 1024**3


def kubelet_score(request: int, capacity: int) -> int:
    """The oom_score_adj that the kubelet gives a container of a Burstable pod."""
    return min(max(3, 1000 - 1000 * request // capacity), 999)


capacities = st.integers(GI, 4096 * GI)


@given(capacities, st.data())
def test_a_request_that_covers_the_claim_is_never_taken_for_less(capacity: int, data: st.DataObject) -> None:
    request = data.draw(st.integers(0, capacity))
    claimed = data.draw(st.integers(0, request))
    assert request_covers(claimed, kubelet_score(request, capacity), capacity)


@given(capacities, st.data())
def test_a_request_that_is_smaller_by_two_thousandths_is_noticed(capacity: int, data: st.DataObject) -> None:
    request = data.draw(st.integers(0, capacity * 99 // 100))
    claimed = data.draw(st.integers(request + capacity * 2 // 1000 + 1, capacity * 2))
    assert not request_covers(claimed, kubelet_score(request, capacity), capacity)


@pytest.mark.parametrize(("score", "covers"), [(1000, False), (-997, True), (-999, True), (3, True)])
def test_pods_of_the_other_classes(score: int, covers: bool) -> None:
    assert request_covers(GI, score, 8 * GI) is covers
