"""The guards of held plans: rented once, by whoever planned it, in time, and never for more."""

from __future__ import annotations

from proof.chaos.mutants.safeguard import Safeguard

ROUTES = "tests/entrypoints/http/routes/instances/test_held_plans.py"
STORE = "tests/contracts/instances/test_held_plans_contract.py"
_LAUNCH = "usecases/instances/launch.py"

PLANS = (
    Safeguard(
        "one plan is one instance",
        _LAUNCH,
        "await self.instances.add(change, *request.claims)\n",
        "await self.instances.add(change, *request.claims[:0])\n",
        (f"{ROUTES}::test_twenty_at_once_rent_one_plan_once",),
    ),
    Safeguard(
        "the claim of a plan is written with its instance",
        "adapters/sql/instances/store.py",
        "            for claim in claims:\n                claim_instance(",
        "            for claim in claims[:1]:\n                claim_instance(",
        (f"{STORE}::test_twenty_at_once_with_one_plan_and_keys_of_their_own_are_one_instance",),
    ),
    Safeguard(
        "a plan never costs more",
        _LAUNCH,
        "    return replace(request, wish=replace(request.wish, hourly_usd_max=request.plan.hourly_usd))\n",
        "    return request\n",
        (f"{ROUTES}::test_a_plan_is_never_rented_for_more",),
    ),
    Safeguard(
        "a plan expires",
        "domain/plans/held_plan.py",
        "        if now >= self.expires_at:\n",
        "        if False:\n",
        (f"{ROUTES}::test_an_expired_plan_is_410",),
    ),
    Safeguard(
        "only who planned it may rent it",
        "adapters/sql/instances/plans.py",
        "held_plan.c.id == plan_id, held_plan.c.owner == owner",
        "held_plan.c.id == plan_id",
        (f"{STORE}::test_a_plan_is_found_by_its_owner_as_it_was_and_by_nobody_else",),
    ),
)
