"""A held plan: what was planned can be rented for a while, at most once, and never for more."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from gpuherd.domain.errors import GpuherdError

ID_PREFIX = "plan_"
HELD_FOR = timedelta(minutes=10)


class PlanExpired(GpuherdError):
    """The prices of the plan are too old to be rented at; a new plan is needed."""

    code = "PLAN_EXPIRED"


@dataclass(frozen=True)
class HeldPlan:
    """What was asked for, by whom, and what it may cost."""

    id: str
    # The id of the key that it was planned with; no other one may rent it.
    owner: str
    # The request as it was sent, in JSON: what is rented is read from it as from any create. In the store it
    # is sealed where it has variables.
    body: str = field(repr=False)
    # Of the whole instance: what the plan said, and so the most that it may cost.
    hourly_usd: Decimal
    created_at: datetime
    expires_at: datetime

    @property
    def is_sealed(self) -> bool:
        return not self.body.startswith("{")

    @property
    def about(self) -> str:
        """What its sealed body is bound to: copied to another plan or owner it is worth nothing."""
        return f"plan/{self.owner}/{self.id}"

    def check(self, now: datetime) -> None:
        """Refuse to rent at prices that are too old."""
        # guard: a plan expires
        if now >= self.expires_at:
            raise PlanExpired(
                f"the plan {self.id} expired at {self.expires_at:%H:%M:%S} UTC; "
                "make a new one: prices and stock have moved on",
                details={"planId": self.id, "expiresAt": f"{self.expires_at:%Y-%m-%dT%H:%M:%SZ}"},
            )
