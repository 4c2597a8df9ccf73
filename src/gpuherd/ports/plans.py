"""Plans that are held, in the store."""

from __future__ import annotations

from typing import Protocol

from gpuherd.domain.instance.held_plan import HeldPlan


class HeldPlans(Protocol):
    """Plans that may be rented for a while. Which are used up is known by the claims of instances."""

    async def add(self, plan: HeldPlan) -> None:
        """Remember a plan."""
        ...

    async def find(self, plan_id: str, owner: str) -> HeldPlan | None:
        """Return a plan of this owner, expired or not; None if there is none (any more)."""
        ...
