"""Each row of the page of guarantees is proven by a test, or the page says that it is open."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAULTS = {f"F{n}" for n in range(1, 61)}
WINDOWS = {f"R{n}" for n in range(1, 9)}
# No test can see a machine that the cloud never lists.
UNPROVEN = {"R8"}
ROW = re.compile(r"^\| ([A-Z]\d+) \|(.*)\|$", re.MULTILINE)
MARK = re.compile(r"^\s*@pytest\.mark\.proves\(([^)]*)\)", re.MULTILINE)


def test_each_row_is_proven_or_open_and_each_mark_names_a_row() -> None:
    rows = {it[1]: it[2] for it in ROW.finditer((ROOT / "docs" / "guarantees.md").read_text())}
    marks = [
        found for path in (ROOT / "tests").rglob("test_*.py") for found in MARK.findall(path.read_text())
    ]
    proven = {row for mark in marks for row in re.findall(r"[A-Z]\d+", mark)}
    open_rows = {number for number, text in rows.items() if "**Open" in text or "**Later" in text}
    assert rows.keys() >= FAULTS | WINDOWS
    assert proven - rows.keys() == set(), "a mark names no row"
    assert rows.keys() - proven - open_rows - UNPROVEN == set(), "no test proves this row"
