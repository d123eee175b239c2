"""Quantities: exact, canonical as an API server stores them, and bounded for hostile input."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.quantity import MAX, NANO, Quantity, QuantityError, canonical

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("0.5", "500m"),
        ("1000", "1k"),
        ("1500m", "1500m"),
        ("1Ki", "1Ki"),
        ("1024", "1024"),
        ("1.5Gi", "1536Mi"),
        ("1e30", "1e30"),
        ("12e22", "120e21"),
        ("0.5Ki", "512"),
        ("1025Ki", "1025Ki"),
        ("14.6484375Ki", "15000"),
        ("15000", "15k"),
        ("1.000001Ki", "1024001024u"),
        ("0.0001Ki", "102400u"),
        ("-0.0001Ki", "-102400u"),
        ("1e3", "1e3"),
        ("100e3", "100e3"),
        ("12E", "12E"),
        ("12Ei", "9223372036854775807"),
        ("-5", "-5"),
        (".5", "500m"),
        ("5.", "5"),
        ("0.0000000001", "1n"),
        ("-0.0000000001", "-1n"),
        (1, "1"),
        (0.1, "100m"),
        ("0", "0"),
    ],
)
def test_canonical_form_is_what_an_api_server_stores(written: str | int | float, stored: str) -> None:
    assert canonical(written) == stored


@pytest.mark.parametrize("text", ["", "Gi", "1gi", "1 Gi", "--1", "1e", "0x10", "1.2.3", "١", "1e9999", "9" * 100, "1Kim", "+"])
def test_what_is_not_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(text)


def test_a_boolean_is_not_a_quantity() -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(True)


@given(st.integers(-(10**12), 10**12), st.sampled_from(sorted(SUFFIXES | BINARY)))
def test_value_is_the_mathematical_value(amount: int, suffix: str) -> None:
    exact = amount * Fraction((SUFFIXES | BINARY)[suffix])
    capped = max(min(exact, MAX), -MAX) if suffix in BINARY else exact
    assert Fraction(Quantity.parse(f"{amount}{suffix}").nanos, NANO) == capped


@given(st.integers(-(10**17), 10**17), st.sampled_from(["DecimalSI", "BinarySI", "DecimalExponent"]))
def test_canonical_form_reads_back_as_the_same_amount(nanos: int, format: str) -> None:
    quantity = Quantity(nanos * NANO if format == "BinarySI" else nanos, format)
    again = Quantity.parse(str(quantity))
    assert again == quantity
    # Upstream too: a binary amount without a binary unit is written in digits, and they read back as a decimal amount.
    assert str(again) == str(quantity if str(quantity).endswith("i") else Quantity(quantity.nanos, again.format))
    assert str(Quantity.parse(str(again))) == str(again)


@given(st.integers(-(10**15), 10**15), st.integers(-(10**15), 10**15))
def test_arithmetic_and_order_are_those_of_numbers(a: int, b: int) -> None:
    left, right = Quantity(a), Quantity(b)
    assert (left + right).nanos == a + b
    assert (left - right).nanos == a - b
    assert (left < right) == (a < b)
    assert (left == right) == (a == b)


def test_whole_units_round_away_from_zero() -> None:
    assert Quantity.parse("1500m").value == 2
    assert Quantity.parse("-1500m").value == -2
    assert Quantity.parse("1n").milli == 1


@pytest.mark.parametrize(
    ("written", "with_one_ki"),
    [("0.00146484375Ki", "1025500m"), ("0Gi", "1Ki"), ("1023Ki", "1Mi"), ("1", "1025"), ("0.5Ki", "1536")],
)
def test_a_sum_is_written_in_the_units_of_its_first_part(written: str, with_one_ki: str) -> None:
    assert str(Quantity.parse(written) + Quantity.parse("1Ki")) == with_one_ki
