"""The guards of the service: the wire, replicas, access, succession, agents."""

from __future__ import annotations

from proof.chaos.mutants.guard import always, drop, guard, instead, never, part

CLIENT_TARGETS = "tests/adapters/egress/test_client_targets.py"
CLOUD = "tests/adapters/novita/test_cloud.py"
EXCHANGE = "tests/adapters/novita/test_exchange.py"
FAILURES = "tests/adapters/novita/test_failures.py"
TRANSPORT = "tests/adapters/novita/test_transport.py"
SERVER_HISTORY = "tests/adapters/sql/postgres/test_server_history.py"
OTEL_TRACER = "tests/adapters/tracing/test_otel_tracer.py"
TRACED_LEASES = "tests/adapters/tracing/test_traced_leases.py"
LEADERSHIP_CONTRACT = "tests/contracts/replicas/test_leadership_contract.py"
JOBS_CONTRACT = "tests/contracts/jobs/test_jobs_contract.py"
OUTBOX_CONTRACT = "tests/contracts/webhooks/test_outbox_contract.py"
SUCCESSION = "tests/domain/succession/test_succession.py"
FIRST_CONTACT = "tests/ops/test_live_checks.py"
RENTING = "tests/entrypoints/mcp/test_renting.py"
ACCOUNTS = "tests/proof/chaos/test_accounts.py"
LOST_HISTORY = "tests/usecases/cloud/test_lost_history.py"
TRUST = "tests/usecases/cloud/test_trust.py"
LEADERSHIP = "tests/usecases/replicas/test_leadership.py"
FOLLOW = "tests/usecases/succession/test_follow.py"
KEY_SECRETS = "tests/usecases/webhooks/test_key_secrets.py"

SERVICE = (
    # Wire
    guard(
        "nothing is written twice by the library below",
        drop(),
        f"{EXCHANGE}::test_nothing_is_ever_written_twice_by_the_library_below",
    ),
    guard(
        "a change goes out once",
        instead("""
try:
    return await self._attempt(_Call("POST", path, send, turns, may_probe))
except NoReply:
    return await self._attempt(_Call("POST", path, send, turns, may_probe))
"""),
        EXCHANGE,
        TRANSPORT,
    ),
    guard(
        "no redirects from the cloud",
        part("allow_redirects=False", "allow_redirects=True"),
        f"{EXCHANGE}::test_redirects_are_not_followed",
    ),
    guard(
        "a server error is no clear no",
        part(
            "{400, 401, 402, 403, 404, 409, 422}",
            "{400, 401, 402, 403, 404, 408, 409, 422, 500, 502, 503, 504}",
        ),
        f"{FAILURES}::test_anything_else_leaves_it_open_whether_a_machine_was_rented",
    ),
    guard(
        "a lost reply is no refusal",
        instead("error = novita_failures.not_sent(str(failed))"),
        f"{EXCHANGE}::test_a_reset_after_the_request_has_an_unknown_outcome_for_every_change",
    ),
    guard(
        "a body without an id is no refusal",
        instead("raise novita_failures.unreadable()"),
        f"{CLOUD}::test_a_create_answered_with_garbage_may_have_rented_a_machine",
    ),
    guard("a create is no probe", part("may_probe=False", "may_probe=True"), TRANSPORT, CLOUD),
    guard(
        "no redirects from receivers",
        part("allow_redirects=False", "allow_redirects=True"),
        "tests/adapters/egress/test_client_replies.py",
    ),
    guard(
        "private targets are refused after they were resolved",
        instead("return tuple(answers)"),
        CLIENT_TARGETS,
    ),
    guard(
        "private targets are refused in the URL",
        part("self._policy", 'type(self._policy).parse("0.0.0.0/0,::/0")'),
        CLIENT_TARGETS,
    ),
    guard(
        "the signature is over the bytes that are sent",
        part("body", "body.strip()"),
        "tests/domain/webhooks/test_signing.py",
    ),
    guard(
        "an event never overtakes an earlier one that was not tried",
        never(),
        "tests/domain/webhooks/test_dispatch.py::test_an_earlier_event_that_was_never_tried_goes_first",
    ),
    guard(
        "a webhook and the end of its job are one transaction", drop(), f"{OUTBOX_CONTRACT}::TestRecordTry"
    ),
    guard(
        "each key signs with its own secret",
        part(
            "services.rules.webhook_keys.key_signing_secrets(key_id, record, now)",
            "services.rules.webhook_keys.key_signing_secrets('', replace(record, nonce=''), now)",
        ),
        f"{KEY_SECRETS}::test_the_events_of_a_keys_instances_are_signed_with_its_own_secret_only",
    ),
    guard(
        "the common secret signs for a key with its own only where that was asked for",
        instead("return own + services.rules.common_webhook_secrets"),
        f"{KEY_SECRETS}::test_the_events_of_a_keys_instances_are_signed_with_its_own_secret_only",
    ),
    guard(
        "what cannot be signed with a key's own secret is not sent with the common one",
        instead("return None"),
        f"{KEY_SECRETS}::test_without_its_root_key_nothing_is_signed_with_another",
    ),
    guard(
        "nor when the key is no longer there",
        instead(
            """
if key is None or key.webhook_secret is None:
    return None
""",
            n=2,
        ),
        f"{KEY_SECRETS}::test_what_belongs_to_a_key_that_is_no_longer_there_is_not_signed_with_the_common_secret",
    ),
    guard(
        "a delivery knows whose secret signs it when its instance is forgotten",
        part("it.owner or instance_owner or ADMIN_ID", "instance_owner or ADMIN_ID"),
        f"{KEY_SECRETS}::test_a_replay_is_signed_with_the_keys_own_secret_when_the_instance_is_forgotten",
    ),
    guard(
        "only the key itself is shown its secret",
        part("caller.key_id == key_id", "True"),
        f"{KEY_SECRETS}::test_a_key_sees_its_own_secret_and_others_do_not",
    ),
    guard(
        "nobody rotates the secret of another key",
        never(),
        f"{KEY_SECRETS}::test_a_key_sees_its_own_secret_and_others_do_not",
    ),
    guard(
        "the bytes of a webhook never change",
        part('("id", "body", "owner")', '("id", "owner")'),
        f"{OUTBOX_CONTRACT}::TestOutbox",
    ),
    # Replicas
    guard(
        "the fence of the watch",
        never(),
        f"{LEADERSHIP}::test_a_look_that_slept_through_the_end_of_its_term_is_not_written_down",
    ),
    guard(
        "a term that ended and came back is another one",
        never(),
        f"{LEADERSHIP}::test_a_look_during_which_the_duty_went_and_came_back_is_not_written_down_either",
    ),
    guard(
        "after a loss of the store the account is seen before anything is rented",
        drop(),
        f"{LOST_HISTORY}::TestRenting::test_a_wish_from_after_the_loss_waits_for_one_look_only",
    ),
    guard(
        "a create call that the store has lost is given time to show up",
        never(),
        f"{LOST_HISTORY}::TestRenting::test_a_machine_that_can_only_be_seen_later_is_waited_for",
    ),
    guard(
        "an instance that ends after a loss of the store takes its machine with it",
        never(),
        f"{LOST_HISTORY}::TestRenting::test_a_machine_whose_create_call_was_lost_goes_with_its_instance",
        f"{LOST_HISTORY}::TestRenting::test_a_machine_whose_create_call_was_lost_is_bound_even_at_the_deadline",
    ),
    guard("what was seen is read anew after a loss of the store", drop(), f"{LOST_HISTORY}::TestObserving"),
    guard(
        "a look that is older than a loss of the store is not written down",
        never(),
        f"{LOST_HISTORY}::TestObserving::test_a_look_in_the_middle_of_which_the_store_lost_something_does_not_count",
    ),
    guard(
        "nor when the loss is noticed by the very transaction that writes it",
        never(),
        f"{LEADERSHIP_CONTRACT}::test_what_was_concluded_before_a_loss_is_not_written_after_it",
    ),
    guard(
        "a standby that was not promoted is not asked",
        drop(),
        f"{SERVER_HISTORY}::test_a_standby_is_not_used",
    ),
    guard(
        "no event has the number of one that was lost",
        drop(),
        f"{SERVER_HISTORY}::TestOnAServer::test_the_numbers_of_lost_events_are_not_given_out_a_second_time",
        is_of_postgres=True,
    ),
    guard(
        "an earlier process's list is no look of ours, whatever the clock says",
        part("last is None or last.id <= self._first_list_id", "last is None"),
        f"{LOST_HISTORY}::TestHasListed",
    ),
    guard(
        "only the one on duty looks",
        never(),
        f"{LEADERSHIP}::test_only_the_one_on_duty_looks_and_the_other_learns_from_it",
    ),
    guard(
        "a create is made promptly or not at all",
        drop(),
        f"{LEADERSHIP}::test_a_create_call_is_made_promptly_or_not_at_all",
    ),
    guard("a removal is made promptly or not at all", drop(), f"{LEADERSHIP}::test_neither_is_a_removal"),
    guard("a call that was held up on its way is not sent", never(), TRANSPORT),
    guard(
        "a turn that kills its process is given up",
        part("row.takes > TAKES_MAX", "False"),
        f"{JOBS_CONTRACT}::TestTakes",
    ),
    # Identity
    guard(
        "another key is confirmed before anything is done, in a storm",
        never(),
        f"{ACCOUNTS}::test_while_another_account_is_shown_nobody_is_told_a_loss_and_nothing_is_done",
    ),
    guard(
        "the brake on vanishing, in a storm",
        never(),
        f"{ACCOUNTS}::test_while_another_account_is_shown_nobody_is_told_a_loss_and_nothing_is_done",
    ),
    guard(
        "what one list lacks is judged together",
        instead("missing = lost"),
        f"{TRUST}::TestVanishing::test_a_few_that_were_missed_before_the_others_are_held_with_them",
    ),
    guard(
        "a database belongs to one cloud",
        instead("return CloudClaim.TAKES"),
        "tests/domain/cloud/test_identity.py",
    ),
    guard("another key is confirmed before anything is done", never(), f"{TRUST}::TestAnotherKey"),
    guard(
        "a list of an account that is not confirmed proves nothing",
        instead("is_ours = True"),
        f"{TRUST}::TestAnotherKey",
    ),
    guard(
        "losses that another replica has just believed count for the brake",
        instead("lately = []"),
        f"{TRUST}::TestVanishing::test_what_another_replica_has_believed_just_now_counts_too",
    ),
    guard("the brake on vanishing", never(), f"{TRUST}::TestVanishing"),
    # Succession
    guard(
        "one heir for each link",
        never(),
        "tests/contracts/instances/test_lineage_contract.py::test_no_link_has_two",
    ),
    guard(
        "a notice must be in two lists",
        part("announced and seen_again", "announced"),
        f"{FOLLOW}::test_one_list_that_shows_a_notice_is_not_enough",
    ),
    guard(
        "nobody gets an heir that is not wanted",
        part(
            "_next_heir(old, known, lead, now) if old.wants_to_run else None",
            "_next_heir(old, known, lead, now)",
        ),
        SUCCESSION,
    ),
    guard(
        "in the limits an heir takes the place of its predecessor",
        drop(),
        f"{FOLLOW}::test_in_the_limits_of_a_key_the_heir_takes_the_place_of_the_old_one",
    ),
    guard(
        "the limits hold for an heir",
        part("limits=limits if limits.on_rentals else None, judged_by", "judged_by"),
        f"{FOLLOW}::test_a_limit_that_has_become_smaller_refuses_the_heir_and_that_is_told_once",
    ),
    guard(
        "budgets hold for an heir",
        part(", judged_by=rules,", ","),
        f"{FOLLOW}::test_a_budget_holds_for_an_heir_as_for_any_create",
    ),
    guard("no third machine of a lineage", never(), SUCCESSION),
    guard(
        "an heir that failed is gone before there is another",
        part("HeirState.FAILED", "HeirState.GONE"),
        f"{FOLLOW}::test_heirs_that_fail_are_removed_and_followed_by_others_until_there_were_too_many",
    ),
    guard(
        "a stop or delete takes the heir with it",
        drop(),
        f"{FOLLOW}::test_a_stop_or_delete_takes_the_heir_with_it",
    ),
    guard(
        "a delete of an heir that goes already ends its predecessor",
        drop(),
        f"{FOLLOW}::test_deleting_an_heir_that_is_being_removed_because_it_failed_leaves_nothing",
    ),
    guard(
        "an heir has the end of its predecessor",
        part("lease_term=original.lease_term, used_at", "used_at"),
        f"{FOLLOW}::test_the_end_of_the_lease_is_the_same_for_the_heir",
    ),
    guard(
        "no more than so many in a day", never(), f"{SUCCESSION}::test_no_more_than_so_many_are_made_in_a_day"
    ),
    # Doctor
    guard(
        "what the doctor rents has a lease",
        part(", lease=_lease(plan.lease),", ","),
        "tests/ops/doctor/live/test_rentals.py::test_what_it_rents_ends_by_itself_and_has_a_price_limit",
    ),
    guard(
        "the doctor removes what it rented, however it ends",
        drop(),
        "tests/ops/doctor/live/test_rent.py::test_what_breaks_off_is_removed_all_the_same_and_says_why",
    ),
    guard(
        "the doctor spends no more than was agreed",
        never(),
        f"{FIRST_CONTACT}::test_more_than_was_agreed_is_not_spent",
    ),
    # Agents
    guard(
        "an agent spends nothing that a person did not say yes to",
        never(),
        f"{RENTING}::test_nothing_is_rented_unless_the_person_said_yes",
    ),
    guard(
        "where an agent cannot ask only a strict budget stands in",
        always(),
        f"{RENTING}::test_a_client_that_cannot_ask_is_refused_unless_a_strict_budget_holds",
    ),
    guard(
        "an agent asks for more time as it asks for a rental",
        drop(),
        f"{RENTING}::test_to_go_on_for_longer_is_asked_for_as_well",
    ),
    guard("what an agent rents has an end", never(), f"{RENTING}::test_a_plan_without_a_lease_is_not_rented"),
    guard(
        "texts of others are plain",
        instead("visible = text"),
        "tests/entrypoints/mcp/test_tools.py::test_what_others_wrote_stays_data",
    ),
    # Traces
    guard(
        "what is saved is saved whatever is wrong with its spans",
        instead("self._tell(leased.instance, change, saved)"),
        f"{TRACED_LEASES}::test_what_is_saved_is_saved_whatever_is_wrong_with_its_spans",
    ),
    guard(
        "an instance is leased whatever is wrong with its spans",
        instead("self._follow_boot(leased, leased.instance)"),
        f"{TRACED_LEASES}::test_an_instance_is_leased_whatever_is_wrong_with_its_spans",
    ),
    guard(
        "no error of a tracer reaches the work",
        part("except Exception:", "except KeyboardInterrupt:"),
        f"{OTEL_TRACER}::test_what_fails_in_a_tracer_is_counted_and_reaches_nobody",
    ),
)
