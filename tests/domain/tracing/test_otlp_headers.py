"""Headers for the receiver of traces: the form that OpenTelemetry gave them."""

from __future__ import annotations

import pytest

from gpuherd.domain.trace_spans import otlp_headers

CANARY = "canary-token"


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("", {}),
        ("authorization=Bearer%20abc", {"authorization": "Bearer abc"}),
        ("Api-Key=a=b==, x-team = gpu ,", {"api-key": "a=b==", "x-team": "gpu"}),
    ],
)
def test_names_and_values_are_read(text: str, headers: dict[str, str]) -> None:
    assert otlp_headers(text) == headers


def test_what_is_no_header_is_refused_without_being_told(subtests: pytest.Subtests) -> None:
    for text in [CANARY, f"a b={CANARY}", f"={CANARY}", f"a={CANARY}%0d%0aHost:%20x", f"a={CANARY}é"]:
        with subtests.test(text=text):
            with pytest.raises(ValueError, match="name=value") as refused:
                otlp_headers(text)
            assert CANARY not in str(refused.value)
