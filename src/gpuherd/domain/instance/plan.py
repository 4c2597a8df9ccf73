"""A plan: ranked offers, prices, the time to ready, and plans that are held for ten minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from gpuherd.domain.cloud.template import Template
from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.instance.launch_spec import EnvVar, LaunchSpec
from gpuherd.domain.instance.offer_ranking import Ranking, counted_usd, hourly_usd


@dataclass(frozen=True)
class Plan:
    """What would be tried in which order, and all obstacles."""

    # With the codes of the regions that would be tried.
    wish: LaunchSpec
    # What would run: the template with the values of the launch spec.
    template: Template
    ranking: Ranking
    ready_in: timedelta
    # The number of earlier rentals behind `ready_in`; 0: a first guess.
    rentals: int
    # The hourly price of its disk; the same everywhere.
    disk_hourly_usd: Decimal
    # The template's values that the launch spec replaces.
    instead_of: Mapping[str, Any] = field(default_factory=dict)
    # Why nothing would be rented now. A missing offer only delays a spec that waits for capacity.
    obstacles: tuple[GpuherdError, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return not self.obstacles

    @property
    def variables(self) -> tuple[EnvVar, ...]:
        """The whole environment without values.

        A variable of the launch spec replaces one of the template.
        """
        named = {name: EnvVar(name) for name, _ in self.template.envs}
        return tuple((named | {it.name: it for it in self.wish.envs}).values())

    @property
    def hourly_usd(self) -> Decimal | None:
        """The hourly cost of the whole instance at the best offer."""
        return hourly_usd(self.ranking.accepted[0], self.wish) if self.ranking.accepted else None

    @property
    def held_usd(self) -> Decimal | None:
        """The maximum hourly cost now. A held plan may cost this much."""
        return counted_usd(self.ranking, self.wish)

    @property
    def counted_usd(self) -> Decimal | None:
        """The cost that limits and budgets count: the maximum if set, otherwise the expected cost."""
        most = self.wish.hourly_usd_max
        return self.held_usd if most is None else most


ID_PREFIX = "plan_"
HELD_FOR = timedelta(minutes=10)


class PlanExpired(GpuherdError):
    """The prices of the plan are too old. A new plan is needed."""

    code = "PLAN_EXPIRED"


@dataclass(frozen=True)
class HeldPlan:
    """A planned request, its owner, and its maximum price."""

    id: str
    # The id of the planning key. No other key may rent the plan.
    owner: str
    # The request as sent, in JSON. The rental reads it like any create. It is stored sealed if it has
    # variables.
    body: str = field(repr=False)
    # For the whole instance: the planned price, and the maximum of the rental.
    hourly_usd: Decimal
    created_at: datetime
    expires_at: datetime

    @property
    def is_sealed(self) -> bool:
        return not self.body.startswith("{")

    @property
    def about(self) -> str:
        """The plan and owner to which the sealed body is bound. Copied elsewhere, it cannot be opened."""
        return f"plan/{self.owner}/{self.id}"

    def check(self, now: datetime) -> None:
        """Raise `PlanExpired` if the prices are too old."""
        # guard: a plan expires
        if now >= self.expires_at:
            raise PlanExpired(
                f"the plan {self.id} expired at {self.expires_at:%H:%M:%S} UTC; "
                "make a new one: prices and stock have moved on",
                details={"planId": self.id, "expiresAt": f"{self.expires_at:%Y-%m-%dT%H:%M:%SZ}"},
            )


DEFAULT_TIME_TO_READY = timedelta(minutes=4)
SAMPLES_MIN = 3


def time_to_ready(history_s: Sequence[float]) -> timedelta:
    """Return the time that three of four earlier rentals of this kind did not exceed."""
    ordered = sorted(_informative(history_s))
    if not sample_count(history_s):
        return DEFAULT_TIME_TO_READY
    # Upper quartile, not median: people rely on the promise.
    return timedelta(seconds=ordered[(3 * len(ordered) - 1) // 4])


def sample_count(history_s: Sequence[float]) -> int:
    """Return the number of earlier rentals behind an estimate; 0 means a first guess."""
    informative = len(_informative(history_s))
    return informative if informative >= SAMPLES_MIN else 0


def _informative(history_s: Sequence[float]) -> list[float]:
    # An adopted machine was ready at once. It says nothing about machines that boot.
    return [seconds for seconds in history_s if seconds > 0]
