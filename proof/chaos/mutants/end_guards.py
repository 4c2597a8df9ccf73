"""The guards of the ends: nothing ends before its time, nor while anybody uses it, or may."""

from __future__ import annotations

from proof.chaos.mutants.safeguard import Safeguard

ENDING = "tests/domain/endings/test_ending.py"
IDLENESS = "tests/domain/endings/test_idleness.py"
ENDINGS = "tests/usecases/reconcile/test_endings.py"
STORE = "tests/contracts/instances/test_endings_contract.py"
WATCH = "tests/usecases/idleness/test_watch.py"
_IDLENESS_FILE = "domain/endings/idleness.py"
_ENDING_FILE = "domain/endings/ending.py"

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
        "        moved = it.lease_term.moved(ahead, self.clock.now())\n",
        "        moved = it.lease_term\n",
        (f"{ENDINGS}::test_a_clock_that_is_set_ahead_ends_no_lease",),
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
        "            _refuse_ended(before)\n",
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
        "            busy_at = sample.at\n            break\n",
        "            busy_at = sample.at\n",
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
        "the brake on idleness",
        "usecases/idleness/brake.py",
        "        return reason is not None\n",
        "        return False\n",
        (f"{WATCH}::test_zeros_for_all_machines_end_no_more_than_the_brake_lets",),
    ),
)
