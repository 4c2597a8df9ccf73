"""Idleness takes evidence for the whole time; whatever is not known counts as use."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuherd.domain.instance.idleness import (
    READY_GRACE,
    RETRY_AFTER,
    SAMPLES_MAX,
    UNKNOWN_USE,
    AppAnswer,
    CloudTime,
    MachineUse,
    UseWatch,
    Utilization,
    after_answer,
    are_late,
    asked_span,
    first_end,
    judge,
    latest_cloud_time,
    must_read_samples,
    next_look,
    sample_interval,
    use_of,
    warning_lead,
)
from gpuherd.domain.instance.lease import ActivityCheck, Idleness

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RULE = Idleness(1800)
ASKING = replace(RULE, activity=ActivityCheck(8080))
LONG_AGO = NOON - timedelta(days=1)


def quiet(minutes: int = 40, newest: datetime = NOON - MINUTE, gpus: int = 1) -> list[Utilization]:
    return [Utilization(newest - n * MINUTE, (0.0,) * gpus, 1.0) for n in range(minutes + 1)]


def quiet_for(samples: list[Utilization], gpu_num: int = 1) -> timedelta:
    return use_of(samples, RULE, gpu_num, NOON).quiet_for


def test_samples_without_use_and_without_a_gap_are_evidence() -> None:
    found = use_of(quiet(40), RULE, 1, NOON)
    assert found == MachineUse(40 * MINUTE, None, NOON - 41 * MINUTE, NOON - MINUTE)


def test_the_beginning_of_idleness_is_seen_where_the_sample_before_shows_use() -> None:
    samples = quiet(40)
    samples[30] = replace(samples[30], gpus=(99.0,))
    found = use_of(samples, RULE, 1, NOON)
    assert found.is_beginning_seen and found.quiet_from == samples[29].at
    # Through a gap nobody sees when it began.
    del samples[29]
    assert not use_of(samples, RULE, 1, NOON).is_beginning_seen


def test_a_beginning_that_was_seen_is_known_while_later_looks_go_on_from_it() -> None:
    began = NOON - 31 * MINUTE
    seen = judged(MachineUse(30 * MINUTE, began - MINUTE, began, NOON - MINUTE, True))
    later = judged(
        MachineUse(30 * MINUTE, None, began + 5 * MINUTE, NOON + 4 * MINUTE), seen, NOON + 5 * MINUTE
    )
    assert (later.quiet_from, later.is_beginning_seen) == (began, True)
    # Nobody looked in between, so it may have been used.
    apart = MachineUse(30 * MINUTE, None, NOON + 5 * MINUTE, NOON + 35 * MINUTE)
    after_a_gap = judged(apart, later, NOON + 36 * MINUTE)
    assert (after_a_gap.quiet_from, after_a_gap.is_beginning_seen) == (NOON + 5 * MINUTE, False)
    assert judged(MachineUse(busy_at=NOON), seen, NOON + MINUTE).quiet_from is None


@pytest.mark.proves("E5")
@pytest.mark.parametrize("n", [0, 1, 15, 39])
def test_one_missing_sample_ends_the_evidence(n: int) -> None:
    samples = quiet(40)
    del samples[n]
    # Without the newest one the rest is as good as before; a hole inside cuts everything older off.
    assert quiet_for(samples) == (39 * MINUTE if n == 0 else (n - 1) * MINUTE)


@pytest.mark.parametrize(
    "busy", [{"gpus": (5.0,)}, {"cpu": 10.0}, {"gpus": ()}, {"gpus": (0.0, 0.0)}, {"gpus": (99.0,)}]
)
@pytest.mark.parametrize("n", [0, 1, 20])
def test_one_busy_sample_ends_the_evidence(n: int, busy: dict[str, Any]) -> None:
    samples = quiet(40)
    samples[n] = replace(samples[n], **busy)
    found = use_of(samples, RULE, 1, NOON)
    assert found.quiet_for == max(n - 1, 0) * MINUTE
    assert found.busy_at == samples[n].at


def test_one_busy_gpu_of_several_is_use() -> None:
    samples = quiet(40, gpus=2)
    assert quiet_for(samples, gpu_num=2) == 40 * MINUTE
    samples[0] = replace(samples[0], gpus=(0.0, 50.0))
    assert quiet_for(samples, gpu_num=2) == timedelta(0)


@pytest.mark.proves("E5")
@pytest.mark.parametrize("off", [timedelta(minutes=6), timedelta(minutes=-6), timedelta(hours=1)])
def test_samples_that_do_not_fit_our_clock_say_nothing(off: timedelta) -> None:
    assert use_of(quiet(newest=NOON + off), RULE, 1, NOON) == UNKNOWN_USE
    assert use_of(quiet(newest=NOON - off), RULE, 1, NOON) == UNKNOWN_USE
    assert use_of([], RULE, 1, NOON) == UNKNOWN_USE


def test_samples_that_are_late_by_the_cloud_s_clock_do_not_look_fresh_by_ours() -> None:
    """Our clock was set back by ten minutes after the metrics of another machine had come."""
    seen = latest_cloud_time(None, NOON + 9 * MINUTE, uptime_s=100.0)
    late = quiet(newest=NOON - MINUTE)
    assert use_of(late, RULE, 1, NOON) != UNKNOWN_USE
    assert are_late(late, seen, 160.0)
    # An older sample does not set the cloud's clock back, and a later one sets it ahead.
    assert latest_cloud_time(seen, late[0].at, 160.0) == seen
    fresh = quiet(newest=NOON + 10 * MINUTE)
    assert latest_cloud_time(seen, fresh[0].at, 160.0) == CloudTime(fresh[0].at, 160.0)
    assert not are_late(fresh, seen, 160.0)


def test_a_clock_that_was_ahead_and_set_right_makes_samples_late_for_an_hour_only() -> None:
    ahead = latest_cloud_time(None, NOON + timedelta(hours=2), 0.0)
    assert latest_cloud_time(ahead, NOON, 3600.0) == ahead
    assert latest_cloud_time(ahead, NOON, 3601.0) == CloudTime(NOON, 3601.0)


def test_samples_are_asked_for_beyond_now_so_that_a_clock_that_is_behind_shows() -> None:
    begin, end = asked_span(RULE, NOON)
    assert begin < NOON - RULE.window - 5 * MINUTE
    assert end > NOON + 5 * MINUTE


def test_of_a_long_time_no_more_samples_are_asked_for_than_fit() -> None:
    week = Idleness(7 * 86_400)
    assert sample_interval(RULE) == MINUTE
    assert week.window / sample_interval(week) <= SAMPLES_MAX


def test_nothing_ends_before_it_could_be_used_for_long_enough() -> None:
    short = Idleness(300)
    assert first_end(short, NOON, None) == NOON + READY_GRACE
    assert first_end(RULE, NOON, None) == NOON + RULE.window
    assert first_end(RULE, NOON, NOON + MINUTE) == NOON + MINUTE + RULE.window
    assert next_look(RULE, None, NOON, None) == NOON + RULE.window - warning_lead(RULE)
    assert next_look(ASKING, None, NOON, None) == NOON
    used = NOON + timedelta(hours=1)
    assert next_look(RULE, UseWatch(NOON, NOON), NOON, used) == used + RULE.window - warning_lead(RULE)


def judged(use: MachineUse | None, watch: UseWatch | None = None, now: datetime = NOON) -> UseWatch:
    return judge(RULE, watch, use, LONG_AGO, now)


def test_an_end_is_announced_before_it_comes() -> None:
    warned = judged(MachineUse(40 * MINUTE))
    assert (warned.warned, warned.is_over, warned.ends_at) == (True, False, NOON + 5 * MINUTE)
    early = judged(MachineUse(41 * MINUTE), warned, NOON + MINUTE)
    assert not early.is_over, "not before the end that was announced"
    over = judged(MachineUse(45 * MINUTE), warned, NOON + 5 * MINUTE)
    assert over.is_over


def test_an_announced_end_is_withdrawn_by_use_and_by_not_knowing() -> None:
    warned = judged(MachineUse(40 * MINUTE))
    later = NOON + 5 * MINUTE
    busy = judged(MachineUse(timedelta(0), later - MINUTE), warned, later)
    assert (busy.warned, busy.ends_at, busy.busy_at) == (False, None, later - MINUTE)
    for nothing in (None, UNKNOWN_USE):
        unknown = judged(nothing, warned, later)
        assert (unknown.warned, unknown.is_over, unknown.look_at) == (False, False, later + RETRY_AFTER)


def test_use_within_the_time_ends_nothing() -> None:
    warned = judged(MachineUse(40 * MINUTE))
    short = judged(MachineUse(29 * MINUTE), warned, NOON + 5 * MINUTE)
    assert not short.is_over


def test_the_next_look_is_when_it_could_be_idle() -> None:
    busy = judged(MachineUse(timedelta(0), NOON))
    assert busy.look_at == NOON + 25 * MINUTE
    halfway = judged(MachineUse(10 * MINUTE, NOON - 11 * MINUTE))
    assert (halfway.look_at, halfway.ends_at) == (NOON + 15 * MINUTE, NOON + 20 * MINUTE)


def test_before_its_earliest_end_nothing_is_over() -> None:
    warned = judged(MachineUse(40 * MINUTE))
    held = judge(RULE, warned, MachineUse(60 * MINUTE), NOON + timedelta(hours=1), NOON + 5 * MINUTE)
    assert not held.is_over and not held.warned


def test_an_application_that_only_says_that_it_is_idle_must_say_so_all_the_time() -> None:
    idle, watch, now = AppAnswer(is_idle=True), None, NOON
    for _ in range(25):
        watch = after_answer(ASKING, watch, idle, now)
        now = watch.look_at
    assert watch is not None and watch.app_idle_since == NOON
    assert must_read_samples(ASKING, watch, now)
    gap = after_answer(ASKING, watch, idle, now + timedelta(minutes=10))
    assert gap.app_idle_since == now + timedelta(minutes=10)
    back = after_answer(ASKING, watch, idle, now - timedelta(hours=1))
    assert back.app_idle_since == now - timedelta(hours=1), "a clock that was set back begins anew"


def test_an_application_in_use_or_without_an_answer_spares_the_metrics() -> None:
    watch = after_answer(ASKING, UseWatch(NOON, NOON, warned=True, ends_at=NOON), AppAnswer(), NOON)
    assert not must_read_samples(ASKING, watch, NOON + timedelta(days=1))
    assert (watch.warned, watch.ends_at) == (False, None)


def test_an_application_may_say_since_when_it_is_idle() -> None:
    since = NOON - timedelta(minutes=10)
    watch = after_answer(ASKING, None, AppAnswer(idle_since=since), NOON)
    assert (watch.app_idle_since, watch.look_at) == (since, since + timedelta(minutes=25))
    ahead = after_answer(ASKING, None, AppAnswer(idle_since=NOON + timedelta(hours=1)), NOON)
    assert ahead.app_idle_since is None


def test_both_the_application_and_the_machine_must_have_been_idle_for_the_whole_time() -> None:
    watch = UseWatch(NOON, NOON, app_idle_since=NOON - 26 * MINUTE, app_asked_at=NOON)
    found = judge(ASKING, watch, MachineUse(timedelta(hours=2)), LONG_AGO, NOON)
    assert found.ends_at == NOON + 5 * MINUTE


def test_a_watch_is_read_as_it_was_written() -> None:
    for watch in (UseWatch(NOON, NOON), judged(MachineUse(40 * MINUTE, LONG_AGO))):
        assert UseWatch.from_doc(json.loads(json.dumps(watch.as_doc()))) == watch


def test_samples_are_asked_for_from_the_last_that_is_known_but_no_more_than_fit() -> None:
    usual, _ = asked_span(RULE, NOON)
    assert asked_span(RULE, NOON, NOON - 26 * MINUTE)[0] == usual
    assert asked_span(RULE, NOON, NOON - 120 * MINUTE)[0] <= NOON - 120 * MINUTE
    assert asked_span(RULE, NOON, LONG_AGO - 10 * RULE.window)[0] == NOON - SAMPLES_MAX * MINUTE


def test_it_ends_soon_after_the_first_sample_that_shows_the_whole_time_and_never_before(
    subtests: pytest.Subtests,
) -> None:
    """Samples come once a minute, and a minute late."""
    for phase_s in range(0, 60, 7):
        with subtests.test(phase_s=phase_s):
            used_until = NOON + timedelta(seconds=phase_s)
            at, watch, looks = NOON + timedelta(minutes=10, seconds=50), UseWatch(LONG_AGO, LONG_AGO), 0
            while not watch.is_over:
                newest = at.replace(second=0) - MINUTE
                samples = [
                    Utilization(
                        newest - n * MINUTE, (0.0 if newest - n * MINUTE >= used_until else 90.0,), 1.0
                    )
                    for n in range(60)
                ]
                watch = judge(RULE, watch, use_of(samples, RULE, 1, at), LONG_AGO, at)
                looks += 1
                if watch.is_over:
                    break
                at = watch.look_at
            first_quiet = NOON if phase_s == 0 else NOON + MINUTE
            shown_at = first_quiet + RULE.window + MINUTE
            assert timedelta(0) <= at - shown_at <= timedelta(seconds=20)
            assert looks <= 6
