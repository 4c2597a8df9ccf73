"""A plan: what a create would try now, and what speaks against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

from gpuherd.domain.cloud.offer import Template
from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.instance.instance import Wish
from gpuherd.domain.instance.offer_ranking import Ranking, counted_usd, hourly_usd
from gpuherd.domain.workload.envs import EnvVar


@dataclass(frozen=True)
class Plan:
    """What would be tried in which order, and everything that speaks against it."""

    # With the codes of the regions that would be tried.
    wish: Wish
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
