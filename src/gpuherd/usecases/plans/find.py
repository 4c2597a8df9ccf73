"""Find a held plan: only for the key that made it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuherd.domain.access.caller import Caller
from gpuherd.domain.errors import NotFound
from gpuherd.domain.plans.held_plan import HeldPlan
from gpuherd.ports.access import Sealer
from gpuherd.ports.instances import HeldPlans


@dataclass(frozen=True)
class FindHeldPlan:
    """The use case."""

    plans: HeldPlans
    sealer: Sealer

    async def __call__(self, plan_id: str, caller: Caller) -> HeldPlan:
        """Return the plan, expired or not: whether it may be rented, the launch says. `NotFound` if none."""
        held = await self.plans.find(plan_id, caller.key_id)
        if held is None:
            words = "this key has no such plan; hold a new one with POST /api/plans and hold: true"
            raise NotFound(words, code="PLAN_NOT_FOUND")
        if held.is_sealed:
            return replace(held, body=self.sealer.unseal(held.body, held.about).reveal())
        return held
