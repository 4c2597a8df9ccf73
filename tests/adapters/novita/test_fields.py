"""Single values as they come over the wire, and as they should never come."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.adapters.novita import novita_json

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.from_regex(r"-?\d{1,40}(\.\d+)?"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_whole_numbers_come_as_numbers_or_strings(subtests: pytest.Subtests) -> None:
    for value, expected in [
        ("16", 16),
        (16, 16),
        (16.0, 16),
        ("16.0", 16),
        (" 16 ", 16),
        ("-1", -1),
        ("", None),
        ("16.5", None),
        ("1e3", None),
        ("١٦", None),
        (True, None),
        (None, None),
        ([16], None),
        (float("inf"), None),
        (float("nan"), None),
        (10**30, None),
        ("9" * 5000, None),
    ]:
        with subtests.test(value=value, expected=expected):
            assert novita_json.whole({"n": value}, "n") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("35000", Decimal("0.35")),
        (17500, Decimal("0.175")),
        ("1", Decimal("0.00001")),
        ("0", None),
        ("-5", None),
    ],
)
def test_prices_are_hundred_thousandths_of_a_dollar_and_zero_means_not_sold(value, expected):
    assert novita_json.usd({"price": value}, "price") == expected
    assert novita_json.usd({}, "price") is None


@pytest.mark.parametrize("value", ["0", "-1", "", None, "soon", 10**17, "253402300800"])
def test_times_that_are_none_mean_never(value):
    assert novita_json.moment({"t": value}, "t") is None


def test_times_are_unix_seconds_in_strings():
    assert novita_json.moment({"t": "1785780950"}, "t") == datetime(2026, 8, 3, 18, 15, 50, tzinfo=UTC)


def test_text_is_safe_to_show_and_to_store():
    assert novita_json.safe_text("a\x1b[31mb\0c\r\nd\ud800e") == "a [31mb c  d e"
    assert novita_json.safe_text("x" * 5000, 300) == "x" * 300
    assert novita_json.safe_text("Zürich 東京") == "Zürich 東京"


def test_program_text_keeps_its_lines_and_loses_what_no_process_can_take():
    assert novita_json.program_text({"c": "a\n\tb\0\ud800"}, "c") == "a\n\tb"


@given(JSON)
def test_no_value_whatever_breaks_a_field(value):
    row = {"f": value}
    stored = [novita_json.text(row, "f"), novita_json.program_text(row, "f"), *novita_json.texts(row, "f")]
    for each in stored:
        each.encode("utf-8")
        assert "\0" not in each
    novita_json.whole(row, "f")
    novita_json.usd(row, "f")
    novita_json.moment(row, "f")
    json.dumps([novita_json.part(row, "f"), *novita_json.parts(row, "f")])
