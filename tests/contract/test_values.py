"""Times as the API writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from gpuherd.contract.codec.values import iso_time, read_time

ZONES = st.sampled_from([UTC, timezone.utc, timezone(timedelta(0)), timezone(timedelta(hours=8))])  # noqa: UP017


@given(st.datetimes(timezones=ZONES))
def test_a_time_has_always_microseconds_and_z_for_utc(moment: datetime) -> None:
    text = iso_time(moment)
    assert text == moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    assert read_time(text) == moment


def test_midnight_is_written_out() -> None:
    assert iso_time(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00.000000Z"
