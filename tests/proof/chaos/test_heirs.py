"""Machines that are taken back in the chaos schedules: one heir for each link, and at rest one or none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuherd.domain.instance.replacement import HeirState, lineage_of
from gpuherd.usecases.reconcile import hand_over_to_replacement
from proof.chaos.report import run_seed, run_seeds

SEEDS = 20
# The search ends with the first storm that shows it.
MUTANT_SEEDS = 300


@pytest.mark.proves("S2")
def test_no_storm_makes_two_of_one_or_leaves_two() -> None:
    report = run_seeds(range(SEEDS), "heirs")
    assert not report.violations, [f"SEED={seed} --profile heirs: {it}" for seed, it in report.violations]
    for it in ("handed over", "heir made by a notice", "heir made by a loss"):
        assert report.coverage[it], "what never happens proves nothing"


async def _always(*_: Any) -> bool:
    return True


def third_machine(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hand_over_to_replacement, "_is_alone", _always)


def retire_early(patch: pytest.MonkeyPatch) -> None:

    def early(*both: Any) -> Any:
        known = lineage_of(*both)
        return replace(known, heir=HeirState.USABLE) if known.heir is HeirState.COMING else known

    patch.setattr(hand_over_to_replacement, "lineage_of", early)


# Storms with three of one lineage are rare: the search begins where one is known.
@pytest.mark.parametrize(("without", "first"), [(third_machine, 230), (retire_early, 0)])
def test_the_check_notices_when_a_guard_is_taken_away(
    without: Any, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch)
    broken = (
        violation.rule
        for seed in range(first, first + MUTANT_SEEDS)
        for _, violation in run_seed(seed, "heirs")[0].violations
    )
    assert next(broken, None) == "I25 lineage"
