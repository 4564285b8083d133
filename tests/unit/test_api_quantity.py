"""Quantities of CPUs, as claims ask for them and as the API server writes them."""

import pytest

from dracpu_api.quantity import format_quantity, whole_number


@pytest.mark.parametrize(
    ("quantity", "cpus"),
    [("2", 2), ("08", 8), ("2000m", 2), ("1e1", 10), ("1k", 1000), ("2.0", 2), ("1Ki", 1024)]
    + [(wrong, None) for wrong in ("500m", "1500m", "0", "-8", "", "x", "1e", "2.5", "NaN", "1 ", "--1")],
)
def test_only_positive_whole_quantities_are_cpus(quantity, cpus):
    assert whole_number(quantity) == cpus


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0"), (1, "1"), (999, "999"), (1000, "1k"), (1024, "1024"), (2000, "2k"), (1500, "1500"), (3000000, "3M")],
)
def test_quantities_are_written_as_the_api_server_would(amount: int, text: str) -> None:
    assert format_quantity(amount) == text
