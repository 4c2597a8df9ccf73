"""Another account in the place of ours, and ids that are used again: what those guards are for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuherd.usecases.cloud.guard_creates import AccountGuard, VanishingBrake
from gpuherd.usecases.reconcile import adopt_machine, verify_machine
from proof.chaos.cloud.account_swap import SwapKind
from proof.chaos.report import run_seed, run_seeds
from proof.chaos.schedules import draw_schedule
from tests.proof.chaos.test_schedules import explain

SEEDS = 60
# Enough that a guard which is gone is missed: that of the key strikes in one of thirty.
STORMS = 110
MUTANT_SEEDS = 40


def seeds_with(kind: SwapKind) -> list[int]:
    swaps = ((seed, draw_schedule(seed, "accounts").account_swap) for seed in range(MUTANT_SEEDS))
    return [seed for seed, swap in swaps if swap is not None and swap.kind is kind]


def rules_broken(seeds: list[int], profile: str) -> Iterator[str]:
    """Play one after the other; whoever has seen enough stops."""
    return (violation.rule for seed in seeds for _, violation in run_seed(seed, profile)[0].violations)


def test_while_another_account_is_shown_nobody_is_told_a_loss_and_nothing_is_done() -> None:
    report = run_seeds(range(STORMS), "accounts")
    assert not report.violations, explain(report)
    assert report.overlapping == 0
    assert report.coverage["account doubted"] > 0
    assert report.coverage["loss of a herd held"] > 0
    assert report.success_share > 0.8


def test_a_key_that_is_believed_at_once_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def always(_: object) -> bool:
        return True

    monkeypatch.setattr(AccountGuard, "is_confirmed", always)
    assert "I24 account" in rules_broken(seeds_with(SwapKind.OTHER_KEY), "accounts")


def test_a_missing_brake_on_vanishing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> bool:
        return False

    monkeypatch.setattr(VanishingBrake, "holds", never)
    assert "I24 account" in rules_broken(seeds_with(SwapKind.MIXED_UP), "accounts")


def test_who_takes_the_next_machine_of_an_id_for_its_own_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_machine, "is_machine_of_other_call", lambda *_: False)
    reusing = [seed for seed in range(SEEDS) if draw_schedule(seed, "late").id_reuse.probability > 0]
    assert any(rules_broken(reusing, "late"))


def test_a_late_machine_that_nobody_takes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [
        seed
        for seed in range(SEEDS)
        if "late_machine_wanted" in draw_schedule(seed, "late").fault_plan.active_faults
    ]
    assert run_seeds(wanted, "late").coverage["late machine of a given-up call taken"] > 0
    monkeypatch.setattr(adopt_machine, "_late_machine", lambda *_: None)
    assert not run_seeds(wanted, "late").coverage["late machine of a given-up call taken"]
