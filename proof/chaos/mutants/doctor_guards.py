"""The guards of `gpuherd doctor --live`: what it rents has an end, and costs what somebody agreed to."""

from __future__ import annotations

from proof.chaos.mutants.safeguard import Safeguard

RENT = "tests/ops/doctor/live/test_rent.py"
RENTALS = "tests/ops/doctor/live/test_rentals.py"
COMMAND = "tests/entrypoints/cli/commands/local/test_first_contact.py"

DOCTOR = (
    Safeguard(
        "what the doctor rents has a lease",
        "ops/doctor/live/rentals.py",
        "                lease=_lease(plan.lease),\n",
        "",
        (f"{RENTALS}::test_what_it_rents_ends_by_itself_and_has_a_price_limit",),
    ),
    Safeguard(
        "the doctor removes what it rented, however it ends",
        "ops/doctor/live/rent.py",
        "            await self._remove(story)\n",
        "            pass\n",
        (f"{RENT}::test_what_breaks_off_is_removed_all_the_same_and_says_why",),
    ),
    Safeguard(
        "the doctor spends no more than was agreed",
        "entrypoints/cli/commands/local/first_contact.py",
        "    if order.yes_spend is not None and quote.usd > order.yes_spend:\n",
        "    if False:\n",
        (f"{COMMAND}::test_more_than_was_agreed_is_not_spent",),
    ),
)
