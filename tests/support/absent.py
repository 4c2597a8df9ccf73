"""A port that a test does without."""

from __future__ import annotations

from typing import Any


class Absent:
    """Stands where the wiring wants something that is never asked here; to ask it fails the test."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        raise AssertionError(f"there is no {self._name} here to ask for {attribute}")
