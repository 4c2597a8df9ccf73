"""The guards of renting: one machine for one launch, and one record of it."""

from __future__ import annotations

from proof.chaos.mutants.guard import before, drop, guard, instead, never, part, swap

DATABASE = "tests/adapters/sql/engine/test_database.py"
ENGINE = "tests/adapters/sql/postgres/test_engine.py"
API_KEYS_CONTRACT = "tests/contracts/access/test_api_keys_contract.py"
HELD_PLANS_CONTRACT = "tests/contracts/instances/test_held_plans_contract.py"
LEASES_CONTRACT = "tests/contracts/instances/test_leases_contract.py"
OBSERVATION = "tests/domain/cloud/test_observation.py"
TAG = "tests/domain/cloud/test_tag.py"
PROPERTIES = "tests/domain/instance/lifecycle/test_properties.py"
CAPACITY_LINE = "tests/domain/instance/test_capacity_line.py"
OFFER_RANKING = "tests/domain/instance/test_offer_ranking.py"
HELD_PLANS = "tests/entrypoints/http/routes/instances/test_held_plans.py"
VOLUMES = "tests/entrypoints/http/routes/test_volumes.py"
BACKUP = "tests/ops/test_backup.py"
LINE = "tests/usecases/capacity/test_line.py"
START_WAIT = "tests/usecases/capacity/test_start_wait.py"
DISK_PRICE = "tests/usecases/instances/test_disk_price.py"
RESTART = "tests/usecases/reconcile/start/test_restart.py"
EXACTLY_ONCE = "tests/usecases/reconcile/test_exactly_once.py"
FALLBACK = "tests/usecases/reconcile/test_fallback.py"
RESTORED_DATABASE = "tests/usecases/reconcile/test_restored_database.py"
UNKNOWN_OUTCOMES = "tests/usecases/reconcile/test_unknown_outcomes.py"
WAIT_FOR_CAPACITY = "tests/usecases/reconcile/test_wait_for_capacity.py"
ENVIRONMENT = "tests/usecases/secrets/test_environment.py"

RENTING = (
    # Renting
    guard(
        "intent before the call",
        instead(
            """
services = this_pass.services
class Unsaved:
    async def save(self, locked: LeasedInstance, change: object) -> LeasedInstance:
        return locked
this_pass.services = replace(services, stores=replace(services.stores, instance_leases=Unsaved()))
attempt, plan = await _record_intent(this_pass, order)
this_pass.services = services
return await _make_call(this_pass, order, attempt, plan)
""",
            n=2,
        ),
        f"{UNKNOWN_OUTCOMES}::test_a_create_is_on_record_before_it_reaches_the_cloud",
    ),
    guard(
        "variables that cannot be read rent nothing",
        instead("envs = ()"),
        f"{ENVIRONMENT}::test_with_another_key_nothing_is_rented_and_the_reason_is_told",
    ),
    guard(
        "the tag cannot be set by a variable",
        never(),
        "tests/entrypoints/bodies/test_workload.py::test_the_tag_cannot_be_set",
    ),
    guard(
        "one open attempt, in the database",
        part('"one_open_attempt", "instance_id", unique=True', '"one_open_attempt", "instance_id"'),
        f"{LEASES_CONTRACT}::TestOneOpenAttempt",
    ),
    guard("lists are read before sightings", swap(), f"{LEASES_CONTRACT}::TestListsBeforeSightings"),
    guard("no call for an attempt that was not taken down", drop(), f"{LEASES_CONTRACT}::TestOneOpenAttempt"),
    guard(
        "settling time",
        instead("needed = settling.list_spacing"),
        f"{EXACTLY_ONCE}::test_a_create_that_had_no_effect_is_repeated_only_after_the_settling_time",
        OBSERVATION,
    ),
    guard("settling time without a witness", instead("return self.settle"), OBSERVATION),
    guard("three clean lists", instead("CLEAN_LISTS_NEEDED = 1"), OBSERVATION),
    guard(
        "a list without any witness is not believed",
        instead("return self.complete"),
        f"{EXACTLY_ONCE}::test_an_outage_that_answers_with_empty_lists_is_not_believed",
        OBSERVATION,
    ),
    guard(
        "the count begins anew when a witness appears",
        drop(),
        f"{OBSERVATION}::test_a_create_is_given_up_only_on_good_evidence",
    ),
    guard(
        "an incomplete list proves no absence",
        instead("return self.witness is not Witness.MISSING"),
        f"{EXACTLY_ONCE}::test_a_list_whose_pages_do_not_fit_together_proves_no_absence",
        OBSERVATION,
    ),
    guard(
        "a total that does not fit makes a list incomplete",
        instead("return True"),
        "tests/adapters/novita/test_pages.py",
    ),
    guard(
        "a clock that jumps is not time that was watched",
        instead("waited += record.started_at - before"),
        f"{OBSERVATION}::test_a_clock_that_jumps_ahead_is_not_time_that_was_watched",
    ),
    guard(
        "exact tag",
        part(
            "machine_tag(seen.machine) == attempt.tag and seen.machine.phase is not Phase.ABSENT",
            "seen.machine.phase is not Phase.ABSENT",
        ),
        f"{UNKNOWN_OUTCOMES}::test_the_machine_of_an_earlier_call_is_taken_for_what_it_is_and_not_for_that_of_a_later_one",
    ),
    guard(
        "the tag stands at the end of a name",
        part(
            'rf"--({_PLACE}-([1-9][0-9]{{0,8}})(?:-([a-z0-9]{{6}}))?)\\Z"',
            'rf"--({_PLACE}-([1-9][0-9]{{0,8}})(?:-([a-z0-9]{{6}}))?)"',
        ),
        TAG,
    ),
    guard(
        "a tag of any number can be read",
        part(
            'rf"--({_PLACE}-([1-9][0-9]{{0,8}})(?:-([a-z0-9]{{6}}))?)\\Z"',
            'rf"--({_PLACE}-([1-9][0-9]{{0,3}})(?:-([a-z0-9]{{6}}))?)\\Z"',
        ),
        TAG,
    ),
    guard(
        "an open attempt is resolved before anything else",
        drop(),
        f"{PROPERTIES}::test_an_open_attempt_is_resolved_whatever_the_goal",
    ),
    guard(
        "no create before the first look",
        never(),
        f"{RESTORED_DATABASE}::test_nothing_is_rented_before_the_cloud_was_seen",
    ),
    guard(
        "a lost tag stops creates",
        drop(),
        "tests/usecases/reconcile/test_advance.py::test_creates_stop_when_the_cloud_does_not_keep_our_tag",
    ),
    guard(
        "a machine that vanished is not rented again",
        instead("return Rent()"),
        "tests/domain/instance/lifecycle/test_next_step.py",
        "tests/domain/instance/lifecycle/test_model.py",
    ),
    guard(
        "a restart without an answer is not repeated",
        instead("return Restart()"),
        f"{RESTART}::test_one_without_answer_and_effect_ends_as_unknown_and_is_not_repeated",
    ),
    guard(
        "a few unknown outcomes are enough",
        instead("UNKNOWN_OUTCOMES_MAX = 10**6"),
        f"{UNKNOWN_OUTCOMES}::test_three_creates_without_answer_and_effect_are_the_end",
    ),
    guard(
        "a key with a limit pays no more than was counted",
        drop(),
        "tests/entrypoints/http/routes/access/test_keys.py::test_what_was_counted_is_all_that_it_may_cost",
    ),
    guard(
        "a clock that is set ahead ends no wait for capacity",
        instead("return created_at + timedelta(seconds=seconds)"),
        f"{WAIT_FOR_CAPACITY}::test_a_wait_lasts_as_long_as_was_promised_whatever_the_clock_does",
    ),
    guard(
        "on demand is not bought before its time",
        never(),
        f"{FALLBACK}::test_without_spot_it_is_rented_on_demand_after_the_time_and_not_before",
    ),
    guard(
        "each way to pay has its own price under the cap",
        part("mode_of(offer, wish)", "wish.billing_mode"),
        f"{OFFER_RANKING}::test_each_way_to_pay_has_its_own_price_under_the_cap",
    ),
    guard(
        "a wait does not write for ever",
        instead("new_events = (*plan, new_event)"),
        f"{WAIT_FOR_CAPACITY}::test_f40_the_same_refusal_is_told_once_an_hour",
    ),
    guard(
        "the disk counts in the price cap",
        instead("""
gpus_usd = price - offer.disk.hourly_usd(wish.disk_gb)
if wish.hourly_usd_max is not None and gpus_usd > wish.hourly_usd_max:
    return (
        f"costs {price} USD an hour{_disk_words(offer, wish)}, above the limit of {wish.hourly_usd_max}"
    )
"""),
        f"{DISK_PRICE}::test_a_limit_that_the_disk_exceeds_is_refused_before_anything_is_rented",
    ),
    guard(
        "the disk counts in what a key spends",
        part("instance.hourly_usd", "instance.rental.gpu_hourly_usd * instance.wish.gpu_num"),
        f"{DISK_PRICE}::test_a_limited_key_pays_for_the_disk",
    ),
    # Store
    guard(
        "stopped disks count in what a key spends",
        part("micro_usd + disks_usd", "micro_usd"),
        f"{API_KEYS_CONTRACT}::TestQuota::test_what_is_stopped_counts_with_its_disk_and_not_against_its_own_start",
    ),
    guard("lease token in a save", instead("_UNDER_LEASE = _THIS_VERSION"), f"{LEASES_CONTRACT}::TestSave"),
    guard(
        "a commit is kept whatever the server was told",
        part(', "synchronous_commit": "on" if durable else "off"', ""),
        f"{ENGINE}::test_commits_are_sure_unless_the_url_itself_wants_it_otherwise",
    ),
    guard(
        "version in a save",
        part(', instance.c.version == sa.bindparam("its_version"),', ","),
        f"{LEASES_CONTRACT}::TestSave",
    ),
    guard(
        "one turn at a time",
        part('instance.c.lease_until <= sa.bindparam("now", type_=instance.c.lease_until.type)', "sa.true()"),
        f"{LEASES_CONTRACT}::TestLease",
    ),
    guard(
        "webhooks in the transaction of what they tell",
        drop(),
        "tests/contracts/instances/test_instances_contract.py",
    ),
    guard("one claim, one instance", drop(), "tests/contracts/access/test_idempotency_contract.py"),
    guard("a damaged file is refused", drop(), "tests/adapters/sql/schema/test_find_damage.py"),
    guard(
        "one process on one file",
        part("fcntl.LOCK_EX", "fcntl.LOCK_SH"),
        f"{BACKUP}::TestRestore::test_a_running_server_is_not_disturbed",
    ),
    guard("a copy is read through", part("find_damage(here)", "None"), f"{BACKUP}::TestBackup"),
    guard(
        "writes begin as writes",
        instead('begin = "BEGIN"'),
        DATABASE,
        "tests/adapters/sql/engine/test_unavailable.py",
    ),
    guard(
        "every commit is on the disk",
        part('"synchronous=FULL"', '"synchronous=OFF"'),
        "tests/adapters/sql/engine/test_database_file.py",
        DATABASE,
    ),
    # Capacity line
    guard(
        "only the first in line tries",
        instead("held |= {}"),
        f"{LINE}::test_a_newcomer_does_not_overtake_whether_it_would_wait_or_not",
    ),
    guard(
        "the oldest comes first",
        part("self.since", "self.since.min.replace(tzinfo=self.since.tzinfo)"),
        f"{CAPACITY_LINE}::test_only_the_oldest_may_try",
    ),
    guard("a refusal counts for everybody", drop(), f"{LINE}::test_a_refusal_is_remembered_for_everybody"),
    guard(
        "an offer rests longer each time",
        instead("return OfferRest(key, 1, now, message)"),
        f"{CAPACITY_LINE}::test_an_offer_rests_twice_as_long_each_time_up_to_ten_minutes",
    ),
    guard(
        "before anybody waits, one call finds out for all",
        never(),
        f"{LINE}::test_those_who_would_wait_call_one_at_a_time_until_there_is_stock",
    ),
    guard(
        "nobody overtakes a call that is under way",
        instead("waits = None"),
        f"{LINE}::test_nobody_tries_an_offer_while_the_first_in_line_does",
    ),
    guard(
        "who came later does not take what others wait for",
        drop(),
        f"{LINE}::test_a_newcomer_does_not_overtake_whether_it_would_wait_or_not",
    ),
    guard(
        "a start that waits is not asked for at every pass",
        drop(),
        f"{START_WAIT}::test_a_pass_in_between_does_not_ask_again",
    ),
    guard(
        "a clock that is set ahead ends no wait of a start",
        instead("return start_waits_until(instance) - services.clock.now()"),
        f"{START_WAIT}::test_a_clock_that_is_set_ahead_does_not_end_the_wait",
    ),
    # Created once
    guard(
        "the intent of a volume is durable before the call",
        part("not await", "False and not await"),
        f"{VOLUMES}::test_the_intent_is_durable_before_the_call_and_bars_a_second_one",
    ),
    guard(
        "a volume is looked for once more when no other may begin",
        drop(),
        f"{VOLUMES}::test_of_two_creates_whose_first_looks_both_found_nothing_one_is_sent",
    ),
    guard(
        "an answer that was lost is no proof that a volume was not made",
        before("await services.stores.flags.swap(flag, intent, None)"),
        f"{VOLUMES}::test_a_lost_answer_is_looked_after_by_name_and_never_repeated_at_once",
    ),
    guard(
        "a volume without an answer is not sent again before it could have appeared",
        drop(),
        f"{VOLUMES}::test_a_lost_answer_is_looked_after_by_name_and_never_repeated_at_once",
    ),
    guard(
        "a lost volume is looked for by its name",
        part("await _named(services, wanted.name)", "None"),
        f"{VOLUMES}::test_a_create_that_appears_late_is_taken_for_ours_if_it_is_what_was_asked",
    ),
    # Plans
    guard(
        "one plan is one instance",
        part("request.claims", "request.claims[:0]"),
        f"{HELD_PLANS}::test_twenty_at_once_rent_one_plan_once",
    ),
    guard(
        "the claim of a plan is written with its instance",
        part("claims", "claims[:1]"),
        f"{HELD_PLANS_CONTRACT}::test_twenty_at_once_with_one_plan_and_keys_of_their_own_are_one_instance",
    ),
    guard(
        "a plan never costs more",
        instead("return request"),
        f"{HELD_PLANS}::test_a_plan_is_never_rented_for_more",
    ),
    guard("a plan expires", never(), f"{HELD_PLANS}::test_an_expired_plan_is_410"),
    guard(
        "only who planned it may rent it",
        part(
            "sa.select(held_plan).where(held_plan.c.id == plan_id, held_plan.c.owner == owner)",
            "sa.select(held_plan).where(held_plan.c.id == plan_id)",
        ),
        f"{HELD_PLANS_CONTRACT}::test_a_plan_is_found_by_its_owner_as_it_was_and_by_nobody_else",
    ),
)
