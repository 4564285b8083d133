"""A container that runs without limits of its claims is given them without harm."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_agent.memory.correction import Step, Use, next_step, right

MI, GI = 1024**2, 1024**3
MAX, MEMS = "memory.max", "cpuset.mems"
UNLIMITED = 2**63 - 1
PLENTY = {0: 64 * GI, 1: 64 * GI}

sizes = st.integers(0, 4096).map(lambda count: count * MI)
uses = st.builds(
    Use,
    used=sizes,
    clean=sizes,
    limit=sizes.filter(bool) | st.just(UNLIMITED),
    nodes=st.sampled_from(["", "0", "1", "0-1"]),
    by_node=st.dictionaries(st.sampled_from([0, 1]), sizes),
    pages=st.dictionaries(st.sampled_from([0, 1]), sizes),
    untouched=st.sampled_from([0, 2 * MI]),
)
offer_settings = st.builds(
    lambda limit, nodes: {MAX: str(limit), MEMS: nodes}, sizes.filter(bool), st.sampled_from(["0", "1", "0,1"])
)


def written(use: Use, step: Step) -> Use:
    """The use of a container after a step, if its program does nothing."""
    if step.file == MEMS:
        return replace(use, nodes=step.content)
    return replace(use, limit=int(step.content), used=min(use.used, int(step.content)))


def test_a_program_that_uses_little_gets_its_limit_and_is_bound_then() -> None:
    wanted = {MAX: str(GI), MEMS: "0"}
    use = Use(used=300 * MI, clean=0, limit=UNLIMITED, by_node={0: 200 * MI, 1: 100 * MI})
    assert next_step(wanted, use, PLENTY) == (MAX, str(GI))
    use = replace(use, limit=GI)
    assert right(wanted, use) == {MAX: str(GI)}
    assert next_step(wanted, use, PLENTY) == (MEMS, "0")
    assert next_step(wanted, replace(use, nodes="0"), PLENTY) is None
    assert right(wanted, replace(use, nodes="0")) == wanted


def test_a_program_that_uses_more_than_its_claim_keeps_a_twentieth_more_than_it_needs() -> None:
    use = Use(used=2400 * MI, clean=400 * MI, limit=UNLIMITED)
    assert next_step({MAX: str(GI)}, use, PLENTY) == (MAX, str(2100 * MI))
    assert next_step({MAX: str(GI)}, replace(use, limit=2100 * MI), PLENTY) is None
    assert next_step({MAX: str(GI)}, replace(use, limit=2100 * MI, used=GI, clean=GI // 10), PLENTY) == (MAX, str(GI))


@pytest.mark.parametrize(
    "use",
    [
        Use(MI, 0, 2 * GI, by_node={1: MI}),  # not limited yet, and using too much for that
        Use(MI, 0, GI, by_node={1: MI}, pages={1: 2 * MI}),
        Use(MI, 0, GI, by_node={1: MI}, untouched=2 * MI),
        Use(MI, 0, GI, is_located=False),
        Use(2 * GI, 0, GI, by_node={1: 900 * MI}),  # more than NUMA node 0 has to spare
    ],
)
def test_a_container_is_not_bound(use: Use) -> None:
    step = next_step({MAX: str(GI), MEMS: "0"}, use, {0: 800 * MI})
    assert step is None or step.file == MAX


@given(offer_settings, uses)
def test_no_limit_is_below_what_a_program_needs_or_above_what_it_has(wanted: dict[str, str], use: Use) -> None:
    step = next_step(wanted, use, PLENTY)
    if step is not None and step.file == MAX:
        assert int(step.content) >= int(wanted[MAX])
        assert int(step.content) >= (use.used - use.clean) * 1.05
        assert int(step.content) < use.limit


@given(offer_settings, uses)
def test_what_is_right_is_not_changed(wanted: dict[str, str], use: Use) -> None:
    done = replace(use, limit=int(wanted[MAX]), nodes=wanted[MEMS])
    assert next_step(wanted, done, PLENTY) is None
    assert right(wanted, done) == wanted


@given(offer_settings, uses, st.dictionaries(st.sampled_from([0, 1]), sizes))
def test_no_container_is_bound_before_it_is_limited_or_while_its_pages_are_elsewhere(
    wanted: dict[str, str], use: Use, free: dict[int, int]
) -> None:
    step = next_step(wanted, use, free)
    if step is not None and step.file == MEMS:
        kept = {int(numa) for numa in step.content.split(",")}
        assert use.limit <= int(wanted[MAX])
        assert not any(size for numa, size in use.pages.items() if numa not in kept)
        moving = sum(size for numa, size in use.by_node.items() if numa not in kept)
        assert not moving or moving <= sum(free.get(numa, 0) for numa in kept)


@given(offer_settings, uses, st.lists(sizes, max_size=5))
def test_every_limit_is_right_when_the_program_uses_little_at_last(
    wanted: dict[str, str], use: Use, later: list[int]
) -> None:
    for used in [*later, 0]:
        use = replace(use, used=min(used, use.limit), clean=0, pages={}, untouched=0, by_node={})
        for _ in range(3):
            if (step := next_step(wanted, use, PLENTY)) is not None:
                use = written(use, step)
        assert next_step(wanted, use, PLENTY) is None, "no step is taken for ever"
        assert use.used <= use.limit
    assert right(wanted, use) == wanted
