"""What ends by itself, in storms: and each check notices when what it is about is taken away."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from gpuherd.domain.errors import Conflict
from gpuherd.domain.instance import idleness, scheduled_end
from gpuherd.domain.money.budget import AtLimit
from gpuherd.usecases.instances import change_lease
from gpuherd.usecases.reconcile import reconcile_instance, watch_idleness
from gpuherd.usecases.reconcile.clock_steps import ClockStepDetector
from gpuherd.usecases.reconcile.command_machine import RepeatedRequests
from gpuherd.usecases.reconcile.reconcile_context import Pause
from proof.chaos.report import Report, run_seed, run_seeds
from proof.chaos.schedules import Schedule, draw_schedule
from tests.support.memory.jobs import jobs as memory_jobs

Patch = pytest.MonkeyPatch

SEEDS = 25
CALM_SEEDS = 8
MUTANT_SEEDS = 400


def explain(report: Report) -> str:
    return "\n".join(f"SEED={seed} --profile {report.profile}: {it}" for seed, it in report.violations)


@pytest.mark.parametrize(("profile", "seeds"), [("ends", SEEDS), ("ends_calm", CALM_SEEDS)])
def test_no_storm_makes_anything_end_too_early_or_too_late(profile: str, seeds: int) -> None:
    report = run_seeds(range(seeds), profile)
    assert not report.violations, explain(report)
    assert report.coverage["lease ended"] + report.coverage["ended by a budget"] > 0


def test_what_the_collector_holds_back_for_a_person_is_not_held_against_a_budget() -> None:
    # Lists were empty for so long that deletes were believed; then three machines at once were nobody's.
    report = run_seeds([149], "ends")
    assert not report.violations, explain(report)
    assert report.coverage["collector braked"]


def end_at_the_warning(patch: Patch) -> None:
    real = scheduled_end._lease_end

    def early(it: scheduled_end.Situation, now: Any) -> Any:
        return real(it, now + timedelta(seconds=5))

    patch.setattr(scheduled_end, "_lease_end", early)


def sleep_through_the_end(patch: Patch) -> None:
    patch.setattr(memory_jobs, "_is_due", lambda *_: False)


def believe_the_wall_clock(patch: Patch) -> None:
    patch.setattr(ClockStepDetector, "ahead_since", lambda *_: timedelta(0))


def refuse_every_extension(patch: Patch) -> None:
    def refuse(_: object) -> None:
        raise Conflict("it has ended", code="LEASE_ENDED")

    patch.setattr(change_lease, "_refuse_ended", refuse)


def do_not_listen(patch: Patch) -> None:
    real = scheduled_end.silent_at

    def deaf(terms: Any, it: Any) -> Any:
        at = real(terms, it)
        return None if at is None else at - timedelta(seconds=30)

    patch.setattr(scheduled_end, "silent_at", deaf)


def believe_what_was_written_down(patch: Patch) -> None:
    patch.setattr(RepeatedRequests, "without_lost_request", lambda _self, it: it)


def never_ask_for_a_stop(patch: Patch) -> None:
    async def wait(_: Any) -> Pause:
        return Pause(timedelta(seconds=30))

    patch.setattr(reconcile_instance, "request_stop", wait)


def overlook_what_is_missing(patch: Patch) -> None:
    """A look that finds any idle sample takes the whole time for idle."""
    real = idleness.use_of

    def use_of(samples: Any, rule: Any, gpu_num: int, now: Any) -> Any:
        found = real(samples, rule, gpu_num, now)
        return idleness.MachineUse(rule.window, found.busy_at) if found.quiet_for else found

    patch.setattr(watch_idleness, "use_of", use_of)


def without_the_brake(patch: Patch) -> None:
    async def may_end(_: Any, looks: watch_idleness.Looks) -> frozenset[str]:
        return frozenset(it.id for it, _ in looks.over)

    patch.setattr(watch_idleness, "_may_end", may_end)


def forget_those_that_ended(patch: Patch) -> None:
    real = watch_idleness._still_counting

    def still_counting(*args: Any, **named: Any) -> Any:
        return {key: it for key, it in real(*args, **named).items() if not it.has_ended}

    patch.setattr(watch_idleness, "_still_counting", still_counting)


def never_used_up(patch: Patch) -> None:
    patch.setattr("gpuherd.domain.money.budget.is_used_up", lambda *_: False)


def accept_everything(patch: Patch) -> None:
    patch.setattr("tests.support.memory.budget_sums.judge", lambda *_: None)


def end_nothing(patch: Patch) -> None:
    patch.setattr(reconcile_instance, "budget_end", lambda *_: None)


@pytest.mark.long
@pytest.mark.parametrize(
    ("remove_safeguard", "rule"),
    [
        (end_at_the_warning, "I16 lease"),
        (sleep_through_the_end, "I16 lease"),
        (believe_the_wall_clock, "I16 lease"),
        (refuse_every_extension, "I16 lease"),
        (do_not_listen, "I16 silence"),
        (believe_the_wall_clock, "I16 stopped"),
        (believe_what_was_written_down, "I16 asked"),
        (never_ask_for_a_stop, "I16 asked"),
        (overlook_what_is_missing, "I19 idle"),
        (without_the_brake, "I19 brake"),
        (forget_those_that_ended, "I19 brake"),
        (never_used_up, "I17 budget"),
        (accept_everything, "I17 budget"),
        (end_nothing, "I17 budget"),
    ],
    ids=lambda it: getattr(it, "__name__", it),
)
def test_a_missing_guard_of_the_ends_is_noticed(
    monkeypatch: Patch, remove_safeguard: Callable[[Patch], None], rule: str
) -> None:
    remove_safeguard(monkeypatch)
    about = [seed for seed in range(MUTANT_SEEDS) if is_about(draw_schedule(seed, "ends"), rule)]
    found = (run_seed(seed, "ends")[0].violations for seed in about)
    assert any(violation.rule == rule for violations in found for _, violation in violations)


def is_about(schedule: Schedule, rule: str) -> bool:
    """Tell whether a schedule has what a rule is about; others are only slower."""
    terms = [it.terms for it in schedule.ops]
    match rule:
        case "I17 budget":
            return any(it.at_limit in (AtLimit.STOP, AtLimit.DELETE) for it in schedule.ends.budgets)
        case "I19 brake":
            return schedule.ends.zeros is not None
        case "I19 idle":
            return any(it.idle is not None for it in terms)
        case "I16 silence":
            return any(it.silence is not None for it in terms)
        case _:
            return any(it.lease is not None for it in terms)
