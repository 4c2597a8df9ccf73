"""A stream means the same wherever the network cuts it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.client.transport.sse import MESSAGE_MAX, NotAnEventStream, SseMessage, SseParser


def read(*chunks: bytes) -> list[SseMessage]:
    reader = SseParser()
    return [message for chunk in chunks for message in reader.feed(chunk)]


def test_a_message_has_id_type_and_data() -> None:
    raw = b'retry: 2000\n\n: hello\n\nid: 7\nevent: instance.ready\ndata: {"a":1}\n\n'
    assert read(raw) == [SseMessage("7", "instance.ready", '{"a":1}')]


def test_lines_of_data_are_one_text_and_an_id_lasts() -> None:
    assert read(b"id:1\ndata:a\ndata: b\ndata\n\ndata: c\n\n") == [
        SseMessage("1", "message", "a\nb\n"),
        SseMessage("1", "message", "c"),
    ]


def test_what_is_not_complete_is_no_message() -> None:
    assert read(b"id: 1\ndata: a\n") == []
    assert read(b"id: 1\n\n") == []


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=20)


@given(
    st.lists(WORDS, min_size=1, max_size=5),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 400), max_size=8),
)
def test_it_is_the_same_wherever_it_is_cut(words: list[str], end: bytes, cuts: list[int]) -> None:
    lines = [line for n, word in enumerate(words) for line in (f"id: {n}", "event: e", f"data: {word}", "")]
    # The last line break may be the first half of a longer one, until something follows.
    raw = end.join(line.encode() for line in lines) + end + b": x"
    places = [0, *sorted(cut % len(raw) for cut in cuts), len(raw)]
    chunks = [raw[a:b] for a, b in pairwise(places)]
    assert read(*chunks) == [SseMessage(str(n), "e", word) for n, word in enumerate(words)]


def test_what_has_no_end_is_given_up() -> None:
    with pytest.raises(NotAnEventStream):
        read(b"x" * (MESSAGE_MAX + 1))
    with pytest.raises(NotAnEventStream):
        read(*[b"data: " + b"x" * 100_000 + b"\n"] * 50)
