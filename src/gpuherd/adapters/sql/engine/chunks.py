"""Cuts what is too long for one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

PARAMETERS_MAX = 500


def chunks(items: Sequence[T]) -> list[Sequence[T]]:
    """Cut a long list: databases limit the number of parameters of one statement."""
    return [items[start : start + PARAMETERS_MAX] for start in range(0, len(items), PARAMETERS_MAX)]
