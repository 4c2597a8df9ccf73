"""Words of strangers, and where they go."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuherd.entrypoints.cli.cli_output import as_json, safe, shown

ANYTHING = st.text(alphabet=st.characters())
WILD = st.text(
    alphabet=st.sampled_from("ab\x1b[]0;\x07\x9b\r\n\t\x7f\u202e\u2066\u200b\u200d\ufeff\ud800\U000e0041")
)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("train-1", "train-1"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\rb\nc\td", r"a\rb\nc\td"),
        ("abc\u202egpj", r"abc\u202egpj"),
        ("\u2066x\u2069", r"\u2066x\u2069"),
        ("pay\u200bpal", r"pay\u200bpal"),
        ("x\u034fy", r"x\u034fy"),
        ("x\ufe0fy", r"x\ufe0fy"),
        ("\u3164", r"\u3164"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("line\u2028sep", r"line\u2028sep"),
        ("\ud800", r"\ud800"),
        ("\x7f", r"\x7f"),
        ("训练 ünï", "训练 ünï"),
        ("C:\\path", "C:\\path"),
    ],
)
def test_what_a_terminal_would_obey_or_hide_is_shown_as_an_escape(name: str, seen: str) -> None:
    assert safe(name) == seen


@given(ANYTHING | WILD)
def test_safe_text_has_only_visible_characters_and_needs_no_second_cleaning(text: str) -> None:
    cleaned = safe(text)
    assert all(unicodedata.category(char)[0] not in "CZ" or char == " " for char in cleaned)
    assert safe(cleaned) == cleaned
    cleaned.encode()


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126)))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert safe(text) == text


def test_markup_in_a_name_is_only_text() -> None:
    assert shown("[red]x[/red] :smile:").plain == "[red]x[/red] :smile:"
    assert shown("[red]x[/red]").spans == []


@given(
    st.recursive(st.none() | ANYTHING | WILD, lambda leaf: st.dictionaries(ANYTHING, leaf) | st.lists(leaf))
)
@example(["\x7f", {"\x9b": "\u202e"}])
def test_json_says_the_same_and_nothing_that_a_terminal_obeys(value: object) -> None:
    written = as_json(value)
    assert json.loads(written) == value
    assert all(char == "\n" or 32 <= ord(char) < 127 for char in written)
    assert "\n" not in as_json(value, indent=None)
