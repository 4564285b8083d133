"""How long clients wait before they repeat a failed attempt."""

from hypothesis import given
from hypothesis import strategies as st

from dracpu_api.backoff import Backoff
from dracpu_api.errors import UnavailableError


def test_the_wait_doubles_to_its_cap_and_starts_again_after_a_success() -> None:
    backoff = Backoff(1, 8, jitter=lambda low, high: high)
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 8, 8]
    backoff.reset()
    assert backoff.next() == 1


def test_the_wait_is_as_long_as_the_server_asks_within_the_cap() -> None:
    assert Backoff(1, 8).next(UnavailableError("later", retry_after=5)) == 5
    assert Backoff(1, 8).next(UnavailableError("later", retry_after=3600)) == 8


def test_clients_that_the_server_asks_for_the_same_time_come_back_one_after_the_other() -> None:
    later = UnavailableError("later", retry_after=4)
    assert Backoff(1, 8, jitter=lambda low, high: high).next_spread(later) == 5
    assert Backoff(1, 8, jitter=lambda low, high: low).next_spread(later) == 4
    assert Backoff(1, 8, jitter=lambda low, high: high).next_spread(UnavailableError("away")) == 1


@given(st.integers(1, 50))
def test_jitter_stays_between_half_and_whole(attempts: int) -> None:
    backoff = Backoff(0.5, 30)
    delay = [backoff.next() for _ in range(attempts)][-1]
    whole = min(0.5 * 2 ** (attempts - 1), 30)
    assert whole / 2 <= delay <= whole
