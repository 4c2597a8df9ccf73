"""The guards: where each of them is, how the code looks without it, and which tests must then fail."""

from __future__ import annotations

from proof.chaos.mutants.agent_guards import AGENTS
from proof.chaos.mutants.capacity_guards import CAPACITY_LINE
from proof.chaos.mutants.doctor_guards import DOCTOR
from proof.chaos.mutants.end_guards import ENDS
from proof.chaos.mutants.heir_guards import SUCCESSION
from proof.chaos.mutants.image_guards import IMAGES
from proof.chaos.mutants.plan_guards import PLANS
from proof.chaos.mutants.safeguard import Safeguard
from proof.chaos.mutants.trace_guards import TRACES

EXACTLY_ONCE = "tests/usecases/reconcile/test_exactly_once.py"
UNKNOWN = "tests/usecases/reconcile/test_unknown_outcomes.py"
SIGHTING = "tests/domain/cloud/test_observation.py"
TURNS = "tests/contracts/instances/test_leases_contract.py"
COLLECT = "tests/usecases/orphans/test_collect.py"
SHARED = "tests/usecases/orphans/test_shared_installation.py"
LATE = "tests/usecases/reconcile/test_late_machines.py"
REUSED = "tests/usecases/reconcile/test_reused_cloud_ids.py"
REUSED_STORE = "tests/contracts/instances/test_reused_cloud_ids_contract.py"
ORPHAN = "tests/domain/orphans/test_orphan.py"
FAILURES = "tests/adapters/novita/test_failures.py"
EXCHANGE = "tests/adapters/novita/test_exchange.py"
LEADERSHIP = "tests/usecases/replicas/test_leadership.py"
LEADERSHIP_CONTRACT = "tests/contracts/replicas/test_leadership_contract.py"
LOST_HISTORY = "tests/usecases/cloud/test_lost_history.py"
HEALTH_ROUNDS = "tests/usecases/reconcile/health/test_run_health_round.py"
TRUST = "tests/usecases/cloud/test_trust.py"
ACCOUNTS = "tests/proof/chaos/test_accounts.py"
KEY_SECRETS = "tests/usecases/webhooks/test_key_secrets.py"
CAPACITY = "tests/usecases/reconcile/test_wait_for_capacity.py"
DISK_PRICE = "tests/usecases/instances/test_disk_price.py"
METER = "tests/domain/costs/meter/test_meter.py"
METERING = "tests/domain/costs/meter/test_metering.py"
METERS = "tests/contracts/costs/test_meters_contract.py"
COST_REPORT = "tests/usecases/costs/test_report.py"
JUDGEMENT = "tests/domain/budgets/test_judgement.py"
REVIEW = "tests/domain/budgets/test_review.py"
BUDGETS_STORE = "tests/contracts/budgets/test_budgets_contract.py"
BUDGET_STORIES = "tests/usecases/budgets/test_budgets.py"
ENVIRONMENT = "tests/usecases/secrets/test_environment.py"
VOLUMES = "tests/entrypoints/http/routes/test_volumes.py"
PREWARMS = "tests/entrypoints/http/routes/cloud/test_prewarms.py"
EGRESS_TARGETS = "tests/adapters/egress/test_client_targets.py"

RENTING = (
    Safeguard(
        "intent before the call",
        "usecases/reconcile/rent.py",
        "        leased, attempt, plan = await self._record_intent("
        "leased, best, template, ranking)\n"
        "        return await self._call(leased, attempt, best, template, envs, decided_s, plan)\n",
        "        before = leased\n"
        "        saved: list[Any] = []\n"
        "        class Later:\n"
        "            async def save(self, leased: LeasedInstance, change: Any) -> LeasedInstance:\n"
        "                saved.append(change)\n"
        "                return leased\n"
        "        lazy = replace(self, instance_leases=Later())\n"
        "        _, attempt, plan = await lazy._record_intent("
        "leased, best, template, ranking)\n"
        "        return await self._call(before, attempt, best, template, envs, decided_s, plan)\n",
        (f"{UNKNOWN}::test_a_create_is_on_record_before_it_reaches_the_cloud",),
    ),
    Safeguard(
        "variables that cannot be read rent nothing",
        "usecases/reconcile/rent.py",
        "            envs = await self.environments.opened(leased.instance)\n",
        "            envs = ()\n",
        (f"{ENVIRONMENT}::test_with_another_key_nothing_is_rented_and_the_reason_is_told",),
    ),
    Safeguard(
        "the tag cannot be set by a variable",
        "domain/workload/envs.py",
        "    if name.upper() == TAG_VARIABLE:\n",
        "    if False:\n",
        ("tests/domain/workload/test_envs.py::test_the_tag_cannot_be_set",),
    ),
    Safeguard(
        "one open attempt, in the database",
        "adapters/sql/schema/migrations/versions/0001_first_schema.py",
        '"one_open_attempt",\n        "attempt",\n        ["instance_id"],\n        unique=True,',
        '"one_open_attempt",\n        "attempt",\n        ["instance_id"],\n        unique=False,',
        (f"{TURNS}::TestOneOpenAttempt",),
    ),
    Safeguard(
        "lists are read before sightings",
        "adapters/sql/instances/leases.py",
        "    lists = _lists_since(connection, _evidence_needed_since(it, attempts))\n"
        "    observations = _observations(connection, row, attempts)\n",
        "    observations = _observations(connection, row, attempts)\n"
        "    lists = _lists_since(connection, _evidence_needed_since(it, attempts))\n",
        (f"{TURNS}::TestListsBeforeSightings",),
    ),
    Safeguard(
        "no call for an attempt that was not taken down",
        "adapters/sql/instances/write.py",
        '        raise StaleWrite(f"instance {it.instance_id} has an unresolved create call already")\n',
        "        pass\n",
        (f"{TURNS}::TestOneOpenAttempt",),
    ),
    Safeguard(
        "settling time",
        "domain/cloud/observation.py",
        "    needed = settling.settle if witnessed else settling.settle_without_witness\n",
        "    needed = settling.list_spacing\n",
        (
            f"{EXACTLY_ONCE}::test_a_create_that_had_no_effect_is_repeated_only_after_the_settling_time",
            SIGHTING,
        ),
    ),
    Safeguard(
        "settling time without a witness",
        "domain/cloud/observation.py",
        "        return self.settle * 5\n",
        "        return self.settle\n",
        (SIGHTING,),
    ),
    Safeguard(
        "three clean lists",
        "domain/cloud/observation.py",
        "CLEAN_LISTS_NEEDED = 3\n",
        "CLEAN_LISTS_NEEDED = 1\n",
        (SIGHTING,),
    ),
    Safeguard(
        "a list without any witness is not believed",
        "domain/cloud/observation.py",
        "        return self.complete and self.witness is not Witness.MISSING\n",
        "        return self.complete\n",
        (f"{EXACTLY_ONCE}::test_an_outage_that_answers_with_empty_lists_is_not_believed", SIGHTING),
    ),
    Safeguard(
        "the count begins anew when a witness appears",
        "domain/cloud/observation.py",
        "        if clean and clean[-1].witness is not record.witness:\n            clean.clear()\n",
        "",
        (f"{SIGHTING}::test_a_create_is_given_up_only_on_good_evidence",),
    ),
    Safeguard(
        "an incomplete list proves no absence",
        "domain/cloud/observation.py",
        "        return self.complete and self.witness is not Witness.MISSING\n",
        "        return self.witness is not Witness.MISSING\n",
        (f"{EXACTLY_ONCE}::test_a_list_whose_pages_do_not_fit_together_proves_no_absence", SIGHTING),
    ),
    Safeguard(
        "a total that does not fit makes a list incomplete",
        "adapters/novita/pages.py",
        "        return not self.inconsistent and self.rows == self.total\n",
        "        return True\n",
        ("tests/adapters/novita/test_pages.py",),
    ),
    Safeguard(
        "a clock that jumps is not time that was watched",
        "domain/cloud/observation.py",
        "            waited += min(record.started_at - before, settling.list_spacing)\n",
        "            waited += record.started_at - before\n",
        (f"{SIGHTING}::test_a_clock_that_jumps_ahead_is_not_time_that_was_watched",),
    ),
    Safeguard(
        "exact tag",
        "usecases/reconcile/resolve_attempt.py",
        "        if machine_tag(it.machine) == attempt.tag and it.machine.phase is not Phase.ABSENT\n",
        "        if it.machine.phase is not Phase.ABSENT\n",
        (
            f"{UNKNOWN}::test_the_machine_of_an_earlier_call_is_taken_for_what_it_is_and_not_for_that_of_a_later_one",
        ),
    ),
    Safeguard(
        "the tag stands at the end of a name",
        "domain/cloud/tag.py",
        '_TAG = re.compile(rf"--({_PLACE}-([1-9][0-9]{{0,8}})(?:-([a-z0-9]{{6}}))?)\\Z")\n',
        '_TAG = re.compile(rf"--({_PLACE}-([1-9][0-9]{{0,8}})(?:-([a-z0-9]{{6}}))?)")\n',
        ("tests/domain/cloud/test_tag.py",),
    ),
    Safeguard(
        "a tag of any number can be read",
        "domain/cloud/tag.py",
        '_TAG = re.compile(rf"--({_PLACE}-([1-9][0-9]{{0,8}})(?:-([a-z0-9]{{6}}))?)\\Z")\n',
        '_TAG = re.compile(rf"--({_PLACE}-([1-9][0-9]{{0,3}})(?:-([a-z0-9]{{6}}))?)\\Z")\n',
        ("tests/domain/cloud/test_tag.py",),
    ),
    Safeguard(
        "an open attempt is resolved before anything else",
        "domain/instance/lifecycle/next_step.py",
        "    if attempt is not None and attempt.is_open:\n        return _resolve(instance, now)\n",
        "",
        (
            "tests/domain/instance/lifecycle/test_properties.py::test_an_open_attempt_is_resolved_whatever_the_goal",
        ),
    ),
    Safeguard(
        "no create before the first look",
        "usecases/reconcile/rent.py",
        "        if not await self.has_listed():\n",
        "        if False:\n",
        (
            "tests/usecases/reconcile/test_restored_database.py::test_nothing_is_rented_before_the_cloud_was_seen",
        ),
    ),
    Safeguard(
        "a lost tag stops creates",
        "usecases/reconcile/verify_tag.py",
        "        await self.flags.put(CREATES_BLOCKED, reason)\n",
        "",
        ("tests/usecases/reconcile/test_advance.py::test_creates_stop_when_the_cloud_does_not_keep_our_tag",),
    ),
    Safeguard(
        "a machine that vanished is not rented again",
        "domain/instance/lifecycle/next_step.py",
        '            return Fail(VANISHED, "the machine vanished from the cloud before it was usable")\n',
        "            return Rent()\n",
        (
            "tests/domain/instance/lifecycle/test_next_step.py",
            "tests/domain/instance/lifecycle/test_model.py",
        ),
    ),
    Safeguard(
        "a restart without an answer is not repeated",
        "domain/instance/lifecycle/restart.py",
        "    if not is_overdue(instance, now, RESTART_SEEN_WITHIN):\n        return LookForRestart()\n",
        "    if True:\n        return Restart()\n",
        (
            "tests/usecases/reconcile/start/test_restart.py"
            "::test_one_without_answer_and_effect_ends_as_unknown_and_is_not_repeated",
        ),
    ),
    Safeguard(
        "a few unknown outcomes are enough",
        "usecases/reconcile/rent.py",
        "UNKNOWN_OUTCOMES_MAX = 3\n",
        "UNKNOWN_OUTCOMES_MAX = 10**6\n",
        (f"{UNKNOWN}::test_three_creates_without_answer_and_effect_are_the_end",),
    ),
    Safeguard(
        "a key with a limit pays no more than was counted",
        "usecases/instances/launch.py",
        "            wish = replace(wish, hourly_usd_max=hourly_usd)\n",
        "            pass\n",
        ("tests/entrypoints/http/routes/access/test_keys.py::test_what_was_counted_is_all_that_it_may_cost",),
    ),
    Safeguard(
        "a clock that is set ahead ends no wait for capacity",
        "usecases/reconcile/rent.py",
        "timedelta(seconds=seconds) + self.clock_steps.ahead_since(it.created_at)\n",
        "timedelta(seconds=seconds)\n",
        (f"{CAPACITY}::test_a_wait_lasts_as_long_as_was_promised_whatever_the_clock_does",),
    ),
    Safeguard(
        "on demand is not bought before its time",
        "usecases/reconcile/choose_offer.py",
        "    if spot_only:\n",
        "    if False:\n",
        (
            "tests/usecases/reconcile/test_fallback.py"
            "::test_without_spot_it_is_rented_on_demand_after_the_time_and_not_before",
        ),
    ),
    Safeguard(
        "each way to pay has its own price under the cap",
        "domain/instance/offer_ranking.py",
        "    return offer.hourly_usd(mode_of(offer, wish), wish.gpu_num, wish.disk_gb)\n",
        "    return offer.hourly_usd(wish.billing_mode, wish.gpu_num, wish.disk_gb)\n",
        (
            "tests/domain/instance/test_offer_ranking.py::test_each_way_to_pay_has_its_own_price_under_the_cap",
        ),
    ),
    Safeguard(
        "a wait does not write for ever",
        "usecases/reconcile/rent.py",
        "        told = () if is_told else (*plan, new_event)\n",
        "        told = (*plan, new_event)\n",
        (f"{CAPACITY}::test_f40_the_same_refusal_is_told_once_an_hour",),
    ),
    Safeguard(
        "the disk counts in the price cap",
        "domain/instance/offer_ranking.py",
        "    if wish.hourly_usd_max is not None and price > wish.hourly_usd_max:\n",
        "    gpus_usd = price - offer.disk.hourly_usd(wish.disk_gb)\n"
        "    if wish.hourly_usd_max is not None and gpus_usd > wish.hourly_usd_max:\n",
        (f"{DISK_PRICE}::test_a_limit_that_the_disk_exceeds_is_refused_before_anything_is_rented",),
    ),
    Safeguard(
        "the disk counts in what a key spends",
        "domain/instance/quota.py",
        "        return instance.hourly_usd\n",
        "        return instance.rental.gpu_hourly_usd * instance.wish.gpu_num\n",
        (f"{DISK_PRICE}::test_a_limited_key_pays_for_the_disk",),
    ),
)

STORE = (
    Safeguard(
        "stopped disks count in what a key spends",
        "adapters/sql/instances/write.py",
        "Decimal(int(micro_usd + disks_usd - own_usd)) / MICROS",
        "Decimal(int(micro_usd - own_usd)) / MICROS",
        (
            "tests/contracts/access/test_api_keys_contract.py::TestQuota::test_what_is_stopped_counts_with_its_disk_and_not_against_its_own_start",
        ),
    ),
    Safeguard(
        "lease token in a save",
        "adapters/sql/instances/write.py",
        '_THIS_VERSION.where(instance.c.lease_token == sa.bindparam("its_token"))\n',
        "_THIS_VERSION\n",
        (f"{TURNS}::TestSave",),
    ),
    Safeguard(
        "a commit is kept whatever the server was told",
        "adapters/sql/postgres/engine.py",
        "{**SESSION_TIMEOUTS, **DURABLE_COMMIT}.items()",
        "SESSION_TIMEOUTS.items()",
        (
            "tests/adapters/sql/postgres/test_engine.py::test_commits_are_sure_unless_the_url_itself_wants_it_otherwise",
        ),
    ),
    Safeguard(
        "version in a save",
        "adapters/sql/instances/write.py",
        '    instance.c.version == sa.bindparam("its_version"),\n',
        "",
        (f"{TURNS}::TestSave",),
    ),
    Safeguard(
        "one turn at a time",
        "adapters/sql/instances/leases.py",
        '            instance.c.lease_until <= sa.bindparam("now", type_=instance.c.lease_until.type),\n',
        "            sa.true(),\n",
        (f"{TURNS}::TestLease",),
    ),
    Safeguard(
        "webhooks in the transaction of what they tell",
        "adapters/sql/instances/write.py",
        "        _INSERT_DELIVERY.defer(connection, delivery_row(told))\n",
        "        pass\n",
        ("tests/contracts/instances/test_instances_contract.py",),
    ),
    Safeguard(
        "rows that wait go in before anything else is asked",
        "adapters/sql/engine/database.py",
        '        event.listen(engine, "before_cursor_execute", lambda connection, *_: flush(connection))\n',
        "        pass\n",
        ("tests/adapters/sql/engine/test_batched_inserts.py::test_whoever_asks_next_finds_them",),
    ),
    Safeguard(
        "rows of a transaction that came to nothing are forgotten",
        "adapters/sql/engine/transactions.py",
        "        discard_pending(connection)\n",
        "",
        ("tests/adapters/sql/engine/test_batched_inserts.py::test_nothing_of_what_failed_comes_later",),
    ),
    Safeguard(
        "one claim, one instance",
        "adapters/sql/instances/store.py",
        "                claim_instance(connection, claim, change.instance.id, now)\n",
        "                pass\n",
        ("tests/contracts/access/test_idempotency_contract.py",),
    ),
    Safeguard(
        "a damaged file is refused",
        "adapters/sql/schema/integrity_check.py",
        '    if verdict != "ok":\n        return str(verdict)\n',
        "",
        ("tests/adapters/sql/schema/test_find_damage.py",),
    ),
    Safeguard(
        "one process on one file",
        "bootstrap/data_dir.py",
        "            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)\n",
        ("tests/ops/test_backup.py::TestRestore::test_a_running_server_is_not_disturbed",),
    ),
    Safeguard(
        "a copy is read through",
        "adapters/sql/backup.py",
        "        if (problem := find_damage(here)) is not None:\n",
        "        if (problem := None) is not None:\n",
        ("tests/ops/test_backup.py::TestBackup",),
    ),
    Safeguard(
        "writes begin as writes",
        "adapters/sql/engine/database.py",
        '    begin = "BEGIN IMMEDIATE" if writer else "BEGIN"\n',
        '    begin = "BEGIN"\n',
        ("tests/adapters/sql/engine/test_database.py", "tests/adapters/sql/engine/test_unavailable.py"),
    ),
    Safeguard(
        "every commit is on the disk",
        "adapters/sql/engine/database.py",
        '        "synchronous=FULL",\n',
        '        "synchronous=OFF",\n',
        ("tests/adapters/sql/engine/test_database_file.py", "tests/adapters/sql/engine/test_database.py"),
    ),
)

REMOVAL = (
    Safeguard(
        "a health round counts for the run that it asked",
        "usecases/reconcile/health/run_health_round.py",
        "        if not _is_about(leased, asked):\n",
        "        if False:\n",
        (
            f"{HEALTH_ROUNDS}::test_a_round_that_fails_after_a_new_start_deletes_nothing",
            f"{HEALTH_ROUNDS}::test_a_round_that_ends_after_a_delete_says_nothing",
        ),
    ),
    Safeguard(
        "nobody is given up who was not asked",
        "domain/instance/health.py",
        "    if any(it.status is EndpointStatus.PENDING for it in health.endpoints):\n",
        "    if False:\n",
        (
            "tests/usecases/reconcile/health/test_check_health.py"
            "::test_who_could_not_be_asked_is_not_given_up_when_the_time_is_over",
        ),
    ),
    Safeguard(
        "absence takes two lists",
        "domain/cloud/observation.py",
        "            and sighting.missing_lists >= 2\n",
        "",
        (SIGHTING,),
    ),
    Safeguard(
        "a delete lasts until the absence is proven",
        "domain/instance/lifecycle/next_step.py",
        "    if instance.cloud_id is None or observation.phase is Phase.ABSENT:\n"
        "        return Become(Status.DELETED)\n",
        "    if instance.cloud_id is None or observation.phase in (Phase.ABSENT, Phase.UNKNOWN):\n"
        "        return Become(Status.DELETED)\n",
        (
            "tests/domain/instance/lifecycle/test_next_step_goals.py::test_not_seen_is_no_proof_that_a_delete_is_done",
        ),
    ),
    Safeguard(
        "two sightings of a surplus machine",
        "domain/orphans/orphan.py",
        "    return seen_at - judged_at >= settling.second_observation\n",
        "    return True\n",
        (
            "tests/domain/orphans/test_orphan.py::test_the_second_sighting_counts_after_a_sixth_of_the_settling_time",
        ),
    ),
    Safeguard(
        "the brake",
        "domain/orphans/orphan.py",
        "    if due + lately <= allowed:\n        return None\n",
        "    if due >= 0:\n        return None\n",
        (
            "tests/domain/orphans/test_orphan.py::test_no_more_than_two_or_a_tenth_of_the_herd_go_by_themselves",
        ),
    ),
    Safeguard(
        "what others own is never ours",
        "domain/orphans/orphan.py",
        "    if tag.installation != installation:\n",
        "    if False:\n",
        ("tests/domain/orphans/test_orphan.py",),
    ),
    Safeguard(
        "the machine of an open call is no orphan",
        "domain/orphans/orphan.py",
        "    if records.attempt.is_open:\n        return None\n",
        "",
        ("tests/domain/orphans/test_orphan.py",),
    ),
    Safeguard(
        "the ledger goes by the records as they are now",
        "usecases/orphans/ledger.py",
        "        candidates = await self.orphans.candidates()\n"
        "        if not candidates:\n            return ()\n",
        "        candidates = getattr(self.orphans, '_kept', None) or await self.orphans.candidates()\n"
        "        self.orphans._kept = await self.orphans.candidates()\n"
        "        if not candidates:\n            return ()\n",
        (COLLECT,),
    ),
    Safeguard(
        "nothing is collected while the cloud is in trouble",
        "usecases/orphans/collect.py",
        '        if not record.believable or self.breaker_state() != "CLOSED":\n',
        "        if not record.believable:\n",
        (f"{COLLECT}::test_while_the_cloud_is_in_trouble_nothing_is_collected",),
    ),
    Safeguard(
        "nothing is collected by a list that is not believed",
        "usecases/orphans/collect.py",
        '        if not record.believable or self.breaker_state() != "CLOSED":\n',
        '        if self.breaker_state() != "CLOSED":\n',
        (f"{COLLECT}::test_a_list_that_is_not_believed_changes_nothing",),
    ),
)

WIRE = (
    Safeguard(
        "nothing is written twice by the library below",
        "adapters/novita/exchange.py",
        "    if progress.written:\n        raise _AlreadySent\n",
        "",
        (f"{EXCHANGE}::test_nothing_is_ever_written_twice_by_the_library_below",),
    ),
    Safeguard(
        "a change goes out once",
        "adapters/novita/transport.py",
        '            return await self._attempt(_Call("POST", path, send, turns, may_probe))\n',
        "            try:\n"
        '                return await self._attempt(_Call("POST", path, send, turns, may_probe))\n'
        "            except NoReply:\n"
        '                return await self._attempt(_Call("POST", path, send, turns, may_probe))\n',
        (EXCHANGE, "tests/adapters/novita/test_transport.py"),
    ),
    Safeguard(
        "no redirects from the cloud",
        "adapters/novita/exchange.py",
        "method, self._url(path), allow_redirects=False,",
        "method, self._url(path), allow_redirects=True,",
        (f"{EXCHANGE}::test_redirects_are_not_followed",),
    ),
    Safeguard(
        "a server error is no clear no",
        "adapters/novita/failures.py",
        "REFUSAL_STATUSES = frozenset({400, 401, 402, 403, 404, 409, 422})\n",
        "REFUSAL_STATUSES = frozenset({400, 401, 402, 403, 404, 408, 409, 422, 500, 502, 503, 504})\n",
        (f"{FAILURES}::test_anything_else_leaves_it_open_whether_a_machine_was_rented",),
    ),
    Safeguard(
        "a lost reply is no refusal",
        "adapters/novita/transport.py",
        "            error = failures.lost_reply(str(failed))\n",
        "            error = failures.not_sent(str(failed))\n",
        (f"{EXCHANGE}::test_a_reset_after_the_request_has_an_unknown_outcome_for_every_change",),
    ),
    Safeguard(
        "a body without an id is no refusal",
        "adapters/novita/cloud.py",
        "        if not cloud_id:\n            raise failures.outcome_unknown(reply)\n",
        "        if not cloud_id:\n            raise failures.unreadable()\n",
        (
            "tests/adapters/novita/test_cloud.py::test_a_create_answered_with_garbage_may_have_rented_a_machine",
        ),
    ),
    Safeguard(
        "a create is no probe",
        "adapters/novita/cloud.py",
        "may_probe=False",
        "may_probe=True",
        ("tests/adapters/novita/test_transport.py", "tests/adapters/novita/test_cloud.py"),
    ),
    Safeguard(
        "no redirects from receivers",
        "adapters/egress/client.py",
        "data=body, allow_redirects=False\n",
        "data=body, allow_redirects=True\n",
        ("tests/adapters/egress/test_client_replies.py",),
    ),
    Safeguard(
        "private targets are refused after they were resolved",
        "adapters/egress/client.py",
        "        return check_dns_answers(answers, self._policy)\n",
        "        return tuple(answers)\n",
        (EGRESS_TARGETS,),
    ),
    Safeguard(
        "private targets are refused in the URL",
        "adapters/egress/client.py",
        "        target = check_url(url, self._policy)\n",
        '        target = check_url(url, type(self._policy).parse("0.0.0.0/0,::/0"))\n',
        (EGRESS_TARGETS,),
    ),
    Safeguard(
        "the signature is over the bytes that are sent",
        "domain/webhooks/signing.py",
        '    content = f"{event_id}.{timestamp}.".encode("utf-8", "replace") + body\n',
        '    content = f"{event_id}.{timestamp}.".encode("utf-8", "replace") + body.strip()\n',
        ("tests/domain/webhooks/test_signing.py",),
    ),
    Safeguard(
        "an event never overtakes an earlier one that was not tried",
        "domain/webhooks/dispatch.py",
        "    if not earlier.tries:\n",
        "    if False:\n",
        ("tests/domain/webhooks/test_dispatch.py::test_an_earlier_event_that_was_never_tried_goes_first",),
    ),
    Safeguard(
        "a webhook and the end of its job are one transaction",
        "adapters/sql/webhooks/outbox.py",
        "            job_rows.finish_job(connection, update.finished_job, now)\n",
        "            pass\n",
        ("tests/contracts/webhooks/test_outbox_contract.py::TestRecordTry",),
    ),
    Safeguard(
        "each key signs with its own secret",
        "usecases/webhooks/key_secrets.py",
        "        own = self.ring.key_signing_secrets(key_id, record, now)\n",
        "        own = self.ring.key_signing_secrets('', replace(record, nonce=''), now)\n",
        (f"{KEY_SECRETS}::test_the_events_of_a_keys_instances_are_signed_with_its_own_secret_only",),
    ),
    Safeguard(
        "the common secret signs for a key with its own only where that was asked for",
        "usecases/webhooks/key_secrets.py",
        "        return own + (self.common if self.also_common or record.follows_common(now) else ())\n",
        "        return own + self.common\n",
        (f"{KEY_SECRETS}::test_the_events_of_a_keys_instances_are_signed_with_its_own_secret_only",),
    ),
    Safeguard(
        "what cannot be signed with a key's own secret is not sent with the common one",
        "usecases/webhooks/key_secrets.py",
        "        if not own:\n            return ()\n",
        "        if not own:\n            return None\n",
        (f"{KEY_SECRETS}::test_without_its_root_key_nothing_is_signed_with_another",),
    ),
    Safeguard(
        "nor when the key is no longer there",
        "usecases/webhooks/key_secrets.py",
        "        if key is None:\n            return ()\n        if key.webhook_secret is None:\n",
        "        if key is None or key.webhook_secret is None:\n",
        (
            f"{KEY_SECRETS}::test_what_belongs_to_a_key_that_is_no_longer_there_is_not_signed_with_the_common_secret",
        ),
    ),
    Safeguard(
        "a delivery knows whose secret signs it when its instance is forgotten",
        "adapters/sql/webhooks/outbox.py",
        "        owner=it.owner or instance_owner or ADMIN_ID,\n",
        "        owner=instance_owner or ADMIN_ID,\n",
        (f"{KEY_SECRETS}::test_a_replay_is_signed_with_the_keys_own_secret_when_the_instance_is_forgotten",),
    ),
    Safeguard(
        "and so does one of an older version",
        "adapters/sql/retention.py",
        "        _keep_owners(connection, gone)\n",
        "",
        (f"{KEY_SECRETS}::test_a_replay_is_signed_with_the_keys_own_secret_when_the_instance_is_forgotten",),
    ),
    Safeguard(
        "only the key itself is shown its secret",
        "usecases/webhooks/key_secrets.py",
        "with_secret=caller.key_id == key_id)\n",
        "with_secret=True)\n",
        (f"{KEY_SECRETS}::test_a_key_sees_its_own_secret_and_others_do_not",),
    ),
    Safeguard(
        "nobody rotates the secret of another key",
        "usecases/webhooks/key_secrets.py",
        "        if not caller.may_see(key_id):\n",
        "        if False:\n",
        (f"{KEY_SECRETS}::test_a_key_sees_its_own_secret_and_others_do_not",),
    ),
    Safeguard(
        "the bytes of a webhook never change",
        "adapters/sql/webhooks/outbox.py",
        'if it.name not in ("id", "body", "owner")),',
        'if it.name not in ("id", "owner")),',
        ("tests/contracts/webhooks/test_outbox_contract.py::TestOutbox",),
    ),
)

REPLICAS = (
    Safeguard(
        "the fence of the watch",
        "adapters/sql/replicas/leadership.py",
        "            if current != fence:\n",
        "            if False:\n",
        (f"{LEADERSHIP}::test_a_look_that_slept_through_the_end_of_its_term_is_not_written_down",),
    ),
    Safeguard(
        "a term that ended and came back is another one",
        "usecases/cloud/observe.py",
        "        if self.leadership.fencing_token != self._known_token:\n",
        "        if False:\n",
        (f"{LEADERSHIP}::test_a_look_during_which_the_duty_went_and_came_back_is_not_written_down_either",),
    ),
    Safeguard(
        "after a loss of the store the account is seen before anything is rented",
        "usecases/cloud/observe.py",
        "        self._has_listed = False\n        self._known = None\n",
        "        self._known = None\n",
        (f"{LOST_HISTORY}::TestRenting::test_a_wish_from_after_the_loss_waits_for_one_look_only",),
    ),
    Safeguard(
        "a create call that the store has lost is given time to show up",
        "usecases/reconcile/rent.py",
        "        if await self.may_have_lost_create(leased.instance):\n",
        "        if False:\n",
        (f"{LOST_HISTORY}::TestRenting::test_a_machine_that_can_only_be_seen_later_is_waited_for",),
    ),
    Safeguard(
        "an instance that ends after a loss of the store takes its machine with it",
        "usecases/reconcile/apply_step.py",
        "        if _ends_without_machine(step, leased):\n",
        "        if False:\n",
        (
            f"{LOST_HISTORY}::TestRenting::test_a_machine_whose_create_call_was_lost_goes_with_its_instance",
            f"{LOST_HISTORY}::TestRenting::test_a_machine_whose_create_call_was_lost_is_bound_even_at_the_deadline",
        ),
    ),
    Safeguard(
        "what was seen is read anew after a loss of the store",
        "usecases/cloud/observe.py",
        "        self._has_listed = False\n        self._known = None\n",
        "        self._has_listed = False\n",
        (f"{LOST_HISTORY}::TestObserving",),
    ),
    Safeguard(
        "a look that is older than a loss of the store is not written down",
        "usecases/cloud/observe.py",
        "        if self._known is not known:\n",
        "        if False:\n",
        (
            f"{LOST_HISTORY}::TestObserving::test_a_look_in_the_middle_of_which_the_store_lost_something_does_not_count",
        ),
    ),
    Safeguard(
        "nor when the loss is noticed by the very transaction that writes it",
        "adapters/sql/replicas/leadership.py",
        "            if self._database.history.generation != generation:\n",
        "            if False:\n",
        (f"{LEADERSHIP_CONTRACT}::test_what_was_concluded_before_a_loss_is_not_written_after_it",),
    ),
    Safeguard(
        "a standby that was not promoted is not asked",
        "adapters/sql/postgres/server_history.py",
        "            raise driver.OperationalError(IN_RECOVERY)\n",
        "            pass\n",
        ("tests/adapters/sql/postgres/test_server_history.py::test_a_standby_is_not_used",),
    ),
    Safeguard(
        "no event has the number of one that was lost",
        "adapters/sql/postgres/server_history.py",
        "                _skip_event_numbers(driver)\n",
        "",
        (
            "tests/adapters/sql/postgres/test_server_history.py"
            "::TestOnAServer::test_the_numbers_of_lost_events_are_not_given_out_a_second_time",
        ),
        is_of_postgres=True,
    ),
    Safeguard(
        "an earlier process's list is no look of ours, whatever the clock says",
        "usecases/cloud/observe.py",
        "        if last is None or last.id <= self._first_list_id:\n",
        "        if last is None:\n",
        (f"{LOST_HISTORY}::TestHasListed",),
    ),
    Safeguard(
        "only the one on duty looks",
        "usecases/cloud/observe.py",
        "        if not self.leadership.is_leader():\n",
        "        if False:\n",
        (f"{LEADERSHIP}::test_only_the_one_on_duty_looks_and_the_other_learns_from_it",),
    ),
    Safeguard(
        "a create is made promptly or not at all",
        "usecases/reconcile/rent.py",
        "            check_send_deadline(self.clock, decided_s)\n",
        "",
        (f"{LEADERSHIP}::test_a_create_call_is_made_promptly_or_not_at_all",),
    ),
    Safeguard(
        "a removal is made promptly or not at all",
        "usecases/reconcile/request_machine.py",
        "            check_send_deadline(self.clock, decided_s)\n",
        "",
        (f"{LEADERSHIP}::test_neither_is_a_removal",),
    ),
    Safeguard(
        "a call that was held up on its way is not sent",
        "adapters/novita/exchange.py",
        "    if progress.is_late():\n",
        "    if False:\n",
        ("tests/adapters/novita/test_transport.py",),
    ),
    Safeguard(
        "a turn that kills its process is given up",
        "adapters/sql/instances/leases.py",
        "row.takeovers >= CRASHES_MAX",
        "False",
        (f"{LEADERSHIP_CONTRACT}::test_a_turn_that_ends_one_process_after_the_other_is_given_up",),
    ),
)

OWNERSHIP = (
    Safeguard(
        "each create call has a random part in its tag",
        "usecases/reconcile/rent.py",
        "            tag=str(Tag(self.installation, instance.key, n, self.nonce())),\n",
        "            tag=str(Tag(self.installation, instance.key, n)),\n",
        (f"{SHARED}::test_the_two_copies_make_different_tags_for_the_same_attempt",),
    ),
    Safeguard(
        "surplus only around the time of the call",
        "domain/orphans/orphan.py",
        "    if not attempt.sent_at - CLOCKS_APART_MAX <= made_at "
        "<= attempt.sent_at + settling.takes_effect_within:\n",
        "    if False:\n",
        (f"{ORPHAN}::test_surplus_is_only_what_was_made_around_the_time_of_our_call",),
    ),
    Safeguard(
        "an environment alone deletes nothing",
        "domain/orphans/orphan.py",
        "    if parse_tag(machine.name) is None:\n",
        "    if False:\n",
        (f"{ORPHAN}::test_a_tag_in_the_environment_alone_never_makes_a_machine_surplus",),
    ),
    Safeguard(
        "name and environment must agree",
        "domain/orphans/orphan.py",
        "    if machine.env_tag and machine.env_tag != attempt.tag:\n",
        "    if False:\n",
        (f"{ORPHAN}::test_a_name_and_an_environment_that_disagree_never_make_a_machine_surplus",),
    ),
    Safeguard(
        "one call makes one machine",
        "domain/orphans/orphan.py",
        "    if attempt.cloud_id not in (None, machine.cloud_id):\n",
        "    if False:\n",
        (
            f"{ORPHAN}::test_a_second_machine_of_a_bound_call_is_reported_and_names_the_first",
            f"{SHARED}::test_a_copied_name_is_reported_and_never_removed",
        ),
    ),
    Safeguard(
        "a late machine is taken by its own instance",
        "usecases/reconcile/bind_found.py",
        "        if late := self._late_machine(leased):\n",
        "        if late := None:\n",
        (f"{LATE}::test_it_is_taken_instead_of_being_collected",),
    ),
    Safeguard(
        "the collector leaves a wanted machine alone",
        "domain/orphans/orphan.py",
        "    if records.attempt.cloud_id is None and records.named is not None "
        "and wants_machine(records.named):\n",
        "    if False:\n",
        (f"{LATE}::test_the_collector_leaves_it_alone_before_the_turn_has_seen_it",),
    ),
    Safeguard(
        "an id that the cloud uses again goes over to the new machine's instance",
        "adapters/sql/instances/write.py",
        "    let_go(connection, holder)\n    return holder.id\n",
        "    return holder.id\n",
        (f"{REUSED_STORE}::test_an_id_goes_over_from_an_instance_whose_machine_is_gone",),
    ),
    Safeguard(
        "a machine that may exist stays with its instance",
        "adapters/sql/instances/write.py",
        "    if not was_machine_proven_gone(holder := instance_of(row)):\n",
        "    if not (holder := instance_of(row)):\n",
        (f"{REUSED_STORE}::test_a_machine_that_may_exist_stays_with_its_instance",),
    ),
    Safeguard(
        "what was seen of a gone machine proves nothing about the next one of its id",
        "usecases/reconcile/advance.py",
        " and listed.changed_at <= bound.closed_at\n",
        " and False\n",
        (f"{REUSED}::test_who_had_the_id_before_proves_nothing_while_no_list_comes",),
    ),
    Safeguard(
        "an instance does not delete the machine that has got its id",
        "usecases/reconcile/advance.py",
        "    is_later = is_machine_of_other_call(listed.machine, it, bound)\n",
        "    is_later = False\n",
        (f"{REUSED}::test_an_id_that_is_used_again_before_its_first_machine_is_proven_gone_goes_over",),
    ),
    Safeguard(
        "a machine of another name and the same age is ours, renamed",
        "domain/instance/lifecycle/conditions.py",
        " and machine.created_at > made_by\n",
        "\n",
        (f"{REUSED}::test_a_machine_that_somebody_has_given_the_name_of_another_stays_with_its_instance",),
    ),
    Safeguard(
        "after a step of the clock the cloud's stamps tell who got an id later",
        "usecases/reconcile/advance.py",
        "    return (is_later or not _was_seen_before_ours(listed, leased)) and",
        "    return not _was_seen_before_ours(listed, leased) and",
        ("tests/proof/chaos/test_schedules.py::test_a_seed_that_was_broken_once_holds",),
    ),
    Safeguard(
        "whose name and environment agree is of that call, whatever the clocks say",
        "domain/instance/lifecycle/conditions.py",
        "    return machine.env_tag == str(parse_tag(machine.name)) or was_made_later(machine, it, bound)\n",
        "    return was_made_later(machine, it, bound)\n",
        (f"{REUSED}::test_the_next_machine_of_an_id_is_not_taken_for_one_that_no_list_has_shown",),
    ),
    Safeguard(
        "which machine of an id is the later is told by the cloud's own clock",
        "domain/instance/lifecycle/conditions.py",
        "    made_by = it.machine_made_at or bound.closed_at\n",
        "    made_by = bound.closed_at\n",
        (f"{REUSED}::test_a_delete_is_not_repeated_on_the_next_machine_of_the_id",),
    ),
    Safeguard(
        "a delete is repeated on our own machine only",
        "usecases/reconcile/apply_step.py",
        "        if (whose := await self.own_machine.before_removal(leased)) is not Ownership.OURS:\n",
        "        if (whose := Ownership.OURS) is not Ownership.OURS:\n",
        (f"{REUSED}::test_a_delete_is_not_repeated_on_the_next_machine_of_the_id",),
    ),
    Safeguard(
        "nothing is stopped or removed unseen under an id that may be another's",
        "usecases/reconcile/own_machine.py",
        "        return _has_shown(last, shown) and age is not None and age <= LISTED_LATELY\n",
        "        return _has_shown(last, shown)\n",
        (f"{REUSED}::test_a_machine_that_no_list_shows_is_not_stopped_or_removed_unseen",),
    ),
    Safeguard(
        "what stands for a question about a machine is what the last list has shown of it",
        "usecases/reconcile/own_machine.py",
        "        leased = await self.instance_leases.refresh(leased)\n",
        "",
        (f"{REUSED}::test_what_was_read_before_the_last_list_says_nothing_about_that_list",),
    ),
    Safeguard(
        "a list that took long is as old as its begin",
        "domain/cloud/observation.py",
        "        return took + self.reading.longest_until(now)\n",
        "        return self.reading.longest_until(now)\n",
        ("tests/domain/cloud/test_observation.py::test_a_list_is_as_old_as_its_begin",),
    ),
    Safeguard(
        "a list that would not have missed a machine does not stand for it",
        "usecases/reconcile/own_machine.py",
        "        return _has_shown(last, shown) and age is not None and age <= LISTED_LATELY\n",
        "        return age is not None and age <= LISTED_LATELY\n",
        (f"{REUSED}::test_a_machine_that_lists_do_not_miss_because_the_clock_was_set_back_is_asked_for",),
    ),
    Safeguard(
        "a machine that was kept after a failure is known to be gone when it is",
        "domain/instance/lifecycle/next_step.py",
        "    if observation.phase is Phase.ABSENT and keeps_machine(instance):\n",
        "    if False:\n",
        (
            f"{REUSED}"
            "::test_an_id_goes_over_from_an_instance_that_failed_and_kept_its_machine_until_somebody_removed_it",
        ),
    ),
    Safeguard(
        "an end is written down although the cloud cannot be asked",
        "usecases/reconcile/advance.py",
        "            if not is_over:\n                raise\n",
        "            raise\n",
        (
            "tests/usecases/reconcile/test_endings.py"
            "::test_an_end_is_written_down_although_the_cloud_cannot_be_asked",
        ),
    ),
    Safeguard(
        "a start that is refused does not put aside a goal that came meanwhile",
        "usecases/reconcile/start/start_machine.py",
        "        if isinstance(error, OutOfStock):\n",
        "        if isinstance(error, OutOfStock):\n"
        "            leased = await self.instance_leases.refresh(leased)\n",
        ("tests/usecases/instances/test_change_goal.py::test_a_delete_during_a_start_that_is_refused_wins",),
    ),
    Safeguard(
        "an instance that has had its machine takes no other one with it",
        "usecases/reconcile/apply_step.py",
        "    return ends and leased.instance.last_cloud_id is None and leased.open_attempt is None\n",
        "    return ends and leased.instance.cloud_id is None and leased.open_attempt is None\n",
        (f"{REUSED}::test_an_instance_that_has_had_a_machine_does_not_take_another_of_its_tag_away_with_it",),
    ),
    Safeguard(
        "how old a list is, is told by the time since, however the clock was set",
        "domain/clock_reading.py",
        "        return max(by_wall, later.uptime - self.uptime)\n",
        "        return by_wall\n",
        (f"{REUSED}::test_a_list_is_not_taken_for_a_late_one_because_the_clock_was_set_back",),
    ),
    Safeguard(
        "a stop under an id that may be another's is preceded by a question",
        "usecases/reconcile/apply_step.py",
        "        if (whose := await self.own_machine.before_stop(leased)) is not Ownership.OURS:\n",
        "        if (whose := Ownership.OURS) is not Ownership.OURS:\n",
        (f"{REUSED}::test_a_machine_that_no_list_shows_is_not_stopped_or_removed_unseen",),
    ),
    Safeguard(
        "nothing is stopped or removed under an id that the cloud has just denied",
        "usecases/reconcile/own_machine.py",
        "            return Ownership.DENIED\n",
        "            return Ownership.OURS\n",
        (f"{REUSED}::test_a_machine_that_one_answer_denies_is_not_stopped_or_removed_by_its_id",),
    ),
    Safeguard(
        "a vanished instance does not come back with another machine of its id",
        "usecases/reconcile/advance.py",
        "    return _was_seen_before_ours(listed, leased) or is_later or was_machine_proven_gone(it)\n",
        "    return _was_seen_before_ours(listed, leased) or is_later\n",
        (f"{REUSED}::test_an_instance_whose_machine_vanished_does_not_come_back_with_one_that_seems_older",),
    ),
    Safeguard(
        "a machine under the id of a lost one is not removed by its tag alone",
        "domain/orphans/orphan.py",
        "    if holder is not None and not _is_made_later(machine, holder, records.bound_attempt):\n",
        "    if False:\n",
        (f"{REUSED}::test_a_vanished_machine_that_comes_back_under_the_tag_of_a_given_up_call_is_reported",),
    ),
    Safeguard(
        "a machine that we had is ours by its tag too",
        "domain/orphans/orphan.py",
        "    tag = owner_tag(machine)\n    if tag is None:\n",
        "    if records.bound is not None:\n"
        '        return OrphanFinding(OrphanVerdict.SURPLUS, "", records.bound.id)\n'
        "    tag = owner_tag(machine)\n    if tag is None:\n",
        (f"{COLLECT}::test_a_machine_without_our_tag_under_the_id_of_one_that_we_had_is_foreign",),
    ),
    Safeguard(
        "a second user of our id raises the alarm",
        "usecases/orphans/ledger.py",
        "        if not await self.alarm.is_proof(entry.orphan.machine, attempts):\n",
        "        if True:\n",
        (f"{SHARED}::test_a_copy_beside_its_original_rents_once_more_and_both_machines_live",),
    ),
    Safeguard(
        "the machine of a second user is not taken",
        "usecases/reconcile/bind_found.py",
        "            if await self.alarm.is_proof(machine, leased.attempts):\n",
        "            if False:\n",
        (f"{SHARED}::test_a_turn_that_sees_it_before_the_collector_does_not_take_it_either",),
    ),
    Safeguard(
        "what an earlier life made raises no alarm",
        "domain/orphans/shared_installation.py",
        "    if machine.created_at is None or machine.created_at <= since:\n        return False\n",
        "",
        (f"{SHARED}::test_machines_of_an_earlier_life_raise_no_alarm",),
    ),
    Safeguard(
        "the alarm stops creates",
        "usecases/reconcile/rent.py",
        "        if reason := await self.flags.first(INSTALLATION_SHARED, CREATES_BLOCKED):\n",
        "        if reason := await self.flags.get(CREATES_BLOCKED):\n",
        (f"{SHARED}::test_the_machine_of_an_instance_that_we_never_had_is_a_sign_too",),
    ),
    Safeguard(
        "the alarm stops the collector",
        "usecases/orphans/collect.py",
        "        if await self.flags.first(INSTALLATION_SHARED, COLLECTOR_BRAKED) is not None:\n",
        "        if await self.flags.get(COLLECTOR_BRAKED) is not None:\n",
        (f"{SHARED}::test_the_alarm_stops_the_collector",),
    ),
    Safeguard(
        "under the alarm nothing is given back by itself",
        "usecases/reconcile/apply_step.py",
        "        if not wanted and (reason := await self.alarm.reason()):\n",
        "        if False and (reason := await self.alarm.reason()):\n",
        (f"{SHARED}::test_under_the_alarm_a_failed_instance_keeps_its_machine_and_a_deleted_one_does_not",),
    ),
)

IDENTITY = (
    Safeguard(
        "another key is confirmed before anything is done, in a storm",
        "usecases/reconcile/advance.py",
        "        if not await self.account.is_confirmed():\n",
        "        if False:\n",
        (f"{ACCOUNTS}::test_while_another_account_is_shown_nobody_is_told_a_loss_and_nothing_is_done",),
    ),
    Safeguard(
        "the brake on vanishing, in a storm",
        "usecases/cloud/observe.py",
        "        if record.believable and await self.vanishing.holds(changed, known, listing):\n",
        "        if False:\n",
        (f"{ACCOUNTS}::test_while_another_account_is_shown_nobody_is_told_a_loss_and_nothing_is_done",),
    ),
    Safeguard(
        "what one list lacks is judged together",
        "usecases/cloud/vanishing.py",
        "        missing = await self.observations.bound_to(unlisted(known, listed, confirmed_at))\n",
        "        missing = lost\n",
        (f"{TRUST}::TestVanishing::test_a_few_that_were_missed_before_the_others_are_held_with_them",),
    ),
    Safeguard(
        "a database belongs to one cloud",
        "domain/cloud/identity.py",
        "    return CloudClaim.REFUSED\n",
        "    return CloudClaim.TAKES\n",
        ("tests/domain/cloud/test_identity.py",),
    ),
    Safeguard(
        "another key is confirmed before anything is done",
        "usecases/reconcile/advance.py",
        "        if not await self.account.is_confirmed():\n",
        "        if False:\n",
        (f"{TRUST}::TestAnotherKey",),
    ),
    Safeguard(
        "a list of an account that is not confirmed proves nothing",
        "usecases/cloud/observe.py",
        "        is_ours = await self.account.examine(listing)\n",
        "        is_ours = True\n",
        (f"{TRUST}::TestAnotherKey",),
    ),
    Safeguard(
        "losses that another replica has just believed count for the brake",
        "usecases/cloud/vanishing.py",
        "        lately = await self._believed_lately(now)\n",
        "        lately = getattr(self.flags, '_lately', [])\n"
        "        self.flags._lately = lately\n"
        "        lately.append((0.0, bound.lost))\n"
        "        lately = lately[:-1]\n",
        (f"{TRUST}::TestVanishing::test_what_another_replica_has_believed_just_now_counts_too",),
    ),
    Safeguard(
        "the brake on vanishing",
        "usecases/cloud/observe.py",
        "        if record.believable and await self.vanishing.holds(changed, known, listing):\n",
        "        if False:\n",
        (f"{TRUST}::TestVanishing",),
    ),
)

MONEY = (
    Safeguard(
        "a key sees its own money",
        "usecases/costs/report.py",
        "query = CostQuery(period, by, label, owner=caller.owner)",
        "query = CostQuery(period, by, label)",
        (f"{COST_REPORT}::test_any_other_key_sees_its_own_money_and_no_more",),
    ),
    Safeguard(
        "the bill is for admins",
        "usecases/costs/report.py",
        "await self._billed(period, now) if caller.sees_all else None",
        "await self._billed(period, now)",
        (f"{COST_REPORT}::test_any_other_key_sees_its_own_money_and_no_more",),
    ),
    Safeguard(
        "a key sees its own leftovers",
        "usecases/costs/leftovers.py",
        "spans = await self._costs.open_spans(caller.owner)",
        "spans = await self._costs.open_spans()",
        ("tests/usecases/costs/test_leftovers.py",),
    ),
    Safeguard(
        "a list of volumes with a gap ends none of them",
        "adapters/novita/billing.py",
        "        if not found.complete:\n",
        "        if False:\n",
        ("tests/adapters/novita/test_billing.py",),
    ),
    Safeguard(
        "a bill that is away keeps nobody from renting",
        "adapters/novita/transport.py",
        "        view._breaker = breaker\n",
        "        view._breaker = self._breaker\n",
        ("tests/bootstrap/test_billing.py",),
    ),
    Safeguard(
        "a bill that is not whole yet is no drift",
        "usecases/costs/reconcile.py",
        "            if is_settled(day, fetched_at):\n",
        "            if True:\n",
        ("tests/usecases/costs/test_reconcile.py",),
    ),
)

SPANS = (
    Safeguard(
        "a clock that was set while another account was shown is noticed",
        "usecases/cloud/observe.py",
        "            reading=read,\n",
        "            reading=read if is_ours else None,\n",
        (f"{TRUST}::TestAnotherKey::test_a_clock_that_is_set_meanwhile_costs_no_hour",),
    ),
    Safeguard(
        "what is overlooked after a step of the clock is put in doubt, disk and GPUs",
        "usecases/cloud/metering.py",
        " and cloud_id not in self._overlooked:\n",
        " and cloud_id not in state.unclear:\n",
        ("tests/proof/chaos/test_schedules.py::test_a_seed_that_was_broken_once_holds",),
    ),
    Safeguard(
        "the cloud's stamp may be of a clock that was not set with ours",
        "domain/costs/meter/metering.py",
        "        found.append(stamp + shift)\n",
        "        found.append(stamp)\n",
        ("tests/domain/costs/meter/test_metering.py",),
    ),
    Safeguard(
        "a time that the clock has skipped is of the clock after it",
        "domain/clock_reading.py",
        "    return min(shown or reckoned, default=moment)\n",
        "    return min(shown, default=moment)\n",
        ("tests/domain/test_clock_reading.py",),
    ),
    Safeguard(
        "a list and what it costs are written together",
        "adapters/sql/instances/observations.py",
        "            charged = [] if metering is None else keep_meters(connection, metering, changed)\n",
        "            charged = []\n",
        (f"{METERS}::test_a_stop_ends_it_and_a_crash_repeats_both_or_neither",),
    ),
    Safeguard(
        "what a machine cost stays with its instance when another gets its id",
        "adapters/sql/costs/write.py",
        "    ended = {it.id: it for it in spans if it.id and it.ended_by == REPLACED}\n",
        "    ended: dict[int, CostSpan] = {}\n",
        (f"{METERS}::test_what_a_machine_cost_stays_with_its_instance_when_its_id_is_given_to_another",),
    ),
    Safeguard(
        "a price on a machine that is far from what was agreed is not believed",
        "domain/costs/meter/tariff.py",
        "    return shown if shown is not None and abs(shown - agreed) <= agreed * PRICE_MOVE_MAX else",
        "    return shown if shown is not None else",
        ("tests/domain/costs/meter/test_tariff.py",),
    ),
    Safeguard(
        "what stood still before any list could be believed may run again since then",
        "domain/costs/meter/edges.py",
        "        return now if ended is None else min(ended.lo, now)\n",
        "        return now\n",
        (
            "tests/domain/costs/meter/test_meter.py"
            "::test_what_stood_still_before_any_list_could_be_believed_may_run_again_since_then",
        ),
    ),
    Safeguard(
        "a machine that is found by its tag costs what its attempt agreed",
        "domain/costs/meter/of_instance.py",
        "        price = made_by.gpu_hourly_usd if is_same else None\n",
        "        price = None\n",
        (f"{METERS}::test_a_machine_that_is_found_by_its_tag_costs_what_its_attempt_agreed",),
    ),
    Safeguard(
        "what a copy of the database has made costs our instance nothing, although it has its machine's id",
        "domain/costs/meter/of_instance.py",
        "            is_anothers = by_id is not None and is_machine_of_other_call(machine, bound, by_id)\n",
        "            is_anothers = False\n",
        ("tests/domain/costs/meter/test_of_instance.py",),
    ),
    Safeguard(
        "what no list has shown is placed by the time since its call, however the clock was set",
        "usecases/reconcile/apply_step.py",
        "            change = replace(change, reading=self.read_clocks())\n",
        "            pass\n",
        ("tests/usecases/costs/test_unseen_machines.py",),
    ),
    Safeguard(
        "a machine is not taken for seen by a list that does not show it, to give it its price",
        "usecases/cloud/metering.py",
        "            if it.missing_since is None and cloud_id not in listed:\n",
        "            if it.missing_since is None and cloud_id not in {*listed, *state.unpriced}:\n",
        ("tests/usecases/cloud/test_metering.py",),
    ),
    Safeguard(
        "a machine that gets an id whose machine has ended costs what was agreed for it",
        "domain/costs/meter/gpu.py",
        "    return it.terms is None or ended.lo >= it.terms.sent_at\n",
        "    return True\n",
        (f"{METER}::test_a_machine_that_gets_an_id_whose_machine_has_ended_costs_what_was_agreed_for_it",),
    ),
    Safeguard(
        "what was moving when another machine took its id may have run until then",
        "domain/costs/meter/gpu.py",
        '    return CostSpan(before.machine.cloud_id, CostKind.GPU, rate, edge, "unseen", edge, REPLACED)\n',
        "    return None\n",
        (f"{METER}::test_what_was_moving_when_another_took_its_id_may_have_run_until_then",),
    ),
    Safeguard(
        "before a step of the clock only a believable list makes sure",
        "domain/costs/meter/metering.py",
        "    seen_at = None if previous is None else previous.started_at - seam.step\n",
        "    seen_at = seam.before if previous is None else previous.started_at - seam.step\n",
        (METERING,),
    ),
    Safeguard(
        "an instance gets the spans from before it had its machine",
        "adapters/sql/costs/binding.py",
        "    connection.execute(sa.update(meter).where(nobodys).values(**owned))\n",
        "",
        (f"{METERS}::test_an_instance_that_gets_its_machine_later_gets_its_spans_too",),
    ),
    Safeguard(
        "a stopped machine pays for its disk",
        "domain/costs/meter/disk.py",
        "    if it.is_gone:\n"
        '        if span is not None:\n            yield from ended_spans(it, span, "removed")\n',
        "    if it.is_gone or it.after.machine.phase == 'stopped':\n"
        '        if span is not None:\n            yield from ended_spans(it, span, "removed")\n',
        (METER,),
    ),
    Safeguard(
        "before an ordered end it is in doubt",
        "domain/costs/meter/edges.py",
        "    if asked is not None:\n        yield only_doubt(span, Edge(edge.lo, asked), by)\n",
        "",
        (METER,),
    ),
    Safeguard(
        "a machine that no list has shown costs until its removal is proven",
        "ports/instances.py",
        "        return not self.instance.releasing "
        "and (has_ended or was_machine_proven_gone(self.instance))\n",
        "        return has_ended\n",
        (f"{METERS}::test_a_machine_that_no_list_has_shown_is_in_doubt_until_its_removal_is_proven",),
    ),
    Safeguard(
        "a start is paid at the price of today",
        "domain/costs/meter/reading.py",
        "        if not again:\n",
        "        if True:\n",
        (METER,),
    ),
    Safeguard(
        "what ran before the ledger is metered from the first look",
        "usecases/cloud/metering.py",
        "            first_look = frozenset(self._unmetered & listed)\n",
        "            first_look = frozenset()\n",
        ("tests/adapters/sql/schema/test_migrate_meter.py",),
    ),
    Safeguard(
        "what was settled without a version is shown in lists",
        "usecases/instances/list_page.py",
        "    if kept is None or kept[0] != it.version or kept[1] != it.cost:\n",
        "    if kept is None or kept[0] != it.version:\n",
        ("tests/usecases/instances/test_list_page.py",),
    ),
    Safeguard(
        "where the lists before are not vouched for, a machine may have begun since the last that was",
        "domain/costs/meter/edges.py",
        "    return begin if it.previous.is_vouched else min(begin, it.vouched_at or begin)\n",
        "    return begin\n",
        (METER,),
    ),
    Safeguard(
        "when a call went out is told by the time since, however often the clock was set",
        "domain/clock_reading.py",
        "    if then is not None and now is not None and then.boot_id == now.boot_id:\n",
        "    if False:\n",
        (f"{METERS}::test_a_call_is_placed_by_the_time_since_although_the_clock_was_set_twice_unnoticed",),
    ),
    Safeguard(
        "what has ended since the last believable list came before what begins now",
        "domain/costs/meter/edges.py",
        "    since = it.previous.started_at if ended is None else max(it.previous.started_at, ended.lo)\n",
        "    since = it.previous.started_at\n",
        (METER,),
    ),
    Safeguard(
        "a machine that is not ours has its price as soon as it costs something",
        "usecases/cloud/metering.py",
        "                or (_begins_to_cost(before, it) and not self._is_ours(it.machine))\n",
        "",
        (
            "tests/usecases/costs/test_late_prices.py"
            "::test_a_machine_that_was_taken_for_gone_comes_back_with_its_price",
        ),
    ),
    Safeguard(
        "both ends of an edge are by the clock of one list",
        "domain/costs/meter/metering.py",
        "    return Edge(min(earliest(edge.lo, seams, now), edge.lo + moved), edge.hi)\n",
        "    return Edge(earliest(edge.lo, seams, now), edge.hi)\n",
        (METERING,),
    ),
    Safeguard(
        "a machine of ours is metered from its call",
        "domain/costs/meter/edges.py",
        "        return min(it.terms.sent_at, now)\n",
        "        return it.previous.started_at\n",
        (METER,),
    ),
    Safeguard(
        "an unknown word ends no span",
        "domain/costs/meter/gpu.py",
        "    elif it.is_missed or phase is Phase.UNKNOWN:\n",
        "    elif it.is_missed:\n",
        (METER,),
    ),
    Safeguard(
        "missing once ends no span",
        "domain/costs/meter/reading.py",
        "MISSING_LISTS_NEEDED = 2\n",
        "MISSING_LISTS_NEEDED = 1\n",
        (METER,),
    ),
    Safeguard(
        "an end lies after the last list that showed it",
        "domain/costs/meter/edges.py",
        "        lo = span.began.lo if it.previous is None else max(span.began.lo, it.previous.started_at)\n",
        "        lo = it.this.finished_at\n",
        (METER,),
    ),
    Safeguard(
        "what was not sure is in doubt at the end",
        "domain/costs/meter/edges.py",
        "    if span.sure_until is not None:\n        lo = span.sure_until\n",
        "    if False:\n        lo = span.began.lo\n",
        (METER,),
    ),
    Safeguard(
        "the first list without a machine was its end",
        "domain/costs/meter/edges.py",
        "        hi = min(hi, span.missed_at)\n",
        "        pass\n",
        (METER,),
    ),
    Safeguard(
        "a list that nobody vouches for is no end",
        "domain/costs/meter/reading.py",
        "        return self.this.finished_at if self.is_missed and self.this.is_vouched else None\n",
        "        return self.this.finished_at if self.is_missed else None\n",
        (METER,),
    ),
    Safeguard(
        "what comes back may have been paid for all along",
        "domain/costs/meter/edges.py",
        "        return min(ended.lo, now)\n",
        "        return now\n",
        (METER,),
    ),
    Safeguard(
        "what is first seen in its removal may have run",
        "domain/costs/meter/gpu.py",
        "    if it.is_new or it.was_gone or _may_have_run(it):\n",
        "    if it.was_gone:\n",
        (METER,),
    ),
    Safeguard(
        "what was started anew may have stood still",
        "domain/costs/meter/gpu.py",
        "    if it.was_started_anew or (was_unclear and span.sure_until is not None):\n",
        "    if was_unclear and span.sure_until is not None:\n",
        (METER,),
    ),
    Safeguard(
        "a step of the clock is cut out",
        "domain/costs/meter/clock_seam.py",
        '    new = replace(span, id=0, began=Edge(after, after), began_by="clock")\n',
        '    new = replace(span, id=0, began=Edge(before, before), began_by="clock")\n',
        (METER,),
    ),
    Safeguard(
        "what was there before we looked is not ours to charge",
        "domain/costs/meter/edges.py",
        "    if it.previous is None:\n        return now\n    if it.terms is not None:\n",
        "    if it.previous is None:\n        return it.created_at or now\n    if it.terms is not None:\n",
        (METER,),
    ),
    Safeguard(
        "another machine under the same id has a meter of its own",
        "domain/costs/meter/reading.py",
        "        return not self.is_missed and "
        "machine_tag(self.before.machine) != machine_tag(self.after.machine)\n",
        "        return False\n",
        (METER,),
    ),
)

BUDGETS = (
    Safeguard(
        "what is accepted and not billed yet counts in a budget",
        "domain/budgets/judgement.py",
        "doubt_nano(promised.unbilled_hourly, rules.horizon)\n",
        "0\n",
        (JUDGEMENT,),
    ),
    Safeguard(
        "a strict budget counts whole leases",
        "domain/budgets/judgement.py",
        "    time = demand.lease if budget.strict and demand.lease is not None else rules.horizon\n",
        "    time = rules.horizon\n",
        (JUDGEMENT,),
    ),
    Safeguard(
        "a budget that is used up accepts nothing",
        "domain/budgets/judgement.py",
        "    if budget.is_exhausted_at(now):\n        left = 0\n    elif wanted <= left:\n",
        "    if wanted <= left:\n",
        (JUDGEMENT,),
    ),
    Safeguard(
        "a strict budget wants a lease",
        "domain/budgets/judgement.py",
        "    if budget.strict and demand.lease is None:\n",
        "    if False:\n",
        (JUDGEMENT,),
    ),
    Safeguard(
        "a budget ends things before its amount is passed",
        "domain/budgets/review.py",
        "    return spending.ahead(rules.lead) >= budget.amount\n",
        "    return spending.spent >= budget.amount\n",
        (REVIEW,),
    ),
    Safeguard(
        "nothing but a higher amount sets a budget free",
        "domain/budgets/review.py",
        "    if after.exhausted and raised and not is_used_up(after, spending, rules):\n",
        "    if after.exhausted and not is_used_up(after, spending, rules):\n",
        (REVIEW,),
    ),
    Safeguard(
        "budgets judge in the transaction that accepts",
        "adapters/sql/instances/write.py",
        "    check_budgets(connection, change, now)\n    _INSERT_INSTANCE",
        "    _INSERT_INSTANCE",
        (f"{BUDGETS_STORE}::TestAccept::test_fifty_at_once_in_three_processes_are_ten",),
    ),
    Safeguard(
        "starts are judged by budgets",
        "usecases/instances/change_goal.py",
        "        judged_by = self.budget_rules if self.budgets.current() else None\n",
        "        judged_by = None\n",
        (f"{BUDGET_STORIES}::test_it_stays_used_up_until_the_amount_is_raised",),
    ),
    Safeguard(
        "a longer lease is judged by a strict budget",
        "usecases/instances/change_lease.py",
        "        return replace(self.budget_rules, only_strict=True)\n",
        "        return None\n",
        (f"{BUDGET_STORIES}::test_a_strict_one_holds_whole_leases",),
    ),
    Safeguard(
        "hours that the clock has skipped use no budget up",
        "usecases/budgets/review.py",
        "        if self._is_premature(spending):\n            return\n",
        "",
        (f"{BUDGET_STORIES}::test_a_wall_clock_that_is_set_ahead_uses_nothing_up",),
    ),
    Safeguard(
        "what a budget has counted is all that it may cost",
        "usecases/instances/launch.py",
        " or budgets.binds(caller.key_id, request.labels)\n",
        "\n",
        (f"{BUDGET_STORIES}::test_what_was_counted_is_all_that_it_may_cost",),
    ),
)

CREATED_ONCE = (
    Safeguard(
        "the intent of a volume or prewarm task is durable before the call",
        "usecases/cloud/create_once.py",
        "        if not await self.flags.swap(",
        "        if False and not await self.flags.swap(",
        (
            f"{VOLUMES}::test_the_intent_is_durable_before_the_call_and_bars_a_second_one",
            f"{PREWARMS}::test_the_intent_is_durable_before_the_call_and_bars_a_second_one",
        ),
    ),
    Safeguard(
        "a volume or prewarm task is looked for once more when no other may begin",
        "usecases/cloud/create_once.py",
        "        await self._look_again(intent, check_absent)\n",
        "",
        (
            f"{VOLUMES}::test_of_two_creates_whose_first_looks_both_found_nothing_one_is_sent",
            f"{PREWARMS}::test_of_two_creates_whose_first_looks_both_found_nothing_one_is_sent",
        ),
    ),
    Safeguard(
        "an answer that was lost is no proof that a volume or prewarm task was not made",
        "usecases/cloud/create_once.py",
        "            if witness is None:\n                raise self._not_known(",
        "            if witness is None:\n                await self.forget(intent.flag, intent.text)\n"
        "                raise self._not_known(",
        (
            f"{VOLUMES}::test_a_lost_answer_is_looked_after_by_name_and_never_repeated_at_once",
            f"{PREWARMS}::test_a_lost_answer_is_looked_after_and_never_repeated_at_once",
        ),
    ),
    Safeguard(
        "a prewarm task without an answer is not sent again before it could have appeared",
        "usecases/prewarms/create.py",
        "            self.create_once.check_settled(earlier.sent_at)\n",
        "",
        (f"{PREWARMS}::test_a_lost_answer_is_looked_after_and_never_repeated_at_once",),
    ),
    Safeguard(
        "a volume without an answer is not sent again before it could have appeared",
        "usecases/volumes/create.py",
        "            self.create_once.check_settled(before.sent_at)\n",
        "            pass\n",
        (f"{VOLUMES}::test_a_lost_answer_is_looked_after_by_name_and_never_repeated_at_once",),
    ),
    Safeguard(
        "a lost volume is looked for by its name",
        "usecases/volumes/create.py",
        "        if (there := await self._named(wanted.name)) is not None:\n",
        "        if (there := None) is not None:\n",
        (f"{VOLUMES}::test_a_create_that_appears_late_is_taken_for_ours_if_it_is_what_was_asked",),
    ),
)

GUARDS = (
    *(*RENTING, *STORE, *REMOVAL, *OWNERSHIP, *WIRE, *REPLICAS, *IDENTITY, *MONEY, *SPANS, *ENDS),
    *(*BUDGETS, *CAPACITY_LINE, *SUCCESSION, *DOCTOR, *CREATED_ONCE, *PLANS, *AGENTS),
    *(*IMAGES, *TRACES),
)
