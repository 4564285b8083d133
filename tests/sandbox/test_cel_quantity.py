"""Quantities are exact, and have the canonical text of Kubernetes."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_sandbox.cel.quantity import Quantity, QuantityError


@pytest.mark.parametrize(
    "text, number",
    [
        ("12", 12),
        ("500m", Fraction(1, 2)),
        ("2Ki", 2048),
        ("1.5Gi", 3 * 2**29),
        ("1e3", 1000),
        ("1E", 10**18),
        ("-8", -8),
        ("+.5", Fraction(1, 2)),
        ("5.", 5),
        ("0.1n", Fraction(1, 10**9)),  # finer than a billionth: rounded away from zero
        ("-0.1n", -Fraction(1, 10**9)),
    ],
)
def test_a_quantity_is_read_exactly(text, number) -> None:
    assert Quantity.parse(text).number == number


@pytest.mark.parametrize("text", ["", "a", "1 Gi", "1gi", "1KiB", "--1", "1e", "0x10", "1e999999", "٣"])
def test_a_text_that_is_not_a_quantity_is_refused(text) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        Quantity.parse(text)


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("08", "8"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1000", "1k"),
        ("1024Ki", "1Mi"),
        ("1.5Ki", "1536"),
        ("1000Ki", "1000Ki"),
        ("1e3", "1e3"),
        ("-2000", "-2k"),
        ("0.5", "500m"),
    ],
)
def test_the_canonical_text_is_that_of_kubernetes(text, canonical) -> None:
    assert Quantity.parse(text).text == canonical


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("08", "08"),
        ("1e9", "1e9"),
        ("5.36870912e8", "5.36870912e8"),
        ("536870912000m", "536870912"),
        ("3174398000", "3174398k"),
        ("512.5Mi", "524800Ki"),
        ("0", "0"),
        (2**29, "536870912"),
    ],
)
def test_the_api_server_keeps_texts_that_are_nearly_canonical(text, stored) -> None:
    assert Quantity.stored(text) == stored


def test_equal_numbers_are_equal_quantities() -> None:
    assert Quantity.parse("1Ki") == Quantity.parse("1024")
    assert len({Quantity.parse("1"), Quantity.parse("1000m")}) == 1
    assert Quantity.parse("1Ki") < Quantity.parse("1025")


@given(
    st.fractions(max_denominator=1).map(lambda number: number / 1000),
    st.sampled_from(["decimal", "binary", "exponent"]),
)
def test_a_canonical_text_is_parsed_to_the_same_number(number, notation) -> None:
    quantity = Quantity(number, notation)
    assert Quantity.parse(quantity.text) == quantity
    # a binary quantity without a suffix, such as 125000, is read back as a decimal one
    if notation != "binary" or quantity.text.endswith("i"):
        assert Quantity.parse(quantity.text).text == quantity.text


@pytest.mark.parametrize("text, whole", [("500m", 1), ("2", 2), ("-1500m", -2), ("0", 0)])
def test_whole_rounds_away_from_zero(text, whole) -> None:
    assert Quantity.parse(text).whole() == whole
