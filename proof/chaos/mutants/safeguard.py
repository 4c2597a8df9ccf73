"""A safeguard of the service, and what it looks like without."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Safeguard:
    """An exact text in one file of the service, and what takes its place."""

    name: str
    file: str
    text: str
    without: str
    # pytest's words: files, or single tests.
    tests: tuple[str, ...]
    # Most are shown faster without a server; some are only there with one.
    is_of_postgres: bool = False
