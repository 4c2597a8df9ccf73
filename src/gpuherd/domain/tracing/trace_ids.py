"""The ids of traces and spans, made from ids that are stored anyway: no context is kept or passed on."""

from __future__ import annotations

from hashlib import blake2b

from gpuherd.clock import ulid_number

TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8


def trace_id_of(subject: str) -> int:
    """Return the id of the trace about a subject: the 128 bits of its ULID."""
    number = ulid_number(subject.rpartition("_")[2])
    # An id of another form has a trace as well; and zero is none.
    return number or _hashed(subject, TRACE_ID_BYTES)


def root_span_id_of(subject: str) -> int:
    """Return the id of the span that all others of the trace hang on."""
    return single_span_id_of(subject, "")


def single_span_id_of(subject: str, name: str) -> int:
    """Return the id of the one span of this name in a trace."""
    return _hashed(f"{subject} {name}", SPAN_ID_BYTES)


def _hashed(text: str, size: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "big") or 1
