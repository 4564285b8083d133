"""A pod with claims of hugepages may be resized only while none of them are reserved and not touched."""

from dracpu_agent.memory.resizing import problem_of_resize

MI, GI = 1024**2, 1024**3


def test_a_pod_whose_pages_are_all_in_use_or_free_may_be_resized() -> None:
    assert problem_of_resize({}) == ""
    assert problem_of_resize({2 * MI: 0}) == ""


def test_pages_that_are_reserved_and_not_touched_prevent_a_resize() -> None:
    problem = problem_of_resize({GI: GI, 2 * MI: 8 * MI})
    assert "have reserved 8Mi of hugepages_2Mi and 1Gi of hugepages_1Gi" in problem
    assert "set the former resources again" in problem


def test_a_pod_of_which_nothing_is_known_is_not_resized() -> None:
    assert "could not be read in time" in problem_of_resize(None)
