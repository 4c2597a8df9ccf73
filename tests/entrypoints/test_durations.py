"""Times as people say them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gpuherd.entrypoints.durations import (
    format_duration,
    parse_duration,
    relative_time,
    remaining_time,
)

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "just now"),
        (-4, "just now"),
        (30, "30 s ago"),
        (59.9, "60 s ago"),
        (200, "3 min ago"),
        (7300, "2 h ago"),
        (47 * 3600, "47 h ago"),
        (5 * 86400, "5 d ago"),
        (-200, "in 3 min"),
        (-3599, "in 59 min"),
        (-3600, "in 1 h"),
        (-7199, "in 1 h 59 min"),
        (-7260, "in 2 h 1 min"),
        (-47.5 * 3600, "in 47 h 30 min"),
        (-48 * 3600, "in 2 d"),
        (-(5 * 86400 + 3 * 3600 + 60), "in 5 d 3 h"),
    ],
)
def test_moments_are_told_relative_to_now(seconds: float, words: str) -> None:
    assert relative_time(NOW - timedelta(seconds=seconds), NOW) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0 s"), (0.9, "0 s"), (59, "59 s"), (200, "3 min 20 s"), (3900, "1 h 05 min")],
)
def test_durations_are_told_to_the_second_while_that_matters(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "longer than estimated"),
        (20, "less than a minute left"),
        (170, "about 3 min left"),
        (7300, "about 2 h left"),
    ],
)
def test_estimates_do_not_pretend_to_be_exact(seconds: float, words: str) -> None:
    assert remaining_time(NOW + timedelta(seconds=seconds), NOW) == words


@pytest.mark.parametrize(
    ("words", "seconds"), [("90", 90), ("90s", 90), ("20m", 1200), ("2 min", 120), ("1.5h", 5400)]
)
def test_durations_may_have_units(words: str, seconds: float) -> None:
    assert parse_duration(words) == seconds


@pytest.mark.parametrize("words", ["", "0", "-5", "1w", "soon", "1e9", "nan"])
def test_what_is_no_duration_is_refused(words: str) -> None:
    with pytest.raises(ValueError, match="say it like"):
        parse_duration(words)
