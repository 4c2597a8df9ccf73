"""A secret that comes back in an error is redacted, whole, in each form that it may have."""

from __future__ import annotations

import base64
import html
import json
import re
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.adapters.novita.redaction import (
    NO_SECRETS,
    TEXT_CHARS_MAX,
    WITHHELD,
    CallSecrets,
)
from gpuherd.domain.secret import Secret

PASSWORD = 'pä55 "w/rd"+&<Q>'
CALL = CallSecrets((Secret(PASSWORD),))


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_whatever_it_is_written_as_it_is_redacted(subtests: pytest.Subtests) -> None:
    for written in [
        PASSWORD,
        json.dumps(PASSWORD),
        json.dumps(PASSWORD, ensure_ascii=False),
        quote(PASSWORD),
        quote(PASSWORD, safe=""),
        quote_plus(PASSWORD),
        html.escape(PASSWORD),
        base64_of(PASSWORD),
        base64_of(f"u:{PASSWORD}"),
        base64_of(f"us:{PASSWORD}"),
        base64_of(f"use:{PASSWORD}"),
    ]:
        with subtests.test(written=written):
            shown = CALL.redact(f"cannot pull: [{written}] was refused")
            left = re.fullmatch(r"cannot pull: \[(.*)\*\*\*(.*)\] was refused", shown)
            assert left is not None
            # Quotation marks, or the user's name in base64.
            assert len("".join(left.groups())) <= 8


@given(st.text(min_size=4, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_no_secret_of_a_call_is_left_in_its_text(secret: str, before: str, after: str) -> None:
    shown = CallSecrets((Secret(secret),)).redact(f"{before}{secret}{after}")
    assert secret not in shown or not secret.strip("*")


def test_a_text_without_a_secret_stays_as_it_is() -> None:
    said = "INSUFFICIENT_RESOURCE: no RTX 4090 in this cluster"
    assert CALL.redact(said) == said
    assert NO_SECRETS.redact(said) == said


def test_a_secret_at_the_cut_of_a_long_text_leaves_no_half() -> None:
    shown = CALL.redact("x" * (TEXT_CHARS_MAX - 5) + PASSWORD)
    assert shown.rstrip("*") == "x" * (TEXT_CHARS_MAX - 5)


def test_of_environment_variables_short_values_stay() -> None:
    call = NO_SECRETS.with_envs([("HF_TOKEN", "hf_0123456789"), ("MODE", "production"), ("N", "8")])
    assert call.redact("hf_0123456789 in production with 8") == "*** in *** with 8"
    assert call.redact("no such product") == "no such product"


def test_where_a_credential_is_not_known_nothing_is_shown() -> None:
    call = CALL.plus(CallSecrets(has_unknown=True))
    assert call.redact("u:hunter2 may not pull") == WITHHELD
    assert call.redact("") == ""


def test_secrets_do_not_show_themselves() -> None:
    assert PASSWORD not in repr(CALL)
