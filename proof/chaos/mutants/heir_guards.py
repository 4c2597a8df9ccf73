"""The guards of succession: one heir for each link, made with good reason, and never a third machine."""

from __future__ import annotations

from proof.chaos.mutants.safeguard import Safeguard

RULES = "tests/domain/succession/test_succession.py"
STORIES = "tests/usecases/succession/test_follow.py"
STORE = "tests/contracts/instances/test_lineage_contract.py"
_RULES_FILE = "domain/succession/succession.py"

SUCCESSION = (
    Safeguard(
        "one heir for each link",
        "adapters/sql/instances/write.py",
        "    if connection.execute(taken).first() is not None:\n",
        "    if False:\n",
        (f"{STORE}::test_no_link_has_two",),
    ),
    Safeguard(
        "a notice must be in two lists",
        "domain/instance/lifecycle/handover.py",
        "        is_notice_confirmed=announced and seen_again,\n",
        "        is_notice_confirmed=announced,\n",
        (f"{STORIES}::test_one_list_that_shows_a_notice_is_not_enough",),
    ),
    Safeguard(
        "nobody gets an heir that is not wanted",
        _RULES_FILE,
        "is_scarce=is_scarce) if old.wants_to_run else None\n",
        "is_scarce=is_scarce)\n",
        (RULES,),
    ),
    Safeguard(
        "in the limits an heir takes the place of its predecessor",
        "domain/instance/quota.py",
        "    if instance.chain is not None and instance.chain.heir is not None:\n        return Usage()\n",
        "",
        (f"{STORIES}::test_in_the_limits_of_a_key_the_heir_takes_the_place_of_the_old_one",),
    ),
    Safeguard(
        "the limits hold for an heir",
        "usecases/succession/make_heir.py",
        "            limits=limits if limits.on_rentals else None,\n",
        "",
        (f"{STORIES}::test_a_limit_that_has_become_smaller_refuses_the_heir_and_that_is_told_once",),
    ),
    Safeguard(
        "budgets hold for an heir",
        "usecases/succession/make_heir.py",
        "            judged_by=self.budget_rules if self.budgets.current() else None,\n",
        "",
        (f"{STORIES}::test_a_budget_holds_for_an_heir_as_for_any_create",),
    ),
    Safeguard(
        "no third machine of a lineage",
        _RULES_FILE,
        "    if not old.is_alone:\n",
        "    if False:\n",
        (RULES,),
    ),
    Safeguard(
        "an heir that failed is gone before there is another",
        "domain/instance/lifecycle/handover.py",
        "    return HeirState.FAILED if heir.status is Status.FAILED else HeirState.COMING\n",
        "    return HeirState.GONE if heir.status is Status.FAILED else HeirState.COMING\n",
        (f"{STORIES}::test_heirs_that_fail_are_removed_and_followed_by_others_until_there_were_too_many",),
    ),
    Safeguard(
        "a stop or delete takes the heir with it",
        "usecases/instances/change_goal.py",
        "            change = await self.end_lineage(before, change)\n",
        "",
        (f"{STORIES}::test_a_stop_or_delete_takes_the_heir_with_it",),
    ),
    Safeguard(
        "a delete of an heir that goes already ends its predecessor",
        "usecases/instances/change_goal.py",
        "                if not await self._predecessor_is_ended(before):\n                    continue\n",
        "",
        (f"{STORIES}::test_deleting_an_heir_that_is_being_removed_because_it_failed_leaves_nothing",),
    ),
    Safeguard(
        "an heir has the end of its predecessor",
        "usecases/succession/make_heir.py",
        "            lease_term=old.lease_term,\n",
        "",
        (f"{STORIES}::test_the_end_of_the_lease_is_the_same_for_the_heir",),
    ),
    Safeguard(
        "no more than so many in a day",
        _RULES_FILE,
        "    if len(counted) >= old.policy.max_replacements:\n",
        "    if False:\n",
        (f"{RULES}::test_no_more_than_so_many_are_made_in_a_day",),
    ),
)
