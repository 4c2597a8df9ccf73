"""One life from create to delete, killed at its points: a share of them here, all by `proof.chaos points`."""

from __future__ import annotations

import pytest

from proof.chaos.crash_points import FAULTS, Run, double_crashes, failures, single_crashes
from proof.chaos.runner import silence_logs

# Coprime with the length of any loop in the story, so that the share is spread over all kinds of points.
STRIDE = 17
PAIR_STRIDE = 61


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence_logs()


def test_the_story_without_deaths_is_clean_and_long_enough_to_be_of_interest() -> None:
    run = Run()
    assert run.violations() == []
    assert run.points[0] > 100
    assert run.evidence.crashes == 0


@pytest.mark.proves("F1")
def test_a_death_breaks_no_promise() -> None:
    assert failures(single_crashes("none")[::3]) == []


@pytest.mark.proves("F35")
@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "none"])
def test_a_death_under_a_fault_breaks_no_promise(fault: str) -> None:
    cases = single_crashes(fault)
    assert failures(cases[:: max(STRIDE, len(cases) // 14)]) == []


@pytest.mark.proves("F35")
def test_a_second_death_breaks_no_promise_either() -> None:
    pairs = [pair for case in single_crashes("none")[::PAIR_STRIDE] for pair in double_crashes(case[1][0])]
    assert failures(pairs[::STRIDE]) == []
