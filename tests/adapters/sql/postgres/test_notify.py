"""Notices fit into what PostgreSQL takes, and say each change once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuherd.adapters.sql.listen_notify import NOTICE_BYTES_MAX, decode_notice, encode_notices
from tests.support.builders import instance_id


@given(st.integers(0, 2000), st.integers(1, 3))
def test_all_are_told_in_as_many_notices_as_it_takes(count: int, times: int) -> None:
    wanted = [instance_id(n) for n in range(count)]
    notices = list(encode_notices("me", wanted * times))
    assert all(len(it.encode()) <= NOTICE_BYTES_MAX for it in notices)
    read = [decode_notice(it) for it in notices]
    assert {sender for sender, _ in read} <= {"me"}
    assert [one for _, them in read for one in them] == wanted
