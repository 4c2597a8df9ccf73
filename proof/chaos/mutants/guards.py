"""The guards: where each of them is, how the code looks without it, and which tests must then fail."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guard:
    """An exact text in one file of the service, and what takes its place."""

    name: str
    file: str
    text: str
    without: str
    # pytest's words: files, or single tests.
    tests: tuple[str, ...]


EXACTLY_ONCE = "tests/usecases/test_exactly_once.py"
UNKNOWN = "tests/usecases/test_unknown_outcomes.py"
SIGHTING = "tests/domain/test_sighting.py"
TURNS = "tests/contracts/test_store_turns_contract.py"
COLLECT = "tests/usecases/test_collect_orphans.py"
FAILURES = "tests/adapters/novita/test_failures.py"
EXCHANGE = "tests/adapters/novita/test_exchange.py"
DUTY = "tests/usecases/test_duty.py"
DUTIES = "tests/contracts/test_duties_contract.py"
DOOR_TARGETS = "tests/adapters/outbound/test_guarded_door_targets.py"

RENTING = (
    Guard(
        "intent before the call",
        "usecases/rent_machine.py",
        "        turn, attempt = await self._intend(turn, ranking.accepted[0], template, ranking)\n"
        "        return await self._call(turn, attempt, ranking.accepted[0], template, decided_s)\n",
        "        before = turn\n"
        "        saved: list[Any] = []\n"
        "        class Later:\n"
        "            async def save(self, turn: Turn, change: Any) -> Turn:\n"
        "                saved.append(change)\n"
        "                return turn\n"
        "        lazy = replace(self, turns=Later())\n"
        "        _, attempt = await lazy._intend(turn, ranking.accepted[0], template, ranking)\n"
        "        return await self._call(before, attempt, ranking.accepted[0], template, decided_s)\n",
        (f"{UNKNOWN}::test_a_create_is_on_record_before_it_reaches_the_cloud",),
    ),
    Guard(
        "one open attempt, in the database",
        "adapters/sql/migrations/versions/0001_first_schema.py",
        '"one_open_attempt",\n        "attempt",\n        ["instance_id"],\n        unique=True,',
        '"one_open_attempt",\n        "attempt",\n        ["instance_id"],\n        unique=False,',
        (f"{TURNS}::TestOneOpenAttempt",),
    ),
    Guard(
        "no call for an attempt that was not taken down",
        "adapters/sql/changes.py",
        '        raise StaleWrite(f"instance {it.instance_id} has an unresolved create call already")\n',
        "        pass\n",
        (f"{TURNS}::TestOneOpenAttempt",),
    ),
    Guard(
        "settling time",
        "domain/sighting.py",
        "    needed = patience.settle if witnessed else patience.settle_without_witness\n",
        "    needed = patience.list_spacing\n",
        (
            f"{EXACTLY_ONCE}::test_a_create_that_had_no_effect_is_repeated_only_after_the_settling_time",
            SIGHTING,
        ),
    ),
    Guard(
        "settling time without a witness",
        "domain/sighting.py",
        "        return self.settle * 5\n",
        "        return self.settle\n",
        (SIGHTING,),
    ),
    Guard(
        "three clean lists",
        "domain/sighting.py",
        "CLEAN_LISTS_NEEDED = 3\n",
        "CLEAN_LISTS_NEEDED = 1\n",
        (SIGHTING,),
    ),
    Guard(
        "a list without any witness is not believed",
        "domain/sighting.py",
        "        return self.complete and self.witness is not Witness.MISSING\n",
        "        return self.complete\n",
        (f"{EXACTLY_ONCE}::test_an_outage_that_answers_with_empty_lists_is_not_believed", SIGHTING),
    ),
    Guard(
        "the count begins anew when a witness appears",
        "domain/sighting.py",
        "        if clean and clean[-1].witness is not record.witness:\n            clean.clear()\n",
        "",
        (f"{SIGHTING}::test_a_create_is_given_up_only_on_good_evidence",),
    ),
    Guard(
        "an incomplete list proves no absence",
        "domain/sighting.py",
        "        return self.complete and self.witness is not Witness.MISSING\n",
        "        return self.witness is not Witness.MISSING\n",
        (f"{EXACTLY_ONCE}::test_a_list_whose_pages_do_not_fit_together_proves_no_absence", SIGHTING),
    ),
    Guard(
        "a total that does not fit makes a list incomplete",
        "adapters/novita/pages.py",
        "        return not self.flawed and self.rows == self.total\n",
        "        return True\n",
        ("tests/adapters/novita/test_pages.py",),
    ),
    Guard(
        "a clock that jumps is not time that was watched",
        "domain/sighting.py",
        "            waited += min(record.started_at - before, patience.list_spacing)\n",
        "            waited += record.started_at - before\n",
        (f"{SIGHTING}::test_a_clock_that_jumps_ahead_is_not_time_that_was_watched",),
    ),
    Guard(
        "exact tag",
        "usecases/resolve_attempt.py",
        "        if tag_on(it.machine) == attempt.tag and it.machine.phase is not Phase.ABSENT\n",
        "        if it.machine.phase is not Phase.ABSENT\n",
        (f"{UNKNOWN}::test_the_machine_of_an_earlier_call_is_not_taken_for_that_of_a_later_one",),
    ),
    Guard(
        "the tag stands at the end of a name",
        "domain/tag.py",
        '_TAG = re.compile(rf"--({MARK}-([a-z0-9]{{8}})-([a-z0-9]{{26}})-([1-9][0-9]{{0,3}}))\\Z")\n',
        '_TAG = re.compile(rf"--({MARK}-([a-z0-9]{{8}})-([a-z0-9]{{26}})-([1-9][0-9]{{0,3}}))")\n',
        ("tests/domain/test_tag.py",),
    ),
    Guard(
        "an open attempt is resolved before anything else",
        "domain/lifecycle.py",
        "    if attempt is not None and attempt.is_open:\n        return _resolve(instance, now)\n",
        "",
        ("tests/domain/test_lifecycle_properties.py::test_an_open_attempt_is_resolved_whatever_the_goal",),
    ),
    Guard(
        "no create before the first look",
        "usecases/rent_machine.py",
        "        if not await self.has_looked():\n",
        "        if False:\n",
        ("tests/usecases/test_restored_database.py::test_nothing_is_rented_before_the_cloud_was_seen",),
    ),
    Guard(
        "a lost tag stops creates",
        "usecases/verify_tag.py",
        "        await self.flags.put(CREATES_BLOCKED, reason)\n",
        "",
        ("tests/usecases/test_advance_instance.py::test_creates_stop_when_the_cloud_does_not_keep_our_tag",),
    ),
    Guard(
        "a machine that vanished is not rented again",
        "domain/lifecycle.py",
        '            return Fail(VANISHED, "the machine vanished from the cloud before it was usable")\n',
        "            return Rent()\n",
        ("tests/domain/test_lifecycle.py", "tests/domain/test_lifecycle_model.py"),
    ),
    Guard(
        "a few unknown outcomes are enough",
        "usecases/rent_machine.py",
        "UNKNOWN_MAX = 3\n",
        "UNKNOWN_MAX = 10**6\n",
        (f"{UNKNOWN}::test_three_creates_without_answer_and_effect_are_the_end",),
    ),
    Guard(
        "a key with a limit pays no more than was counted",
        "usecases/launch_instance.py",
        "            wish = replace(wish, hourly_usd_max=hourly_usd)\n",
        "            pass\n",
        ("tests/entrypoints/http/test_keys.py::test_what_was_counted_is_all_that_it_may_cost",),
    ),
)

STORE = (
    Guard(
        "lease token in a save",
        "adapters/sql/changes.py",
        '    instance.c.lease_token == sa.bindparam("its_token"),\n',
        "",
        (f"{TURNS}::TestSave",),
    ),
    Guard(
        "a commit is kept whatever the server was told",
        "adapters/sql/server/engine.py",
        "{**BOUNDS, **SURE}.items()",
        "BOUNDS.items()",
        (
            "tests/adapters/sql/server/test_engine.py::test_commits_are_sure_unless_the_url_itself_wants_it_otherwise",
        ),
    ),
    Guard(
        "version in a save",
        "adapters/sql/changes.py",
        '    instance.c.version == sa.bindparam("its_version"),\n',
        "",
        (f"{TURNS}::TestSave",),
    ),
    Guard(
        "one turn at a time",
        "adapters/sql/turns.py",
        '            instance.c.lease_until <= sa.bindparam("now", type_=instance.c.lease_until.type),\n',
        "            sa.true(),\n",
        (f"{TURNS}::TestLease",),
    ),
    Guard(
        "webhooks in the transaction of what they tell",
        "adapters/sql/changes.py",
        "        _INSERT_DELIVERY.run_later(connection, delivery_row(told))\n",
        "        pass\n",
        ("tests/contracts/test_store_instances_contract.py",),
    ),
    Guard(
        "rows that wait go in before anything else is asked",
        "adapters/sql/engines.py",
        '        event.listen(engine, "before_cursor_execute", '
        "lambda connection, *_: insert_waiting(connection))\n",
        "        pass\n",
        ("tests/adapters/sql/test_prepared.py::test_whoever_asks_next_finds_them",),
    ),
    Guard(
        "rows of a transaction that came to nothing are forgotten",
        "adapters/sql/transactions.py",
        "        forget_waiting(connection)\n",
        "",
        ("tests/adapters/sql/test_prepared.py::test_nothing_of_what_failed_comes_later",),
    ),
    Guard(
        "one claim, one instance",
        "adapters/sql/instances.py",
        "                claim_instance(connection, claim, change.instance.id, now)\n",
        "                pass\n",
        ("tests/contracts/test_store_claims_contract.py",),
    ),
    Guard(
        "a damaged file is refused",
        "adapters/sql/file_check.py",
        '    if verdict != "ok":\n        return str(verdict)\n',
        "",
        ("tests/adapters/sql/test_read_through.py",),
    ),
    Guard(
        "one process on one file",
        "bootstrap/data_dir.py",
        "            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)\n",
        ("tests/bootstrap/test_backup.py::TestRestore::test_a_running_server_is_not_disturbed",),
    ),
    Guard(
        "a copy is read through",
        "adapters/sql/backup.py",
        "        if (problem := read_through(here)) is not None:\n",
        "        if (problem := None) is not None:\n",
        ("tests/bootstrap/test_backup.py::TestBackup",),
    ),
    Guard(
        "writes begin as writes",
        "adapters/sql/engines.py",
        '    begin = "BEGIN IMMEDIATE" if writer else "BEGIN"\n',
        '    begin = "BEGIN"\n',
        ("tests/adapters/sql/test_database.py", "tests/adapters/sql/test_unavailable.py"),
    ),
    Guard(
        "every commit is on the disk",
        "adapters/sql/engines.py",
        '        "synchronous=FULL",\n',
        '        "synchronous=OFF",\n',
        ("tests/adapters/sql/test_database_file.py", "tests/adapters/sql/test_database.py"),
    ),
)

REMOVAL = (
    Guard(
        "absence takes two lists",
        "domain/sighting.py",
        "            and sighting.missing_lists >= 2\n",
        "",
        (SIGHTING,),
    ),
    Guard(
        "a delete lasts until the absence is proven",
        "domain/lifecycle.py",
        "    if instance.cloud_id is None or sight.phase is Phase.ABSENT:\n"
        "        return Become(Status.DELETED)\n",
        "    if instance.cloud_id is None or sight.phase in (Phase.ABSENT, Phase.UNKNOWN):\n"
        "        return Become(Status.DELETED)\n",
        ("tests/domain/test_lifecycle_goals.py::test_not_seen_is_no_proof_that_a_delete_is_done",),
    ),
    Guard(
        "two sightings of a surplus machine",
        "domain/orphan.py",
        "    return seen_at - judged_at >= patience.second_sighting\n",
        "    return True\n",
        ("tests/domain/test_orphan.py::test_the_second_sighting_counts_after_a_sixth_of_the_settling_time",),
    ),
    Guard(
        "the brake",
        "domain/orphan.py",
        "    if due + lately <= allowed:\n        return None\n",
        "    if due >= 0:\n        return None\n",
        ("tests/domain/test_orphan.py::test_no_more_than_two_or_a_tenth_of_the_herd_go_by_themselves",),
    ),
    Guard(
        "what others own is never ours",
        "domain/orphan.py",
        "    if tag.installation != installation:\n",
        "    if False:\n",
        ("tests/domain/test_orphan.py",),
    ),
    Guard(
        "the machine of an open call is no orphan",
        "domain/orphan.py",
        "    if records.attempt.is_open:\n        return None\n",
        "",
        ("tests/domain/test_orphan.py",),
    ),
    Guard(
        "the ledger goes by the records as they are now",
        "usecases/keep_ledger.py",
        "        strays = await self.orphans.strays()\n        if not strays:\n            return ()\n",
        "        strays = getattr(self.orphans, '_kept', None) or await self.orphans.strays()\n"
        "        self.orphans._kept = await self.orphans.strays()\n"
        "        if not strays:\n            return ()\n",
        (COLLECT,),
    ),
    Guard(
        "nothing is collected while the cloud is in trouble",
        "usecases/collect_orphans.py",
        '        if not record.believable or self.breaker_state() != "CLOSED":\n',
        "        if not record.believable:\n",
        (f"{COLLECT}::test_while_the_cloud_is_in_trouble_nothing_is_collected",),
    ),
    Guard(
        "nothing is collected by a list that is not believed",
        "usecases/collect_orphans.py",
        '        if not record.believable or self.breaker_state() != "CLOSED":\n',
        '        if self.breaker_state() != "CLOSED":\n',
        (f"{COLLECT}::test_a_list_that_is_not_believed_changes_nothing",),
    ),
)

WIRE = (
    Guard(
        "nothing is written twice by the library below",
        "adapters/novita/exchange.py",
        "    if progress.written:\n        raise _SentAlready\n",
        "",
        (f"{EXCHANGE}::test_nothing_is_ever_written_twice_by_the_library_below",),
    ),
    Guard(
        "a change goes out once",
        "adapters/novita/transport.py",
        "            return await self._make(_Call(path, send, turns, may_probe))\n",
        "            try:\n"
        "                return await self._make(_Call(path, send, turns, may_probe))\n"
        "            except NoReply:\n"
        "                return await self._make(_Call(path, send, turns, may_probe))\n",
        (EXCHANGE, "tests/adapters/novita/test_transport.py"),
    ),
    Guard(
        "no redirects from the cloud",
        "adapters/novita/exchange.py",
        "method, self._root + path, allow_redirects=False,",
        "method, self._root + path, allow_redirects=True,",
        (f"{EXCHANGE}::test_redirects_are_not_followed",),
    ),
    Guard(
        "a server error is no clear no",
        "adapters/novita/failures.py",
        "CLEAR_NO = frozenset({400, 401, 402, 403, 404, 409, 422})\n",
        "CLEAR_NO = frozenset({400, 401, 402, 403, 404, 408, 409, 422, 500, 502, 503, 504})\n",
        (f"{FAILURES}::test_anything_else_leaves_it_open_whether_a_machine_was_rented",),
    ),
    Guard(
        "a lost reply is no refusal",
        "adapters/novita/transport.py",
        "            error = failures.lost_reply(str(failed))\n",
        "            error = failures.not_sent(str(failed))\n",
        (f"{EXCHANGE}::test_a_reset_after_the_request_has_an_unknown_outcome_for_every_change",),
    ),
    Guard(
        "a body without an id is no refusal",
        "adapters/novita/cloud.py",
        "        if not cloud_id:\n            raise failures.unclear(reply)\n",
        "        if not cloud_id:\n            raise failures.unreadable()\n",
        (
            "tests/adapters/novita/test_cloud.py::test_a_create_answered_with_garbage_may_have_rented_a_machine",
        ),
    ),
    Guard(
        "a create is no probe",
        "adapters/novita/cloud.py",
        "may_probe=False",
        "may_probe=True",
        ("tests/adapters/novita/test_transport.py", "tests/adapters/novita/test_cloud.py"),
    ),
    Guard(
        "no redirects from receivers",
        "adapters/outbound/guarded_door.py",
        "data=body, allow_redirects=False\n",
        "data=body, allow_redirects=True\n",
        ("tests/adapters/outbound/test_guarded_door_replies.py",),
    ),
    Guard(
        "private targets are refused after they were resolved",
        "adapters/outbound/guarded_door.py",
        "        return check_answers(answers, self._policy)\n",
        "        return tuple(answers)\n",
        (DOOR_TARGETS,),
    ),
    Guard(
        "private targets are refused in the URL",
        "adapters/outbound/guarded_door.py",
        "            target = check_url(url, self._policy)\n",
        '            target = check_url(url, type(self._policy).parse("0.0.0.0/0,::/0"))\n',
        (DOOR_TARGETS,),
    ),
    Guard(
        "the signature is over the bytes that are sent",
        "domain/signing.py",
        '    content = f"{event_id}.{timestamp}.".encode("utf-8", "replace") + body\n',
        '    content = f"{event_id}.{timestamp}.".encode("utf-8", "replace") + body.strip()\n',
        ("tests/domain/test_signing.py",),
    ),
    Guard(
        "the bytes of a webhook never change",
        "adapters/sql/outbox.py",
        'if key not in ("id", "body")}',
        'if key not in ("id",)}',
        ("tests/contracts/test_store_outbox_contract.py::TestOutbox",),
    ),
)

REPLICAS = (
    Guard(
        "the fence of the watch",
        "adapters/sql/fenced.py",
        "            if current != fence:\n",
        "            if False:\n",
        (f"{DUTY}::test_a_look_that_slept_through_the_end_of_its_term_is_not_written_down",),
    ),
    Guard(
        "a term that ended and came back is another one",
        "usecases/observe_cloud.py",
        "        if self.duty.fence != self._known_in:\n",
        "        if False:\n",
        (f"{DUTY}::test_a_look_during_which_the_duty_went_and_came_back_is_not_written_down_either",),
    ),
    Guard(
        "only the one on duty looks",
        "usecases/observe_cloud.py",
        "        if not self.duty.is_held():\n",
        "        if False:\n",
        (f"{DUTY}::test_only_the_one_on_duty_looks_and_the_other_learns_from_it",),
    ),
    Guard(
        "a create is made promptly or not at all",
        "usecases/rent_machine.py",
        "            refuse_late(self.clock, decided_s)\n",
        "",
        (f"{DUTY}::test_a_create_call_is_made_promptly_or_not_at_all",),
    ),
    Guard(
        "a removal is made promptly or not at all",
        "usecases/take_step.py",
        "            refuse_late(self.clock, decided_s)\n",
        "",
        (f"{DUTY}::test_neither_is_a_removal",),
    ),
    Guard(
        "a call that was held up at the door is not sent",
        "adapters/novita/exchange.py",
        "    if progress.is_late():\n",
        "    if False:\n",
        ("tests/adapters/novita/test_transport.py",),
    ),
    Guard(
        "a turn that kills its process is given up",
        "adapters/sql/turns.py",
        "row.takeovers >= CRASHES_MAX",
        "False",
        (f"{DUTIES}::test_a_turn_that_ends_one_process_after_the_other_is_given_up",),
    ),
)

GUARDS = (*RENTING, *STORE, *REMOVAL, *WIRE, *REPLICAS)
