"""Each guard fits the source, and what the runner says of a guard can be believed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from proof.chaos.mutants.guard import Guard, Operator, instead, never
from proof.chaos.mutants.guards import GUARDS
from proof.chaos.mutants.runner import (
    ROOT,
    BrokenGuardError,
    StaleGuardError,
    Verdict,
    find_markers,
    run_without,
    source_without,
    verdict_of,
)

# Among the fastest. `python -m proof.chaos.mutants` tries all guards.
SAMPLE = ("the brake", "three clean lists", "a server error is no clear no")
BRAKE = "losses that another replica has just believed count for the brake"


def missing_tests(guard: Guard) -> list[str]:
    missing = []
    for test in guard.tests:
        path, *names = test.split("::")
        content = (ROOT / path).read_text() if (ROOT / path).exists() else ""
        if not content or any(f"def {it}(" not in content and f"class {it}" not in content for it in names):
            missing.append(test)
    return missing


def test_each_guard_has_one_marker_and_fits_the_statement_below_and_its_tests_exist() -> None:
    markers = find_markers()
    problems = [
        f"no guard has the name of the marker: {it}" for it in markers.keys() - {g.name for g in GUARDS}
    ]
    problems += [
        f"two guards have this name: {it}" for it, n in Counter(g.name for g in GUARDS).items() if n > 1
    ]
    for guard in GUARDS:
        try:
            source_without(guard, markers)
        except (StaleGuardError, BrokenGuardError) as error:
            problems.append(f"{guard.name}: {error}")
        problems += [f"{guard.name}: there is no test {it}" for it in missing_tests(guard)]
        if not guard.tests:
            problems.append(f"{guard.name}: it names no test")
    assert problems == []


@pytest.mark.parametrize(
    ("operator", "error"),
    [
        (instead("lately = bound.lost"), BrokenGuardError),
        (instead("lately = ["), BrokenGuardError),
        (instead("lately = await self._believed_lately(now)"), StaleGuardError),
        (never(), StaleGuardError),
    ],
)
def test_code_that_cannot_run_or_changes_nothing_proves_nothing(
    operator: Operator, error: type[Exception]
) -> None:
    with pytest.raises(error):
        source_without(Guard(BRAKE, operator, ()), find_markers())


def test_a_crash_in_the_edited_file_is_no_proof() -> None:
    guard, edited = Guard("it", never(), ()), Path("/copy/rent.py")
    said = {
        "/tests/test_rent.py:7: AssertionError: 2 machines": Verdict.CAUGHT,
        "/copy/rent.py:7: AttributeError: no 'id'": Verdict.CRASHED,
        "/copy/other.py:7: AttributeError: no 'id'": Verdict.CAUGHT,
        "/copy/rent.py:7: NameError: name 'bound' is not defined": Verdict.BROKEN,
    }
    assert {it: verdict_of(guard, 1, it, edited) for it in said} == said
    assert verdict_of(guard, 0, "", edited) is Verdict.MISSED
    assert verdict_of(guard, 2, "", edited) is Verdict.BROKEN
    accepted = Guard("it", never(), (), crashes=True)
    assert verdict_of(accepted, 1, "/copy/rent.py:7: TypeError: no", edited) is Verdict.CAUGHT


@pytest.mark.long
@pytest.mark.parametrize("name", SAMPLE)
def test_without_it_a_test_fails(name: str, tmp_path: Path) -> None:
    (guard,) = [it for it in GUARDS if it.name == name]
    verdict, said = run_without(guard, find_markers(), tmp_path)
    assert verdict is Verdict.CAUGHT, said
