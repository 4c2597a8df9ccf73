"""Which characters a name may have."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from gpuherd.contract.body_models import has_control_characters
from gpuherd.contract.launch_models import LaunchBody
from gpuherd.domain.errors import InvalidRequest
from gpuherd.entrypoints.body_problems import validate_body
from tests.entrypoints.http.conftest import GOOD

CONTROL = ("Cc", "Cs", "Zl", "Zp")


def test_control_characters_are_those_that_unicode_calls_so() -> None:
    every = [chr(code) for code in range(sys.maxunicode + 1)]
    found = [char for char in every if has_control_characters(char)]
    assert found == [char for char in every if unicodedata.category(char) in CONTROL]


@pytest.mark.parametrize("field", ["name", "productName", "templateId"])
@pytest.mark.parametrize("char", ["\x00", "\n", "\x1b", "\x7f", "\x9f", "\u2028", "\u2029"])
def test_a_word_with_a_control_character_is_refused(field: str, char: str) -> None:
    with pytest.raises(InvalidRequest, match="control characters"):
        validate_body(LaunchBody, {**GOOD, field: f"a{char}b"})
