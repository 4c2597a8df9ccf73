"""The guards of the ends: nothing ends before its time, nor while anybody uses it, or may."""

from __future__ import annotations

from proof.chaos.mutants.safeguard import Safeguard

ENDING = "tests/domain/endings/test_ending.py"
IDLENESS = "tests/domain/endings/test_idleness.py"
BRAKE = "tests/domain/endings/test_idle_brake.py"
ENDINGS = "tests/usecases/reconcile/test_endings.py"
STORE = "tests/contracts/instances/test_endings_contract.py"
ON_THE_WAY = "tests/usecases/reconcile/test_endings_on_the_way.py"
WATCH = "tests/usecases/idleness/test_watch.py"
_IDLENESS_FILE = "domain/endings/idleness.py"
_ENDING_FILE = "domain/endings/ending.py"
_BRAKE_FILE = "domain/endings/idle_brake.py"

ENDS = (
    Safeguard(
        "no lease ends before its end",
        _ENDING_FILE,
        "    if term is None or term.ended or now < term.ends_at:\n",
        "    if term is None or term.ended or now < term.warn_at:\n",
        (f"{ENDING}::test_a_lease_ends_at_its_end_and_not_a_microsecond_before",),
    ),
    Safeguard(
        "a lease ends once",
        _ENDING_FILE,
        "    if term is None or term.ended or now < term.ends_at:\n",
        "    if term is None or now < term.ends_at:\n",
        (ENDING,),
    ),
    Safeguard(
        "a clock that is set ahead ends no lease",
        "usecases/reconcile/advance.py",
        "        moved = it.lease_term.moved(step, self.clock.now())\n",
        "        moved = it.lease_term\n",
        (f"{ENDINGS}::test_a_clock_that_is_set_ahead_ends_no_lease",),
    ),
    Safeguard(
        "a clock that is set back takes no more of a lease than it has moved",
        "usecases/reconcile/advance.py",
        "        return max(timedelta(0), min(move.by, move.total - self.lease_clock_steps.total()))\n",
        "        return max(timedelta(0), move.total - self.lease_clock_steps.total())\n",
        (f"{ENDINGS}::test_a_clock_that_is_set_further_back_takes_no_more_of_a_lease_than_it_has_moved",),
    ),
    Safeguard(
        "an end that was agreed on anew is not moved back",
        "usecases/reconcile/advance.py",
        "        if move is None or not move.is_of(term):\n",
        "        if move is None:\n",
        (f"{ENDINGS}::test_a_clock_that_is_set_further_back_takes_no_more_of_a_lease_than_it_has_moved",),
    ),
    Safeguard(
        "an end is not slept through",
        "adapters/sql/jobs/store.py",
        'instance.c.settled, instance.c.due_at <= sa.bindparam("now"))',
        'instance.c.settled, instance.c.due_at + 10**15 <= sa.bindparam("now"))',
        (f"{STORE}::test_what_rests_is_found_when_its_time_is_over_and_not_before",),
    ),
    Safeguard(
        "after the end there is no extension",
        "usecases/instances/change_lease.py",
        "            _refuse_ended(before, self.clock.now())\n",
        "",
        (f"{ENDINGS}::test_after_the_end_an_extension_is_refused_and_a_start_has_a_fresh_lease",),
    ),
    Safeguard(
        "whoever could not reach us was not silent",
        _ENDING_FILE,
        "    if now < ends_at or now < up_since + span:\n",
        "    if now < ends_at:\n",
        (f"{ENDING}::test_silence_while_nobody_could_have_been_heard_is_no_silence",),
    ),
    Safeguard(
        "one missing sample is use",
        _IDLENESS_FILE,
        "        is_unbroken = is_unbroken and quiet_from - sample.at <= gap_max\n",
        "        is_unbroken = True\n",
        (f"{IDLENESS}::test_one_missing_sample_ends_the_evidence",),
    ),
    Safeguard(
        "one busy sample is use",
        _IDLENESS_FILE,
        "- sample.at <= gap_max\n            break\n",
        "- sample.at <= gap_max\n",
        (f"{IDLENESS}::test_one_busy_sample_ends_the_evidence",),
    ),
    Safeguard(
        "one busy GPU of several is use",
        _IDLENESS_FILE,
        "all(it < rule.gpu_below for it in sample.gpus)",
        "any(it < rule.gpu_below for it in sample.gpus)",
        (f"{IDLENESS}::test_one_busy_gpu_of_several_is_use",),
    ),
    Safeguard(
        "a GPU that was not measured is use",
        _IDLENESS_FILE,
        "    is_whole = len(sample.gpus) == gpu_num\n",
        "    is_whole = True\n",
        (f"{IDLENESS}::test_one_busy_sample_ends_the_evidence",),
    ),
    Safeguard(
        "samples must fit our clock",
        _IDLENESS_FILE,
        "    if not newest_first or abs(now - newest_first[0].at) > SAMPLES_APART_MAX:\n",
        "    if not newest_first:\n",
        (f"{IDLENESS}::test_samples_that_do_not_fit_our_clock_say_nothing",),
    ),
    Safeguard(
        "samples are asked for beyond now",
        _IDLENESS_FILE,
        ", now + 2 * SAMPLES_APART_MAX\n",
        ", now\n",
        (f"{IDLENESS}::test_samples_are_asked_for_beyond_now_so_that_a_clock_that_is_behind_shows",),
    ),
    Safeguard(
        "metrics that are late by the cloud's own clock tell nothing",
        _IDLENESS_FILE,
        "    return cloud_time.at(uptime_s) - max(it.at for it in samples) > SAMPLES_APART_MAX\n",
        "    return False\n",
        (f"{IDLENESS}::test_samples_that_are_late_by_the_cloud_s_clock_do_not_look_fresh_by_ours",),
    ),
    Safeguard(
        "what our clock showed before it was set back counts for the age of metrics",
        "usecases/idleness/watch.py",
        "        self.look.note_time()\n",
        "",
        (f"{WATCH}::test_metrics_with_a_gap_end_nothing_in_use_by_a_clock_that_is_behind",),
    ),
    Safeguard(
        "what has vanished takes nobody's place where a budget ends things",
        "adapters/sql/budgets/store.py",
        "            return list(islice(filter(may_end, map(instance_of, rows)), limit))\n",
        "            return list(islice(map(instance_of, rows), limit))\n",
        ("tests/contracts/budgets/test_budgets_contract.py::TestEnding",),
    ),
    Safeguard(
        "metrics that are away are use",
        "usecases/idleness/look.py",
        "        except CloudError:\n            return None\n",
        "        except CloudError:\n            return MachineUse(rule.window)\n",
        (f"{WATCH}::test_metrics_that_are_away_end_nothing_and_are_asked_for_again",),
    ),
    Safeguard(
        "an application that does not answer is in use",
        _IDLENESS_FILE,
        "    since = answer.idle_since\n",
        "    since = answer.idle_since or now - rule.window\n",
        (f"{IDLENESS}::test_an_application_in_use_or_without_an_answer_spares_the_metrics",),
    ),
    Safeguard(
        "an application must say all the time that it is idle",
        _IDLENESS_FILE,
        "        is_continued = asked_at is not None and timedelta(0) <= now - asked_at <= 2 * interval\n",
        "        is_continued = asked_at is not None\n",
        (f"{IDLENESS}::test_an_application_that_only_says_that_it_is_idle_must_say_so_all_the_time",),
    ),
    Safeguard(
        "an end by idleness is announced first",
        _IDLENESS_FILE,
        "    if not before.warned or before.ends_at is None:\n",
        "    if before.warned and before.ends_at is None:\n",
        (f"{IDLENESS}::test_an_end_is_announced_before_it_comes",),
    ),
    Safeguard(
        "a verdict of idleness grows old",
        _ENDING_FILE,
        "    if not watch.is_over or not watch.is_verdict_fresh(now) or is_used:\n",
        "    if not watch.is_over or is_used:\n",
        (f"{ENDING}::test_a_verdict_of_idleness_must_be_fresh_and_nobody_have_used_it_since",),
    ),
    Safeguard(
        "a heartbeat after the verdict keeps it",
        _ENDING_FILE,
        "    if not watch.is_over or not watch.is_verdict_fresh(now) or is_used:\n",
        "    if not watch.is_over or not watch.is_verdict_fresh(now):\n",
        (f"{ENDING}::test_a_verdict_of_idleness_must_be_fresh_and_nobody_have_used_it_since",),
    ),
    Safeguard(
        "a heartbeat that nobody was there to hear counts",
        "usecases/idleness/look.py",
        "        return earliest if it.used_at is None else max(earliest, self.up_since + rule.window)\n",
        "        return earliest\n",
        (f"{WATCH}::test_after_a_restart_heartbeats_that_nobody_heard_count",),
    ),
    Safeguard(
        "a clock that is set ahead is no silence",
        "usecases/reconcile/advance.py",
        "            used_at=self._moved(it.used_at),\n",
        "            used_at=it.used_at,\n",
        (f"{ON_THE_WAY}::test_a_clock_that_is_set_ahead_is_no_silence",),
    ),
    Safeguard(
        "a clock that is set ahead deletes nothing that is stopped",
        "usecases/reconcile/advance.py",
        "            stopped_at=self._moved(it.stopped_at),\n",
        "            stopped_at=it.stopped_at,\n",
        (f"{ON_THE_WAY}::test_a_clock_that_is_set_ahead_deletes_nothing_that_is_stopped",),
    ),
    Safeguard(
        "a step that a clock has gone back behind moves no end",
        "usecases/clock_steps.py",
        "            if moment <= before and (since is None or since <= moment):\n",
        "            if moment <= before and step > timedelta(0):\n",
        ("tests/faults/test_clock_steps.py",),
    ),
    Safeguard(
        "silence counts from the present run",
        "domain/instance/lifecycle/due.py",
        "    return it.usable_at or it.ready_at\n",
        "    return it.ready_at\n",
        (f"{ON_THE_WAY}::test_silence_counts_from_when_its_present_run_is_usable",),
    ),
    Safeguard(
        "what was thought lost was not silent",
        "usecases/reconcile/apply_step.py",
        "        if changed.usable and not it.usable:\n",
        "        if False:\n",
        (f"{ON_THE_WAY}::test_what_was_thought_lost_is_not_taken_for_silent_when_it_is_found",),
    ),
    Safeguard(
        "an end does not wait for the answer of a create",
        "domain/instance/lifecycle/next_step.py",
        "    if over is not None:\n",
        "    if over is not None and not (attempt is not None and attempt.is_open):\n",
        (f"{ON_THE_WAY}::test_a_lease_that_ends_before_a_create_has_an_answer_is_written_down_at_once",),
    ),
    Safeguard(
        "a stop that was only written down goes out after a kill",
        "usecases/reconcile/advance.py",
        "        return replace(it, asked_at=None)\n",
        "        return it\n",
        (f"{ON_THE_WAY}::test_a_stop_or_removal_that_was_only_written_down_goes_out_after_the_restart",),
    ),
    Safeguard(
        "a lost stop is asked for once more only",
        "usecases/reconcile/advance.py",
        "                    self._asked_again.add(known.id)\n",
        "                    pass\n",
        (f"{ON_THE_WAY}::test_a_clock_that_was_set_back_does_not_make_a_stop_go_out_again_and_again",),
    ),
    Safeguard(
        "idleness does not end a small herd two by two",
        _BRAKE_FILE,
        "        return (self.has_ended and is_braked) or abs(now_s - self.looked_s) < self.counts_for_s\n",
        "        return abs(now_s - self.looked_s) < self.counts_for_s\n",
        (f"{WATCH}::test_zeros_for_a_small_herd_do_not_end_it_two_by_two", BRAKE),
    ),
    Safeguard(
        "metrics that are away release no brake",
        "usecases/idleness/brake.py",
        "        key: replace(it, looked_s=now_s) if key in looked and not it.has_ended else it\n",
        "        key: it\n",
        (f"{WATCH}::test_a_brake_is_not_released_by_metrics_that_are_away",),
    ),
    Safeguard(
        "the brake on idleness",
        _BRAKE_FILE,
        "    return 0 if in_use >= together else together\n",
        "    return 0\n",
        (f"{WATCH}::test_zeros_for_all_machines_end_no_more_than_the_brake_lets",),
    ),
    Safeguard(
        "whoever's idleness began with that of the ended waits with the others",
        _BRAKE_FILE,
        "        if self.has_ended and self.is_beginning_seen:\n",
        "        if False:\n",
        (f"{WATCH}::test_metrics_that_begin_to_say_zero_end_no_more_later_by_longer_times",),
    ),
    Safeguard(
        "a beginning of idleness that nobody saw is not taken for one of its own",
        _BRAKE_FILE,
        "        if self.is_beginning_seen:\n            return self.began_s\n",
        "        return self.began_s\n",
        (BRAKE,),
    ),
    Safeguard(
        "nothing is idle before the sample that shows the whole time",
        _IDLENESS_FILE,
        "    if now < max(surely_over_at, ends_at):\n",
        "    if now < ends_at:\n",
        (IDLENESS,),
    ),
    Safeguard(
        "never more than the brake lets end within five minutes",
        _BRAKE_FILE,
        "    may_end = frozenset(free[: max(0, allowed - lately)])\n",
        "    may_end = frozenset(free)\n",
        (BRAKE,),
    ),
)
