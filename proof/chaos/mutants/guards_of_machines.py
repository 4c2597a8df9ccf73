"""The guards of machines: whose each is, when it ends, and which may be deleted."""

from __future__ import annotations

from proof.chaos.mutants.guard import always, before, drop, guard, instead, never, part

ENDINGS_CONTRACT = "tests/contracts/instances/test_endings_contract.py"
REUSED_CLOUD_IDS_CONTRACT = "tests/contracts/instances/test_reused_cloud_ids_contract.py"
OBSERVATION = "tests/domain/cloud/test_observation.py"
ENDING = "tests/domain/endings/test_ending.py"
IDLE_BRAKE = "tests/domain/endings/test_idle_brake.py"
IDLENESS = "tests/domain/endings/test_idleness.py"
NEXT_STEP_GOALS = "tests/domain/instance/lifecycle/test_next_step_goals.py"
ORPHAN = "tests/domain/orphans/test_orphan.py"
WATCH = "tests/usecases/idleness/test_watch.py"
COLLECT = "tests/usecases/orphans/test_collect.py"
SHARED_INSTALLATION = "tests/usecases/orphans/test_shared_installation.py"
CHECK_HEALTH = "tests/usecases/reconcile/health/test_check_health.py"
RUN_HEALTH_ROUND = "tests/usecases/reconcile/health/test_run_health_round.py"
ENDINGS = "tests/usecases/reconcile/test_endings.py"
ENDINGS_ON_THE_WAY = "tests/usecases/reconcile/test_endings_on_the_way.py"
LATE_MACHINES = "tests/usecases/reconcile/test_late_machines.py"
REUSED_CLOUD_IDS = "tests/usecases/reconcile/test_reused_cloud_ids.py"

MACHINES = (
    # Removal
    guard(
        "a health round counts for the run that it asked",
        never(),
        f"{RUN_HEALTH_ROUND}::test_a_round_that_fails_after_a_new_start_deletes_nothing",
        f"{RUN_HEALTH_ROUND}::test_a_round_that_ends_after_a_delete_says_nothing",
    ),
    guard(
        "nobody is given up who was not asked",
        never(),
        f"{CHECK_HEALTH}::test_who_could_not_be_asked_is_not_given_up_when_the_time_is_over",
    ),
    guard("absence takes two lists", part("sighting.missing_lists >= 2 and", ""), OBSERVATION),
    guard(
        "a delete lasts until the absence is proven",
        part("observation.phase is Phase.ABSENT", "observation.phase in (Phase.ABSENT, Phase.UNKNOWN)"),
        f"{NEXT_STEP_GOALS}::test_not_seen_is_no_proof_that_a_delete_is_done",
    ),
    guard(
        "two sightings of a surplus machine",
        instead("return True"),
        f"{ORPHAN}::test_the_second_sighting_counts_after_a_sixth_of_the_settling_time",
    ),
    guard(
        "the brake",
        part("due + lately <= allowed", "due >= 0"),
        f"{ORPHAN}::test_no_more_than_two_or_a_tenth_of_the_herd_go_by_themselves",
    ),
    guard("what others own is never ours", never(), ORPHAN),
    guard("the machine of an open call is no orphan", drop(), ORPHAN),
    guard(
        "the ledger goes by the records as they are now",
        instead("""
candidates = getattr(ledger, '_kept', None) or await ledger.candidates()
ledger._kept = await ledger.candidates()
"""),
        COLLECT,
    ),
    guard(
        "nothing is collected while the cloud is in trouble",
        part('not record.believable or services.breaker_state() != "CLOSED"', "not record.believable"),
        f"{COLLECT}::test_while_the_cloud_is_in_trouble_nothing_is_collected",
    ),
    guard(
        "nothing is collected by a list that is not believed",
        part(
            'not record.believable or services.breaker_state() != "CLOSED"',
            'services.breaker_state() != "CLOSED"',
        ),
        f"{COLLECT}::test_a_list_that_is_not_believed_changes_nothing",
    ),
    # Ownership
    guard(
        "each create call has a random part in its tag",
        part(
            "Tag(services.stores.installation, instance.key, n, _nonce(services))",
            "Tag(services.stores.installation, instance.key, n)",
        ),
        f"{SHARED_INSTALLATION}::test_the_two_copies_make_different_tags_for_the_same_attempt",
    ),
    guard(
        "surplus only around the time of the call",
        never(),
        f"{ORPHAN}::test_surplus_is_only_what_was_made_around_the_time_of_our_call",
    ),
    guard(
        "an environment alone deletes nothing",
        never(),
        f"{ORPHAN}::test_a_tag_in_the_environment_alone_never_makes_a_machine_surplus",
    ),
    guard(
        "name and environment must agree",
        never(),
        f"{ORPHAN}::test_a_name_and_an_environment_that_disagree_never_make_a_machine_surplus",
    ),
    guard(
        "one call makes one machine",
        never(),
        f"{ORPHAN}::test_a_second_machine_of_a_bound_call_is_reported_and_names_the_first",
        f"{SHARED_INSTALLATION}::test_a_copied_name_is_reported_and_never_removed",
    ),
    guard(
        "a late machine is taken by its own instance",
        part("_late_machine(this_pass)", "None"),
        f"{LATE_MACHINES}::test_it_is_taken_instead_of_being_collected",
    ),
    guard(
        "the collector leaves a wanted machine alone",
        never(),
        f"{LATE_MACHINES}::test_the_collector_leaves_it_alone_before_the_turn_has_seen_it",
    ),
    guard(
        "an id that the cloud uses again goes over to the new machine's instance",
        drop(),
        f"{REUSED_CLOUD_IDS_CONTRACT}::test_an_id_goes_over_from_an_instance_whose_machine_is_gone",
    ),
    guard(
        "a machine that may exist stays with its instance",
        part("was_machine_proven_gone", ""),
        f"{REUSED_CLOUD_IDS_CONTRACT}::test_a_machine_that_may_exist_stays_with_its_instance",
    ),
    guard(
        "what was seen of a gone machine proves nothing about the next one of its id",
        part("listed.changed_at <= bound.closed_at", "False"),
        f"{REUSED_CLOUD_IDS}::test_who_had_the_id_before_proves_nothing_while_no_list_comes",
    ),
    guard(
        "an instance does not delete the machine that has got its id",
        instead("is_later = False"),
        f"{REUSED_CLOUD_IDS}::test_an_id_that_is_used_again_before_its_first_machine_is_proven_gone_goes_over",
    ),
    guard(
        "a machine of another name and the same age is ours, renamed",
        part(
            "made_by is not None and machine.created_at is not None and machine.created_at > made_by",
            "made_by is not None and machine.created_at is not None",
        ),
        f"{REUSED_CLOUD_IDS}::test_a_machine_that_somebody_has_given_the_name_of_another_stays_with_its_instance",
    ),
    guard(
        "after a step of the clock the cloud's stamps tell who got an id later",
        part(
            "is_later or not _was_seen_before_ours(listed, locked)",
            "not _was_seen_before_ours(listed, locked)",
        ),
        "tests/proof/chaos/test_schedules.py::test_a_seed_that_was_broken_once_holds",
    ),
    guard(
        "whose name and environment agree is of that call, whatever the clocks say",
        instead("return was_made_later(machine, instance, bound)"),
        f"{REUSED_CLOUD_IDS}::test_the_next_machine_of_an_id_is_not_taken_for_one_that_no_list_has_shown",
    ),
    guard(
        "the cloud's own clock decides which machine of an id is the later",
        instead("made_by = bound.closed_at"),
        f"{REUSED_CLOUD_IDS}::test_a_delete_is_not_repeated_on_the_next_machine_of_the_id",
    ),
    guard(
        "a delete is repeated on our own machine only",
        part("await ownership_before_removal(services, this_pass.locked)", "Ownership.OURS"),
        f"{REUSED_CLOUD_IDS}::test_a_delete_is_not_repeated_on_the_next_machine_of_the_id",
    ),
    guard(
        "nothing is stopped or removed unseen under an id that may be another's",
        instead("return _has_shown(last, shown)"),
        f"{REUSED_CLOUD_IDS}::test_a_machine_that_no_list_shows_is_not_stopped_or_removed_unseen",
    ),
    guard(
        "what stands for a question about a machine is what the last list has shown of it",
        drop(),
        f"{REUSED_CLOUD_IDS}::test_what_was_read_before_the_last_list_says_nothing_about_that_list",
    ),
    guard(
        "a list that took long is as old as its begin",
        instead("return self.reading.longest_until(now)"),
        f"{OBSERVATION}::test_a_list_is_as_old_as_its_begin",
    ),
    guard(
        "a list that would not have missed a machine does not stand for it",
        instead("return age is not None and age <= LISTED_LATELY"),
        f"{REUSED_CLOUD_IDS}::test_a_machine_that_lists_do_not_miss_because_the_clock_was_set_back_is_asked_for",
    ),
    guard(
        "a machine that was kept after a failure is known to be gone when it is",
        never(),
        f"{REUSED_CLOUD_IDS}::test_an_id_goes_over_from_an_instance_that_failed_and_kept_its_machine_until_somebody_removed_it",
    ),
    guard(
        "an end is written down although the cloud cannot be asked",
        always(),
        f"{ENDINGS}::test_an_end_is_written_down_although_the_cloud_cannot_be_asked",
    ),
    guard(
        "a start that is refused does not put aside a goal that came meanwhile",
        before("await this_pass.reread()"),
        "tests/usecases/instances/test_change_goal.py::test_a_delete_during_a_start_that_is_refused_wins",
    ),
    guard(
        "an instance that has had its machine takes no other one with it",
        part("locked.instance.last_cloud_id", "locked.instance.cloud_id"),
        f"{REUSED_CLOUD_IDS}::test_an_instance_that_has_had_a_machine_does_not_take_another_of_its_tag_away_with_it",
    ),
    guard(
        "the age of a list is the time since, however the clock was set",
        instead("return by_wall"),
        f"{REUSED_CLOUD_IDS}::test_a_list_is_not_taken_for_a_late_one_because_the_clock_was_set_back",
    ),
    guard(
        "a stop under an id that may be another's is preceded by a question",
        part("await ownership_before_stop(services, this_pass.locked)", "Ownership.OURS"),
        f"{REUSED_CLOUD_IDS}::test_a_machine_that_no_list_shows_is_not_stopped_or_removed_unseen",
    ),
    guard(
        "a removal that is asked for again keeps the lists since the first request",
        never(),
        f"{REUSED_CLOUD_IDS}::test_a_machine_that_no_list_ever_showed_and_every_answer_denies_is_given_up",
    ),
    guard(
        "nothing is stopped or removed under an id that the cloud has just denied",
        instead("return Ownership.OURS"),
        f"{REUSED_CLOUD_IDS}::test_a_machine_that_one_answer_denies_is_not_stopped_or_removed_by_its_id",
    ),
    guard(
        "a vanished instance does not come back with another machine of its id",
        part(
            "_was_seen_before_ours(listed, locked) or is_later or was_machine_proven_gone(instance)",
            "_was_seen_before_ours(listed, locked) or is_later",
        ),
        f"{REUSED_CLOUD_IDS}::test_an_instance_whose_machine_vanished_does_not_come_back_with_one_that_seems_older",
    ),
    guard(
        "a machine under the id of a lost one is not removed by its tag alone",
        never(),
        f"{REUSED_CLOUD_IDS}::test_a_vanished_machine_that_comes_back_under_the_tag_of_a_given_up_call_is_reported",
    ),
    guard(
        "a machine that we had is ours by its tag too",
        before("""
if records.bound is not None:
    return OrphanFinding(OrphanVerdict.SURPLUS, "", records.bound.id)
"""),
        f"{COLLECT}::test_a_machine_without_our_tag_under_the_id_of_one_that_we_had_is_foreign",
    ),
    guard(
        "a second user of our id raises the alarm",
        always(),
        f"{SHARED_INSTALLATION}::test_a_copy_beside_its_original_rents_once_more_and_both_machines_live",
    ),
    guard(
        "the machine of a second user is not taken",
        never(),
        f"{SHARED_INSTALLATION}::test_a_turn_that_sees_it_before_the_collector_does_not_take_it_either",
    ),
    guard(
        "what an earlier life made raises no alarm",
        drop(),
        f"{SHARED_INSTALLATION}::test_machines_of_an_earlier_life_raise_no_alarm",
    ),
    guard(
        "the alarm stops creates",
        part(
            "services.stores.flags.first(INSTALLATION_SHARED, CREATES_BLOCKED)",
            "services.stores.flags.get(CREATES_BLOCKED)",
        ),
        f"{SHARED_INSTALLATION}::test_the_machine_of_an_instance_that_we_never_had_is_a_sign_too",
    ),
    guard(
        "the alarm stops the collector",
        part(
            "services.stores.flags.first(INSTALLATION_SHARED, COLLECTOR_BRAKED)",
            "services.stores.flags.get(COLLECTOR_BRAKED)",
        ),
        f"{SHARED_INSTALLATION}::test_the_alarm_stops_the_collector",
    ),
    guard(
        "under the alarm nothing is given back by itself",
        part("not is_wanted", "False"),
        f"{SHARED_INSTALLATION}::test_under_the_alarm_a_failed_instance_keeps_its_machine_and_a_deleted_one_does_not",
    ),
    # Ends
    guard(
        "no lease ends before its end",
        part("term.ends_at", "term.warn_at"),
        f"{ENDING}::test_a_lease_ends_at_its_end_and_not_a_microsecond_before",
    ),
    guard(
        "a lease ends once",
        part("term is None or term.ended or now < term.ends_at", "term is None or now < term.ends_at"),
        ENDING,
    ),
    guard(
        "a clock that is set ahead ends no lease",
        instead("moved = term"),
        f"{ENDINGS}::test_a_clock_that_is_set_ahead_ends_no_lease",
    ),
    guard(
        "a clock that is set back takes no more of a lease than it has moved",
        part(
            "min(move.by, move.total - self._lease_steps.total())",
            "move.total - self._lease_steps.total()",
        ),
        f"{ENDINGS}::test_a_clock_that_is_set_further_back_takes_no_more_of_a_lease_than_it_has_moved",
    ),
    guard(
        "an end that was agreed on anew is not moved back",
        part("move is None or not move.is_of(term)", "move is None"),
        f"{ENDINGS}::test_a_clock_that_is_set_further_back_takes_no_more_of_a_lease_than_it_has_moved",
    ),
    guard(
        "an end is not slept through",
        part("instance.c.due_at", "instance.c.due_at + 10**15"),
        f"{ENDINGS_CONTRACT}::test_what_rests_is_found_when_its_time_is_over_and_not_before",
    ),
    guard(
        "after the end there is no extension",
        drop(),
        f"{ENDINGS}::test_after_the_end_an_extension_is_refused_and_a_start_has_a_fresh_lease",
    ),
    guard(
        "a client that could not reach us was not silent",
        part("now < ends_at or now < up_since + span", "now < ends_at"),
        f"{ENDING}::test_silence_while_nobody_could_have_been_heard_is_no_silence",
    ),
    guard(
        "one missing sample is use",
        instead("is_unbroken = True"),
        f"{IDLENESS}::test_one_missing_sample_ends_the_evidence",
    ),
    guard("one busy sample is use", drop(), f"{IDLENESS}::test_one_busy_sample_ends_the_evidence"),
    guard(
        "one busy GPU of several is use",
        part("all", "any"),
        f"{IDLENESS}::test_one_busy_gpu_of_several_is_use",
    ),
    guard(
        "a GPU that was not measured is use",
        instead("is_whole = True"),
        f"{IDLENESS}::test_one_busy_sample_ends_the_evidence",
    ),
    guard(
        "samples must fit our clock",
        part("not newest_first or abs(now - newest_first[0].at) > SAMPLES_APART_MAX", "not newest_first"),
        f"{IDLENESS}::test_samples_that_do_not_fit_our_clock_say_nothing",
    ),
    guard(
        "samples are asked for beyond now",
        instead("return begin, now"),
        f"{IDLENESS}::test_samples_are_asked_for_beyond_now_so_that_a_clock_that_is_behind_shows",
    ),
    guard(
        "metrics that are late by the cloud's own clock tell nothing",
        instead("return False"),
        f"{IDLENESS}::test_samples_that_are_late_by_the_cloud_s_clock_do_not_look_fresh_by_ours",
    ),
    guard(
        "what our clock showed before it was set back counts for the age of metrics",
        drop(),
        f"{WATCH}::test_metrics_with_a_gap_end_nothing_in_use_by_a_clock_that_is_behind",
    ),
    guard(
        "what has vanished takes nobody's place where a budget ends things",
        instead("return list(islice(map(instance_of, rows), limit))"),
        "tests/contracts/budgets/test_budgets_contract.py::TestEnding",
    ),
    guard(
        "metrics that are away are use",
        instead("return MachineUse(rule.window)"),
        f"{WATCH}::test_metrics_that_are_away_end_nothing_and_are_asked_for_again",
    ),
    guard(
        "an application that does not answer is in use",
        instead("since = answer.idle_since or now - rule.window"),
        f"{IDLENESS}::test_an_application_in_use_or_without_an_answer_spares_the_metrics",
    ),
    guard(
        "an application must say all the time that it is idle",
        instead("is_continued = asked_at is not None"),
        f"{IDLENESS}::test_an_application_that_only_says_that_it_is_idle_must_say_so_all_the_time",
    ),
    guard(
        "an end by idleness is announced first",
        instead("before = replace(before, ends_at=before.ends_at or ends_at)"),
        f"{IDLENESS}::test_an_end_is_announced_before_it_comes",
    ),
    guard(
        "a verdict of idleness grows old",
        part(
            "not watch.is_over or not watch.is_verdict_fresh(now) or is_used", "not watch.is_over or is_used"
        ),
        f"{ENDING}::test_a_verdict_of_idleness_must_be_fresh_and_nobody_have_used_it_since",
    ),
    guard(
        "a heartbeat after the verdict keeps it",
        part(
            "not watch.is_over or not watch.is_verdict_fresh(now) or is_used",
            "not watch.is_over or not watch.is_verdict_fresh(now)",
        ),
        f"{ENDING}::test_a_verdict_of_idleness_must_be_fresh_and_nobody_have_used_it_since",
    ),
    guard(
        "a heartbeat that nobody was there to hear counts",
        instead("return earliest"),
        f"{WATCH}::test_after_a_restart_heartbeats_that_nobody_heard_count",
    ),
    guard(
        "a clock that is set ahead is no silence",
        part("self._moved(instance.used_at)", "instance.used_at"),
        f"{ENDINGS_ON_THE_WAY}::test_a_clock_that_is_set_ahead_is_no_silence",
    ),
    guard(
        "a clock that is set ahead deletes nothing that is stopped",
        part("self._moved(instance.stopped_at)", "instance.stopped_at"),
        f"{ENDINGS_ON_THE_WAY}::test_a_clock_that_is_set_ahead_deletes_nothing_that_is_stopped",
    ),
    guard(
        "a step that a clock has gone back behind moves no end",
        part("since is None or since <= moment", "step > timedelta(0)"),
        "tests/faults/test_clock_steps.py",
    ),
    guard(
        "silence counts from the present run",
        instead("return instance.ready_at"),
        f"{ENDINGS_ON_THE_WAY}::test_silence_counts_from_when_its_present_run_is_usable",
    ),
    guard(
        "what was thought lost was not silent",
        never(),
        f"{ENDINGS_ON_THE_WAY}::test_what_was_thought_lost_is_not_taken_for_silent_when_it_is_found",
    ),
    guard(
        "an end does not wait for the answer of a create",
        part("over is not None", "over is not None and not (attempt is not None and attempt.is_open)"),
        f"{ENDINGS_ON_THE_WAY}::test_a_lease_that_ends_before_a_create_has_an_answer_is_written_down_at_once",
    ),
    guard(
        "a stop that was only written down goes out after a kill",
        instead("return instance"),
        f"{ENDINGS_ON_THE_WAY}::test_a_stop_or_removal_that_was_only_written_down_goes_out_after_the_restart",
    ),
    guard(
        "a lost stop is asked for once more only",
        drop(),
        f"{ENDINGS_ON_THE_WAY}::test_a_clock_that_was_set_back_does_not_make_a_stop_go_out_again_and_again",
    ),
    guard(
        "idleness does not end a small herd two by two",
        part(
            "(self.has_ended and is_braked) or abs(now_s - self.looked_s) < self.counts_for_s",
            "abs(now_s - self.looked_s) < self.counts_for_s",
        ),
        f"{WATCH}::test_zeros_for_a_small_herd_do_not_end_it_two_by_two",
        IDLE_BRAKE,
    ),
    guard(
        "metrics that are away release no brake",
        part("replace(it, looked_s=now_s) if key in looked and not it.has_ended else it", "it"),
        f"{WATCH}::test_a_brake_is_not_released_by_metrics_that_are_away",
    ),
    guard(
        "the brake on idleness",
        instead("return 0"),
        f"{WATCH}::test_zeros_for_all_machines_end_no_more_than_the_brake_lets",
    ),
    guard(
        "idleness that began with that of the ended waits with the others",
        never(),
        f"{WATCH}::test_metrics_that_begin_to_say_zero_end_no_more_later_by_longer_times",
    ),
    guard("a beginning of idleness that nobody saw is not taken for one of its own", always(), IDLE_BRAKE),
    guard(
        "nothing is idle before the sample that shows the whole time",
        part("max(surely_over_at, ends_at)", "ends_at"),
        IDLENESS,
    ),
    guard(
        "never more than the brake lets end within five minutes",
        instead("may_end = frozenset(free)"),
        IDLE_BRAKE,
    ),
)
