"""The guards of the capacity line: one of all who wait calls, and it is the oldest."""

from __future__ import annotations

from proof.chaos.mutants.safeguard import Safeguard

RULES = "tests/domain/instance/test_capacity_line.py"
STORIES = "tests/usecases/capacity/test_line.py"
START_STORIES = "tests/usecases/capacity/test_start_wait.py"
_RULES_FILE = "domain/instance/capacity_line.py"
_RENT_FILE = "usecases/reconcile/rent.py"

CAPACITY_LINE = (
    Safeguard(
        "only the first in line tries",
        "usecases/reconcile/choose_offer.py",
        "        held |= await line.held_for(waiter_of(leased.instance, now), listed, regions)\n",
        "        held |= {}\n",
        (f"{STORIES}::test_a_newcomer_does_not_overtake_whether_it_would_wait_or_not",),
    ),
    Safeguard(
        "the oldest comes first",
        _RULES_FILE,
        "        return self.since, self.instance_id\n",
        "        return self.since.min.replace(tzinfo=self.since.tzinfo), self.instance_id\n",
        (f"{RULES}::test_only_the_oldest_may_try",),
    ),
    Safeguard(
        "a refusal counts for everybody",
        _RENT_FILE,
        "            await self.line.note_refusal(attempt.offer_key, error.message)\n",
        "",
        (f"{STORIES}::test_a_refusal_is_remembered_for_everybody",),
    ),
    Safeguard(
        "an offer rests longer each time",
        _RULES_FILE,
        "    return OfferRest(key, earlier.refusals + 1, now, message)\n",
        "    return OfferRest(key, 1, now, message)\n",
        (f"{RULES}::test_an_offer_rests_twice_as_long_each_time_up_to_ten_minutes",),
    ),
    Safeguard(
        "before anybody waits, one call finds out for all",
        "usecases/capacity/line.py",
        "        if calls.under_way > calls.granted:\n",
        "        if False:\n",
        (f"{STORIES}::test_those_who_would_wait_call_one_at_a_time_until_there_is_stock",),
    ),
    Safeguard(
        "nobody overtakes a call that is under way",
        _RENT_FILE,
        "        waits = None if instance.line_since is None else instance.waiting_for\n",
        "        waits = None\n",
        (f"{STORIES}::test_nobody_tries_an_offer_while_the_first_in_line_does",),
    ),
    Safeguard(
        "who came later does not take what others wait for",
        "usecases/instances/launch.py",
        "            await self._refuse_waited_for(wish, offers, regions)\n",
        "            pass\n",
        (f"{STORIES}::test_a_newcomer_does_not_overtake_whether_it_would_wait_or_not",),
    ),
    Safeguard(
        "a start that waits is not asked for at every pass",
        "usecases/reconcile/start/start_machine.py",
        "            if pause > timedelta(0):\n                return leased, RequeueAfter(pause)\n",
        "            pass\n",
        (f"{START_STORIES}::test_a_pass_in_between_does_not_ask_again",),
    ),
    Safeguard(
        "a clock that is set ahead ends no wait of a start",
        "usecases/reconcile/start/start_machine.py",
        "        return start_waits_until(it) + self.clock_steps.ahead_since(since) - self.clock.now()\n",
        "        return start_waits_until(it) - self.clock.now()\n",
        (f"{START_STORIES}::test_a_clock_that_is_set_ahead_does_not_end_the_wait",),
    ),
)
