"""Every guard is where it was, and the proof that it is needed can be repeated."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from proof.chaos.mutants.guards import GUARDS
from proof.chaos.mutants.runner import ROOT, Verdict, applies, run_mutant
from proof.chaos.mutants.safeguard import Safeguard

# One from each part of the code, among the fastest; `python -m proof.chaos.mutants` tries them all.
SAMPLE = ("the brake", "three clean lists", "a server error is no clear no")


@pytest.mark.parametrize("guard", GUARDS, ids=lambda it: it.name)
def test_a_guard_is_where_it_was_and_its_tests_exist(guard: Safeguard) -> None:
    assert applies(guard), f"{guard.file} has changed: bring proof/chaos/mutants/guards.py up to date"
    assert guard.text != guard.without
    assert guard.tests
    for test in guard.tests:
        path, *names = test.split("::")
        content = (ROOT / path).read_text()
        for name in names:
            assert f"def {name}(" in content or f"class {name}" in content, test


def test_names_are_told_apart() -> None:
    assert max(Counter(it.name for it in GUARDS).values()) == 1


@pytest.mark.long
@pytest.mark.parametrize("name", SAMPLE)
def test_without_it_a_test_fails(name: str, tmp_path: Path) -> None:
    (guard,) = [it for it in GUARDS if it.name == name]
    verdict, said = run_mutant(guard, tmp_path)
    assert verdict is Verdict.CAUGHT, said
