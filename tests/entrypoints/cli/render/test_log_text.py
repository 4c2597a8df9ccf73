"""A log on a terminal: readable, whole, and nothing in it is obeyed."""

from __future__ import annotations

import pytest

from gpuherd.entrypoints.cli.render.log_text import LastLine, LogText


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_nothing_that_a_machine_wrote_is_obeyed_wherever_it_is_cut(size: int) -> None:
    said = "a\tb\r\nfe\u0301té\x1b[2J\x07\u202e\r10%\r20%\n".encode() + b"\xff\n"
    text = LogText()
    shown = "".join(text.feed(said[at : at + size]) for at in range(0, len(said), size))
    assert shown == "a\tb\nfe\u0301té\\x1b[2J\\x07\\u202e\n10%\n20%\n\ufffd\n"


def test_the_last_whole_line_is_told_in_bounds() -> None:
    last = LastLine(10)
    assert [last.feed(it) for it in (b"lay", b"er 1\nlayer 2\n\n", b"x" * 50, b"end\n", b"\n")] == [
        None,
        "layer 2",
        None,
        "x" * 10,
        None,
    ]
