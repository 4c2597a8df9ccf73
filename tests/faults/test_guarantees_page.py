"""The page of guarantees names every fault, and only tests that exist: it cannot rot unnoticed."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
FAULTS, WINDOWS = range(1, 61), range(1, 9)

ROW = re.compile(r"^\| (?P<mark>[FR])(?P<number>\d+) \|(?P<rest>.*)\|$", re.MULTILINE)
PROOF = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
HERE = re.compile(r"test_f(\d+)_\w+")


def rows(mark: str) -> list[tuple[int, str]]:
    return [(int(it["number"]), it["rest"]) for it in ROW.finditer(PAGE) if it["mark"] == mark]


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the tests of a file, read and not run."""
    tree = ast.parse(path.read_text())
    found = [it.name for it in ast.walk(tree) if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(name for name in found if name.startswith("test_"))


def test_every_fault_and_every_window_has_one_row() -> None:
    assert [number for number, _ in rows("F")] == list(FAULTS)
    assert [number for number, _ in rows("R")] == list(WINDOWS)


@pytest.mark.parametrize(("number", "row"), rows("F"), ids=lambda it: f"F{it}" if isinstance(it, int) else "")
def test_a_fault_is_proven_or_said_to_be_open(number: int, row: str) -> None:
    cells = [cell.strip() for cell in row.split("|")]
    assert len(cells) == 3, "fault, what gpuherd does, proof"
    assert all(cells[:2])
    assert PROOF.search(cells[2]) or "**Open" in row or "**Later" in row


@pytest.mark.parametrize(("path", "name"), sorted(set(PROOF.findall(PAGE))))
def test_a_test_that_is_named_exists(path: str, name: str) -> None:
    assert (ROOT / path).is_file(), path
    assert name in names_in(ROOT / path)


def test_nothing_that_looks_like_a_proof_is_misspelt() -> None:
    assert PAGE.count("::test_") == len(PROOF.findall(PAGE))


def test_every_test_of_a_fault_stands_in_its_row() -> None:
    by_number = dict(rows("F"))
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for name in names_in(path):
            if match := HERE.fullmatch(name):
                assert f"::{name}`" in by_number[int(match[1])], name
