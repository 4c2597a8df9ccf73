"""Plan a rental, hold the plan, and find a held plan."""

from __future__ import annotations

import asyncio
import json
from collections.abc import (
    AsyncIterator,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from typing import Any

from gpuherd.domain.api_key import Caller, Scope
from gpuherd.domain.cloud.capacity_line import Waiter
from gpuherd.domain.cloud.template import Template, replaced_parts
from gpuherd.domain.errors import (
    CloudTimeout,
    CloudUnavailable,
    GpuherdError,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    SecretsKeyMissing,
)
from gpuherd.domain.instance.launch_spec import NO_INPUTS, LaunchSpec
from gpuherd.domain.instance.offer_ranking import (
    billing_modes,
    likely_product,
    no_capacity,
    quoted_names,
    rank_offers,
)
from gpuherd.domain.instance.plan import (
    HELD_FOR,
    ID_PREFIX,
    HeldPlan,
    Plan,
    sample_count,
    time_to_ready,
)
from gpuherd.domain.instance.quota import (
    ZERO_USD,
    Usage,
    check_quota,
    usage_of,
)
from gpuherd.domain.money.budget import BudgetRules, Demand
from gpuherd.domain.money.usage_span import nano_usd
from gpuherd.domain.secret import Secret
from gpuherd.ports.access_port import Sealer
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.costs_port import Budgets
from gpuherd.ports.instance_port import HeldPlans, Instances
from gpuherd.ports.replica_port import Flags
from gpuherd.usecases.access.manage_secrets import Environments, named_envs
from gpuherd.usecases.cloud.guard_creates import CREATES_BLOCKED, INSTALLATION_SHARED
from gpuherd.usecases.cloud.manage_volumes import PinRegion
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache
from gpuherd.usecases.cloud.run_capacity_line import CapacityLine
from gpuherd.usecases.instances.check_launch import JudgeValues, RegionRules
from gpuherd.usecases.instances.launch_instance import (
    PRICE_UNKNOWN,
    LaunchRequest,
    asked_regions,
    judged_values,
    must_know_price,
)
from gpuherd.usecases.money.judge_budgets import BudgetCache


@dataclass(frozen=True)
class PlanLaunch:
    """The use case. It chooses as a launch and its reconcile passes do, but waits for the cloud to answer."""

    instances: Instances
    catalogue: CatalogueCache
    environments: Environments
    pin_region: PinRegion
    flags: Flags
    rules: RegionRules
    timeout_s: float
    judge: JudgeValues
    budgets: Budgets
    budget_cache: BudgetCache
    budget_rules: BudgetRules
    clock: Clock
    line: CapacityLine

    async def __call__(self, request: LaunchRequest) -> Plan:
        """Return the plan; `CloudUnavailable` if the cloud cannot be asked, `NotFound` as a launch."""
        # As agreed for a launch now; whoever plans what that refuses would rent in vain.
        terms = await self.judge.agreed(
            request.terms, judged_values(request), request.caller.limits, self.clock.now()
        )
        request = replace(request, terms=terms)
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._plan(request)
        except TimeoutError:
            raise CloudTimeout("the cloud did not say in time what it sells; try again") from None

    async def _plan(self, request: LaunchRequest) -> Plan:
        modes = billing_modes(request.wish)
        regions, offers, template = await asyncio.gather(
            self.catalogue.regions(),
            # Money is about to be spent on what this says.
            self.catalogue.offers_of(modes, fresh=True),
            self.catalogue.run_spec(replace(request.wish, envs=named_envs(request.envs))),
        )
        codes = self.rules.codes(request.region, request.regions, request.wish.optimize, regions)
        if request.wish.volumes:
            codes = (await self.pin_region(request.wish.volumes, asked_regions(request), regions),)
        wish = replace(request.wish, regions=codes, envs=named_envs(request.envs))
        held = await self.line.held_for(Waiter("", self.clock.now(), wish), offers, regions)
        ranking = rank_offers(await self.catalogue.named_offers(offers, wish), wish, held)
        history = await self.instances.ready_times_s(likely_product(ranking, wish))
        plan = Plan(
            wish=wish,
            template=template,
            instead_of=await self._instead_of(wish, template),
            ranking=ranking,
            ready_in=time_to_ready(history),
            rentals=sample_count(history),
            disk_hourly_usd=self.catalogue.disk.hourly_usd(wish.disk_gb),
        )
        obstacles = [it async for it in self._obstacles(plan, request)]
        blocked = await self.flags.first(INSTALLATION_SHARED, CREATES_BLOCKED)
        warnings = [*_warnings(plan, request), *([_BLOCKED.format(blocked)] if blocked else [])]
        return replace(plan, obstacles=tuple(obstacles), warnings=tuple(warnings))

    async def _instead_of(self, wish: LaunchSpec, spec: Template) -> dict[str, Any]:
        """Return what the template says where the wish says otherwise."""
        if not wish.template_id or wish.inputs == NO_INPUTS:
            return {}
        return replaced_parts(await self.catalogue.find_template(wish.template_id), spec, wish.inputs)

    async def _obstacles(self, plan: Plan, request: LaunchRequest) -> AsyncIterator[GpuherdError]:
        if not plan.ranking.accepted:
            yield no_capacity(plan.ranking, plan.wish)
            if plan.wish.patience_s and must_know_price(request, self.budget_cache):
                yield CloudUnavailable(PRICE_UNKNOWN)
        if (auth_id := plan.template.registry_auth_id) and (
            missing := await self._registry_auth_error(auth_id)
        ):
            yield missing
        if secret_error := await self._secret_error(request):
            yield secret_error
        if quota_error := await self._quota_error(plan, request.caller):
            yield quota_error
        if budget_error := await self._budget_error(plan, request):
            yield budget_error

    async def _registry_auth_error(self, auth_id: str) -> NotFound | None:
        try:
            await self.catalogue.check_registry_auth(auth_id)
        except NotFound as missing:
            return missing
        return None

    async def _secret_error(self, request: LaunchRequest) -> GpuherdError | None:
        try:
            await self.environments.check(request.envs, request.caller.key_id)
        except (NotFound, SecretsKeyMissing) as missing:
            return missing
        return None

    async def _quota_error(self, plan: Plan, caller: Caller) -> QuotaExceeded | None:
        """Return why the caller's key may not hold this too; the launch itself decides for good."""
        if not caller.limits.on_rentals:
            return None
        wanted = Usage(plan.wish.gpu_num, plan.counted_usd or ZERO_USD)
        try:
            check_quota(caller.limits, await self._used(caller), wanted)
        except QuotaExceeded as quota_error:
            return quota_error
        return None

    async def _budget_error(self, plan: Plan, request: LaunchRequest) -> GpuherdError | None:
        """Return why a budget would refuse this; the launch itself decides for good."""
        if not self.budget_cache.current():
            return None
        usd, now = plan.counted_usd, self.clock.now()
        try:
            lease = request.terms.lease
            length = None if lease is None else lease.length(now)
            price = None if usd is None else nano_usd(usd)
            demand = Demand(request.caller.key_id, request.labels, price, length)
            await self.budgets.judge(demand, self.budget_rules, now)
        except (QuotaExceeded, InvalidRequest, CloudUnavailable) as refusal:
            return refusal
        return None

    async def _used(self, caller: Caller) -> Usage:
        each = [usage_of(it.instance) for it in await self.instances.all_live(caller.key_id)]
        return Usage(sum(it.gpus for it in each), sum((it.hourly_usd for it in each), ZERO_USD))


_BLOCKED = "creates are blocked ({}): it would wait until an admin lets them go on"


def _warnings(plan: Plan, request: LaunchRequest) -> Iterator[str]:
    wish, ranking = plan.wish, plan.ranking
    if not request.caller.scope.includes(Scope.WRITE):
        yield "this key may only look; to rent, a key with the scope write is needed"
    if not ranking.accepted and wish.patience_s:
        yield f"it would wait up to {wish.patience_s} s for an offer that fits"
    if wish.volumes:
        yield f"its volumes pin it to {', '.join(wish.regions)}: no other region is tried"
    names = dict.fromkeys(it.product_name for it in ranking.accepted)
    if len(names) > len(wish.names):
        yield f"{quoted_names(wish)} means several products: {', '.join(names)}"
    if missing := _not_sold_in(plan, request):
        yield f"{quoted_names(wish)} is not sold in {', '.join(missing)}"
    if wish.fallback_after_s:
        yield f"on demand is tried only after {wish.fallback_after_s} s without a spot machine"


def _not_sold_in(plan: Plan, request: LaunchRequest) -> Sequence[str]:
    """Return the regions that the user asked for and that do not sell it."""
    if request.region is None and request.regions is None:
        return ()
    sold = {it.region for it in plan.ranking.accepted} | {it.offer.region for it in plan.ranking.refused}
    return [code for code in plan.wish.regions if code not in sold]


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
