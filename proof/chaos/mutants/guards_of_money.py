"""The guards of money: what runs is counted, and budgets hold."""

from __future__ import annotations

from proof.chaos.mutants.guard import always, drop, guard, instead, never, part

BUDGETS_CONTRACT = "tests/contracts/budgets/test_budgets_contract.py"
METERS_CONTRACT = "tests/contracts/costs/test_meters_contract.py"
JUDGEMENT = "tests/domain/budgets/test_judgement.py"
REVIEW = "tests/domain/budgets/test_review.py"
METER = "tests/domain/costs/meter/test_meter.py"
METERING = "tests/domain/costs/meter/test_metering.py"
BUDGETS = "tests/usecases/budgets/test_budgets.py"
TRUST = "tests/usecases/cloud/test_trust.py"
LATE_PRICES = "tests/usecases/costs/test_late_prices.py"
REPORT = "tests/usecases/costs/test_report.py"

MONEY = (
    # Money
    guard(
        "a key sees its own money",
        instead("query = CostQuery(period, by, label)"),
        f"{REPORT}::test_any_other_key_sees_its_own_money_and_no_more",
    ),
    guard(
        "the bill is for admins",
        instead("billed = await _billed_days(services, period, now)"),
        f"{REPORT}::test_any_other_key_sees_its_own_money_and_no_more",
    ),
    guard(
        "a key sees its own leftovers",
        instead("spans = await services.stores.costs.open_spans()"),
        "tests/usecases/costs/test_leftovers.py",
    ),
    guard("a list of volumes with a gap ends none of them", never(), "tests/adapters/novita/test_billing.py"),
    guard(
        "a bill that is away keeps nobody from renting",
        instead("view._breaker = self._breaker"),
        "tests/bootstrap/test_billing.py",
    ),
    guard("a bill that is not whole yet is no drift", always(), "tests/usecases/costs/test_reconcile.py"),
    # Spans
    guard(
        "a clock that was set while another account was shown is noticed",
        part("read,", "read if is_ours else None,"),
        f"{TRUST}::TestAnotherKey::test_a_clock_that_is_set_meanwhile_costs_no_hour",
    ),
    guard(
        "what is overlooked after a step of the clock is put in doubt, disk and GPUs",
        part("self._overlooked", "state.unclear"),
        "tests/proof/chaos/test_schedules.py::test_a_seed_that_was_broken_once_holds",
    ),
    guard(
        "the cloud's stamp may be of a clock that was not set with ours",
        instead("found.append(stamp)"),
        METERING,
    ),
    guard(
        "a time that the clock has skipped is of the clock after it",
        instead("return min(shown, default=moment)"),
        "tests/domain/test_clock_reading.py",
    ),
    guard(
        "a list and what it costs are written together",
        instead("charged = []"),
        f"{METERS_CONTRACT}::test_a_stop_ends_it_and_a_crash_repeats_both_or_neither",
    ),
    guard(
        "what a machine cost stays with its instance when another gets its id",
        instead("ended: dict[int, CostSpan] = {}"),
        f"{METERS_CONTRACT}::test_what_a_machine_cost_stays_with_its_instance_when_its_id_is_given_to_another",
    ),
    guard(
        "a price on a machine that is far from what was agreed is not believed",
        instead("return shown if shown is not None else agreed"),
        "tests/domain/costs/meter/test_tariff.py",
    ),
    guard(
        "what stood still before any list could be believed may run again since then",
        instead("return now"),
        f"{METER}::test_what_stood_still_before_any_list_could_be_believed_may_run_again_since_then",
    ),
    guard(
        "a machine that is found by its tag costs what its attempt agreed",
        instead("price = None"),
        f"{METERS_CONTRACT}::test_a_machine_that_is_found_by_its_tag_costs_what_its_attempt_agreed",
    ),
    guard(
        "what a copy of the database has made costs our instance nothing",
        instead("is_anothers = False"),
        "tests/domain/costs/meter/test_of_instance.py",
    ),
    guard(
        "what no list has shown is placed by the time since its call, however the clock was set",
        drop(),
        "tests/usecases/costs/test_unseen_machines.py",
    ),
    guard(
        "a machine is not taken for seen by a list that does not show it, to give it its price",
        part("listed", "{*listed, *state.unpriced}"),
        "tests/usecases/cloud/test_metering.py",
    ),
    guard(
        "a machine that gets an id whose machine has ended costs what was agreed for it",
        instead("return True"),
        f"{METER}::test_a_machine_that_gets_an_id_whose_machine_has_ended_costs_what_was_agreed_for_it",
    ),
    guard(
        "what was moving when another machine took its id may have run until then",
        instead("return None"),
        f"{METER}::test_what_was_moving_when_another_took_its_id_may_have_run_until_then",
    ),
    guard(
        "before a step of the clock only a believable list makes sure",
        part("None if", "seam.before if"),
        METERING,
    ),
    guard(
        "an instance gets the spans from before it had its machine",
        drop(),
        f"{METERS_CONTRACT}::test_an_instance_that_gets_its_machine_later_gets_its_spans_too",
    ),
    guard(
        "a stopped machine pays for its disk",
        part("it.is_gone", "it.is_gone or it.after.machine.phase == 'stopped'"),
        METER,
    ),
    guard("before an ordered end it is in doubt", drop(), METER),
    guard(
        "a machine that no list has shown costs until its removal is proven",
        instead("return has_ended"),
        f"{METERS_CONTRACT}::test_a_machine_that_no_list_has_shown_is_in_doubt_until_its_removal_is_proven",
    ),
    guard("a start is paid at the price of today", always(), METER),
    guard(
        "what ran before the ledger is metered from the first look",
        instead("first_look = frozenset()"),
        "tests/adapters/sql/costs/test_first_look.py",
    ),
    guard(
        "where the lists before are not vouched for, a machine may have begun since the last that was",
        instead("return begin"),
        METER,
    ),
    guard(
        "a call is placed by the time since it, however often the clock was set",
        never(),
        f"{METERS_CONTRACT}::test_a_call_is_placed_by_the_time_since_although_the_clock_was_set_twice_unnoticed",
    ),
    guard(
        "what has ended since the last believable list came before what begins now",
        instead("since = it.previous.started_at"),
        METER,
    ),
    guard(
        "a machine that is not ours has its price as soon as it costs something",
        part(
            "(before.machine, it.machine) or (_begins_to_cost(before, it) and not self._is_ours(it.machine))",
            "(before.machine, it.machine)",
        ),
        f"{LATE_PRICES}::test_a_machine_that_was_taken_for_gone_comes_back_with_its_price",
    ),
    guard(
        "both ends of an edge are by the clock of one list",
        instead("return Edge(earliest(edge.lo, seams, now), edge.hi)"),
        METERING,
    ),
    guard("a machine of ours is metered from its call", instead("return it.previous.started_at"), METER),
    guard(
        "an unknown word ends no span", part("it.is_missed or phase is Phase.UNKNOWN", "it.is_missed"), METER
    ),
    guard("missing once ends no span", instead("MISSING_LISTS_NEEDED = 1"), METER),
    guard("an end lies after the last list that showed it", instead("lo = it.this.finished_at"), METER),
    guard("what was not sure is in doubt at the end", never(), METER),
    guard("the first list without a machine was its end", drop(), METER),
    guard(
        "a list that nobody vouches for is no end",
        part("self.is_missed and self.this.is_vouched", "self.is_missed"),
        METER,
    ),
    guard("what comes back may have been paid for all along", instead("return now"), METER),
    guard(
        "what is first seen in its removal may have run",
        part("it.is_new or it.was_gone or _may_have_run(it)", "it.was_gone"),
        METER,
    ),
    guard(
        "what was started anew may have stood still",
        part(
            "it.was_started_anew or (was_unclear and span.sure_until is not None)",
            "was_unclear and span.sure_until is not None",
        ),
        METER,
    ),
    guard("a step of the clock is cut out", part("Edge(after, after)", "Edge(before, before)"), METER),
    guard(
        "what was there before we looked is not ours to charge", instead("return it.created_at or now"), METER
    ),
    guard("another machine under the same id has a meter of its own", instead("return False"), METER),
    # Budgets
    guard(
        "what is accepted and not billed yet counts in a budget",
        instead("reserved = promised.leased if budget.strict else 0"),
        JUDGEMENT,
    ),
    guard("a strict budget counts whole leases", instead("time = rules.horizon"), JUDGEMENT),
    guard("a budget that is used up accepts nothing", never(), JUDGEMENT),
    guard("a strict budget wants a lease", never(), JUDGEMENT),
    guard(
        "a budget ends things before its amount is passed",
        instead("return spending.spent >= budget.amount"),
        REVIEW,
    ),
    guard(
        "nothing but a higher amount sets a budget free",
        part(
            "after.exhausted and raised and not is_used_up(after, spending, rules)",
            "after.exhausted and not is_used_up(after, spending, rules)",
        ),
        REVIEW,
    ),
    guard(
        "budgets judge in the transaction that accepts",
        drop(),
        f"{BUDGETS_CONTRACT}::TestAccept::test_fifty_at_once_in_three_processes_are_ten",
    ),
    guard(
        "starts are judged by budgets",
        instead("judged_by = None"),
        f"{BUDGETS}::test_it_stays_used_up_until_the_amount_is_raised",
    ),
    guard(
        "a longer lease is judged by a strict budget",
        instead("return None"),
        f"{BUDGETS}::test_a_strict_one_holds_whole_leases",
    ),
    guard(
        "hours that the clock has skipped use no budget up",
        drop(),
        f"{BUDGETS}::test_a_wall_clock_that_is_set_ahead_uses_nothing_up",
    ),
    guard(
        "what a budget has counted is all that it may cost",
        part(
            "caller.limits.max_hourly_usd is not None or budgets.binds(caller.key_id, request.labels)",
            "caller.limits.max_hourly_usd is not None",
        ),
        f"{BUDGETS}::test_what_was_counted_is_all_that_it_may_cost",
    ),
)
