"""JSON as it is sent and stored: what the fast encoder writes is what the standard library would."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.adapters.sql.engine.columns import dumps
from gpuherd.usecases.compact_json import compact

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.none() | st.booleans() | st.integers() | TEXT | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20)


@given(VALUES)
def test_a_value_is_written_without_blanks_and_reads_back_as_it_was(value: Any) -> None:
    assert json.loads(compact(value)) == value
    assert compact(value).decode() == dumps(value)


@given(st.dictionaries(TEXT, TEXT | st.integers() | st.booleans() | st.none() | st.lists(TEXT)))
def test_the_bytes_are_those_of_the_standard_library(value: dict[str, Any]) -> None:
    assert dumps(value) == json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def test_half_a_character_is_refused_and_not_stored() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        dumps({"name": "\ud800"})
