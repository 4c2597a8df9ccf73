"""Replies as untrusted input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.adapters.novita.novita_call import read_reply

GARBAGE = [
    b"<html><h1>502 Bad Gateway</h1></html>",
    b'{"id": "abc"',
    b'{"id": "abc"}}',
    b'{"id": NaN}',
    b'{"id": "abc", "x": -Infinity}',
    b'["5f0c9b1d2e3a4f60"]',
    b'"5f0c9b1d2e3a4f60"',
    b"42",
    b"true",
    b"\xff\xfe{\x00}\x00",
    b'{"id": "\xff"}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"n": ' + b"9" * 5_000 + b"}",
]


def test_what_is_not_a_json_object_is_garbage(subtests: pytest.Subtests) -> None:
    for raw in GARBAGE:
        with subtests.test(raw=raw):
            reply = read_reply(200, raw)
            assert reply.is_garbage
            assert reply.body is None


@pytest.mark.parametrize("raw", [b"", b"  \r\n", b"null", b" null\n"])
def test_nothing_is_not_garbage(raw):
    reply = read_reply(200, raw)
    assert not reply.is_garbage
    assert reply.is_empty
    assert reply.body is None


def test_an_object_is_read_and_kept_out_of_sight():
    reply = read_reply(200, b'{"password": "hunter2"}')
    assert reply.body == {"password": "hunter2"}
    assert "hunter2" not in repr(reply)


def test_the_excerpt_is_short_and_harmless():
    excerpt = read_reply(502, b"<p>\x1b[2J\0" + "ü".encode() * 10_000).excerpt
    assert len(excerpt) <= 300
    assert excerpt.isprintable()


@given(st.binary(max_size=200))
def test_no_bytes_whatever_break_it(raw):
    read_reply(200, raw)
