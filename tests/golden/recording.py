"""Recordings: readable text from which the exact bytes follow, compared with what happens now."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuherd import __version__

RECORDED = Path(__file__).with_name("recorded")
# `write` records anew; anything else compares.
MODE = "GPUHERD_GOLDEN"
DIFF_LINES_MAX = 200
# How JSON comes over the wire: whichever of these makes the same bytes again is named in the recording.
JSON_FORMS: dict[str, dict[str, Any]] = {
    "compact JSON": {"separators": (",", ":"), "ensure_ascii": False},
    "spaced JSON": {"ensure_ascii": False},
}
# Longer bodies are there for their length alone.
BODY_CHARS_MAX = 100_000


def with_placeholders(text: str) -> str:
    """Replace what varies by nature: ports, directories and times of this run, sizes, our version."""
    text = re.sub(r"127\.0\.0\.1:\d{5}", "127.0.0.1:<port>", text)
    text = re.sub(r"/tmp/golden-\w{8}", "<directory>", text)
    # Of a backup: it follows the schema.
    text = re.sub(r'"sizeBytes": \d+,\n  "schema"', '"sizeBytes": <size>,\n  "schema"', text)
    text = re.sub(r"\.replaced-\d{8}T\d{6}Z", ".replaced-<time>", text)
    return text.replace(f"gpuherd/{__version__}", "gpuherd/<version>").replace(
        f"gpuherd {__version__}", "gpuherd <version>"
    )


class Recording:
    """What happened in one story, in order."""

    def __init__(self, subject: str) -> None:
        self._path = RECORDED / f"{subject}.txt"
        self._lines: list[str] = []

    def heading(self, title: str) -> None:
        """Begin the next thing that happened."""
        self.add("", f"=== {title}") if self._lines else self.add(f"=== {title}")

    def add(self, *lines: str) -> None:
        self._lines += lines

    def add_body(self, body: bytes) -> None:
        self.add(*body_lines(body))

    def compare(self) -> None:
        """Fail with a diff if it is not as it was recorded; with GPUHERD_GOLDEN=write record it."""
        now = with_placeholders("\n".join(self._lines) + "\n")
        if os.environ.get(MODE) == "write":
            self._path.write_text(now, encoding="utf-8", newline="")
            return
        before = self._path.read_bytes().decode() if self._path.exists() else ""
        if now != before:
            pytest.fail(_difference(self._path.name, before, now), pytrace=False)


def body_lines(body: bytes) -> list[str]:
    """Return a body as lines: JSON is spread out for reading, behind the name of the form that it came in."""
    if not body:
        return ["(no body)"]
    text = body.decode("utf-8", "backslashreplace")
    if len(text) > BODY_CHARS_MAX:
        return [f"(text of {len(text)} characters, all of them {sorted(set(text))})"]
    try:
        value = json.loads(text)
    except ValueError:
        return ["(text)", *text.replace("\r", "␍").split("\n")]
    for name, form in JSON_FORMS.items():
        if json.dumps(value, **form) == text:
            return [f"({name})", *json.dumps(value, indent=2, ensure_ascii=False).split("\n")]
    return ["(text)", *text.split("\n")]


def header_lines(mark: str, headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> list[str]:
    """Return headers, one a line, by name: their order means nothing."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [f"{mark} {name.lower()}: {value}" for name, value in sorted(pairs)]


def _difference(name: str, before: str, now: str) -> str:
    lines = list(
        difflib.unified_diff(before.split("\n"), now.split("\n"), f"recorded/{name}", "now", lineterm="", n=6)
    )
    rest = len(lines) - DIFF_LINES_MAX
    shown = lines[:DIFF_LINES_MAX] + ([f"… and {rest} more lines"] if rest > 0 else [])
    advice = f"if this is meant: {MODE}=write pytest tests/golden"
    return "\n".join((f"{name} is not as it was recorded; {advice}", *shown))
