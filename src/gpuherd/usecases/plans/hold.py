"""Hold: keep a plan for a while, so that it can be rented at its own price."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuherd.clock import Clock, Ids
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.instance.plan import Plan
from gpuherd.domain.plans.held_plan import HELD_FOR, ID_PREFIX, HeldPlan
from gpuherd.ports.access import Sealer
from gpuherd.ports.instances import HeldPlans

# Of the id, in the name of an instance that was given none.
NAME_CHARS = 6


@dataclass(frozen=True)
class HoldPlan:
    """The use case."""

    plans: HeldPlans
    sealer: Sealer
    clock: Clock
    ids: Ids

    async def __call__(self, plan: Plan, body: Mapping[str, Any], caller: Caller) -> HeldPlan | None:
        """Keep what was asked for with what it may cost, and return it; None where it cannot be rented."""
        price = plan.held_usd
        if not plan.fits or price is None:
            return None
        now = self.clock.now()
        plan_id = self.ids.new(ID_PREFIX, now)
        named = {"name": f"plan-{plan_id[-NAME_CHARS:]}", **body}
        held = HeldPlan(plan_id, caller.key_id, json.dumps(named), price, now, now + HELD_FOR)
        await self.plans.add(self._sealed(held) if named.get("envs") else held)
        return held

    def _sealed(self, held: HeldPlan) -> HeldPlan:
        """Return it as it may be stored: the values of variables are secrets."""
        return replace(held, body=self.sealer.seal(Secret(held.body), held.about))
