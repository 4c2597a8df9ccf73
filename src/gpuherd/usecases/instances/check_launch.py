"""Check a launch beyond its shape: regions, endings, and values that only the service can judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuherd.domain.api_key import Limits
from gpuherd.domain.cloud.offer import Region
from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.domain.instance.launch_spec import Optimize
from gpuherd.domain.instance.lease import LEASE_S, Lease, Terms
from gpuherd.ports.clock_port import Clock
from gpuherd.usecases.cloud.read_catalogue import (
    CatalogueCache,
    known_codes,
    unknown_regions,
    within_budget,
)


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


# A burst names the same regions over and over.
ORDERS_MAX = 256


@dataclass(frozen=True)
class RegionRules:
    """Where to look when the user does not say: the preferred region, then the others in order."""

    preferred: str | None
    priority: tuple[str, ...]
    # By the words: the codes, with the very list of regions in which they were looked up.
    _codes: dict[tuple[str, ...], tuple[tuple[Region, ...], tuple[str, ...]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def order(self, region: str | None, regions: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return the regions to try, in the words they were given in, best first."""
        first = region or (self.preferred if regions is None else None)
        rest = self.priority if regions is None else regions
        # A dict keeps the order and each word once.
        return tuple(dict.fromkeys(((first,) if first else ()) + rest))

    def codes(
        self,
        region: str | None,
        regions: tuple[str, ...] | None,
        optimize: Optimize,
        known: tuple[Region, ...] | None,
    ) -> tuple[str, ...]:
        """Return the codes of the regions to try, best first; nothing means anywhere.

        A region of the user's that is not `known` is refused; while none is known, words stay as they are.
        """
        anywhere = optimize is Optimize.PRICE and regions is None
        if anywhere and region is None:
            return ()
        words = self.order(region, regions)
        if known is None:
            return words
        if problems := region_problems(region, regions, known):
            raise InvalidRequest(problems)
        # The configured order may name regions that this account does not have; the user's may not.
        return () if anywhere else self._known_codes(words, known)

    def _known_codes(self, words: tuple[str, ...], known: tuple[Region, ...]) -> tuple[str, ...]:
        kept = self._codes.get(words)
        if kept is not None and kept[0] is known:
            return kept[1]
        if len(self._codes) >= ORDERS_MAX:
            self._codes.clear()
        codes = known_codes(words, known)
        self._codes[words] = (known, codes)
        return codes


def region_problems(
    region: str | None, regions: Sequence[str] | None, known: tuple[Region, ...]
) -> list[FieldProblem]:
    """Return what is wrong with the regions that the user names."""
    named = unknown_regions(() if region is None else (region,), known, "region")
    return [*named, *unknown_regions(regions or (), known, "regions")]


@dataclass(frozen=True)
class EndRules:
    """What the settings and the limits of a key say about ends."""

    default_lease: timedelta = timedelta(0)
    delete_stopped_after: timedelta = timedelta(0)
    lease_warning: timedelta = timedelta(minutes=10)

    def agreed(self, terms: Terms, limits: Limits, now: datetime) -> Terms:
        """Return the terms of a new instance, with what holds where its user said nothing.

        `InvalidRequest` for a lease that lies behind us, or is longer than its key may have one.
        """
        lease = terms.lease
        if lease is None and (seconds := self._lease_s(limits)):
            lease = Lease(seconds=seconds)
        if lease is not None:
            check_lease(lease, limits, now)
        delete_stopped_s = terms.delete_stopped_s
        if delete_stopped_s is None and self.delete_stopped_after:
            delete_stopped_s = int(self.delete_stopped_after.total_seconds())
        if lease is terms.lease and delete_stopped_s == terms.delete_stopped_s:
            return terms
        return replace(terms, lease=lease, delete_stopped_s=delete_stopped_s)

    def _lease_s(self, limits: Limits) -> int | None:
        """Return how long the lease is of whoever did not ask for one."""
        said = (int(self.default_lease.total_seconds()) or None, limits.max_lease_s)
        return min((it for it in said if it is not None), default=None)


def check_lease(lease: Lease, limits: Limits, now: datetime) -> None:
    """Raise `InvalidRequest` if a lease cannot be had."""
    if (problem := lease_problem(lease, limits, now)) is not None:
        raise InvalidRequest([problem])


def lease_problem(lease: Lease, limits: Limits, now: datetime) -> FieldProblem | None:
    """Return why a lease cannot be had; None if it can."""
    length_s = lease.seconds if lease.until is None else (lease.until - now).total_seconds()
    assert length_s is not None, "a lease has a length or a moment"
    least, most = LEASE_S
    if lease.until is not None and not least <= length_s <= most:
        return _problem("lease.until", f"must be at least {least} s and at most {most // 86_400} days ahead")
    if limits.max_lease_s is not None and length_s > limits.max_lease_s:
        return _problem("lease", f"must not be longer than this key may have one: {limits.max_lease_s} s")
    return None


def _problem(field: str, words: str) -> FieldProblem:
    return FieldProblem(field, "INVALID_LEASE", f"{field} {words}")
