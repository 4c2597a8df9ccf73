"""Check a launch beyond its shape: regions, endings, and values that only the service can judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gpuherd.domain.api_key import Limits
from gpuherd.domain.cloud.offer import Region
from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.domain.instance.launch_spec import Optimize
from gpuherd.domain.instance.lease import LEASE_S, Lease, Terms
from gpuherd.usecases.cloud.read_catalogue import known_codes, unknown_regions, within_budget
from gpuherd.usecases.services import Rules, Services


@dataclass(frozen=True)
class AskedValues:
    """The well-formed values of a request that are judged here. Regions are in the user's words."""

    region: str | None = None
    regions: tuple[str, ...] | None = None
    lease: Lease | None = None


async def judge_values(services: Services, asked: AskedValues, limits: Limits) -> list[FieldProblem]:
    """Return all that is wrong. What is not known in time is not reported."""
    problems = await _problems_of_regions(services, asked)
    if asked.lease is not None and (found := lease_problem(asked.lease, limits, services.clock.now())):
        problems.append(found)
    return problems


async def agreed_terms(
    services: Services, terms: Terms, asked: AskedValues, limits: Limits, now: datetime
) -> Terms:
    """Return the terms of a new instance. `InvalidRequest` with all that is wrong if its lease is."""
    try:
        return _with_defaults(services.rules, terms, limits, now)
    except InvalidRequest as refused:
        problems = await _problems_of_regions(services, asked)
        raise InvalidRequest([*problems, *refused.problems]) from None


async def _problems_of_regions(services: Services, asked: AskedValues) -> list[FieldProblem]:
    if asked.region is None and asked.regions is None:
        return []
    known = await within_budget(services.rules.lookup_budget_s, services.browsed_catalogue.regions())
    return [] if known is None else region_problems(asked.region, asked.regions, known)


def _with_defaults(rules: Rules, terms: Terms, limits: Limits, now: datetime) -> Terms:
    """Add what the settings and the key say about ends. `InvalidRequest` if the lease is not allowed."""
    lease = terms.lease
    if lease is None and (seconds := _default_lease_s(rules, limits)):
        lease = Lease(seconds=seconds)
    if lease is not None:
        check_lease(lease, limits, now)
    delete_stopped_s = terms.delete_stopped_s
    if delete_stopped_s is None and rules.delete_stopped_after:
        delete_stopped_s = int(rules.delete_stopped_after.total_seconds())
    return replace(terms, lease=lease, delete_stopped_s=delete_stopped_s)


def _default_lease_s(rules: Rules, limits: Limits) -> int | None:
    """Return the length of the lease if the user asks for none."""
    lengths = (int(rules.default_lease.total_seconds()) or None, limits.max_lease_s)
    return min((length for length in lengths if length is not None), default=None)


@dataclass(frozen=True)
class RegionRules:
    """Where to look if the user names no region: the preferred region, then the others in order."""

    preferred: str | None
    priority: tuple[str, ...]

    def order(self, region: str | None, regions: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return the regions to try, best first, as they were named."""
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
        """Return the codes of the regions to try, best first. None of them means: any region.

        `InvalidRequest` if the user names an unknown region. While no regions are known, the words stay.
        """
        anywhere = optimize is Optimize.PRICE and regions is None
        if anywhere and region is None:
            return ()
        words = self.order(region, regions)
        if known is None:
            return words
        if problems := region_problems(region, regions, known):
            raise InvalidRequest(problems)
        # The configured order may name regions that this account does not have. The user's may not.
        return () if anywhere else known_codes(words, known)


def region_problems(
    region: str | None, regions: Sequence[str] | None, known: tuple[Region, ...]
) -> list[FieldProblem]:
    """Return what is wrong with the regions that the user names."""
    named = unknown_regions(() if region is None else (region,), known, "region")
    return [*named, *unknown_regions(regions or (), known, "regions")]


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
