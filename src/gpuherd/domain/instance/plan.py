"""A plan: ranked offers, prices, the time to ready, and plans held for ten minutes."""

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
    """What would be tried in which order, and everything that speaks against it."""

    # With the codes of the regions that would be tried.
    wish: LaunchSpec
    # What would run: the template, with what the wish says instead of parts of it.
    template: Template
    ranking: Ranking
    ready_in: timedelta
    # How many earlier rentals `ready_in` is made from; 0: it is the first guess.
    rentals: int
    # What its disk costs an hour, wherever it is rented.
    disk_hourly_usd: Decimal
    # What the template says where something else would run.
    instead_of: Mapping[str, Any] = field(default_factory=dict)
    # Why nothing would be rented now; who waits for capacity is only delayed by the lack of an offer.
    obstacles: tuple[GpuherdError, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return not self.obstacles

    @property
    def variables(self) -> tuple[EnvVar, ...]:
        """The whole environment, without values: of two variables of one name the given one counts."""
        named = {name: EnvVar(name) for name, _ in self.template.envs}
        return tuple((named | {it.name: it for it in self.wish.envs}).values())

    @property
    def hourly_usd(self) -> Decimal | None:
        """What the best offer costs for the whole instance."""
        return hourly_usd(self.ranking.accepted[0], self.wish) if self.ranking.accepted else None

    @property
    def held_usd(self) -> Decimal | None:
        """What it costs at most as things stand, and so what it may cost if it is held."""
        return counted_usd(self.ranking, self.wish)

    @property
    def counted_usd(self) -> Decimal | None:
        """What limits and budgets count: as much as it may, else as much as it will."""
        most = self.wish.hourly_usd_max
        return self.held_usd if most is None else most


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


DEFAULT_TIME_TO_READY = timedelta(minutes=4)
SAMPLES_MIN = 3


def time_to_ready(history_s: Sequence[float]) -> timedelta:
    """Return the time that three of four earlier rentals of this kind did not exceed."""
    ordered = sorted(_informative(history_s))
    if not sample_count(history_s):
        return DEFAULT_TIME_TO_READY
    # Upper quartile, not median: a promise that is kept is worth more than a short one.
    return timedelta(seconds=ordered[(3 * len(ordered) - 1) // 4])


def sample_count(history_s: Sequence[float]) -> int:
    """Return how many earlier rentals an estimate is made from; 0 means that it is the first guess."""
    informative = len(_informative(history_s))
    return informative if informative >= SAMPLES_MIN else 0


def _informative(history_s: Sequence[float]) -> list[float]:
    # An adopted machine was ready in no time, and tells nothing about those that have to boot.
    return [seconds for seconds in history_s if seconds > 0]
