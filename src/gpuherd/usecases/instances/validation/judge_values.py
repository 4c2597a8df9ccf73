"""Judges values that are well formed and may be wrong all the same: by the catalogue, and by the clock.

Whoever is refused is told all that is wrong at once; so what is refused for its form is judged, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpuherd.clock import Clock
from gpuherd.domain.access.api_key import Limits
from gpuherd.domain.endings.terms import Lease, Terms
from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.usecases.cloud.catalogue import CatalogueCache, within_budget
from gpuherd.usecases.instances.end_rules import EndRules, lease_problem
from gpuherd.usecases.instances.region_rules import region_problems


@dataclass(frozen=True)
class AskedValues:
    """What a request says that is judged here, as far as it is well formed; regions in the user's words."""

    region: str | None = None
    regions: tuple[str, ...] | None = None
    lease: Lease | None = None


@dataclass(frozen=True)
class JudgeValues:
    """The use case."""

    catalogue: CatalogueCache
    ends: EndRules
    clock: Clock
    # A refusal waits for the catalogue no longer than this; what is not known by then is not told.
    lookup_budget_s: float

    async def __call__(self, asked: AskedValues, limits: Limits) -> list[FieldProblem]:
        """Return all that is wrong; nothing where all is well, or not known."""
        return [*await self._of_regions(asked), *self._of_lease(asked, limits, self.clock.now())]

    async def agreed(self, terms: Terms, asked: AskedValues, limits: Limits, now: datetime) -> Terms:
        """Return the terms of a new instance; `InvalidRequest` with all that is wrong if its lease is."""
        try:
            return self.ends.agreed(terms, limits, now)
        except InvalidRequest as refused:
            raise InvalidRequest([*await self._of_regions(asked), *refused.problems]) from None

    async def _of_regions(self, asked: AskedValues) -> list[FieldProblem]:
        if asked.region is None and asked.regions is None:
            return []
        known = await within_budget(self.lookup_budget_s, self.catalogue.regions())
        return [] if known is None else region_problems(asked.region, asked.regions, known)

    def _of_lease(self, asked: AskedValues, limits: Limits, now: datetime) -> list[FieldProblem]:
        found = None if asked.lease is None else lease_problem(asked.lease, limits, now)
        return [] if found is None else [found]
