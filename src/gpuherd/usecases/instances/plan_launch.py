"""Plan a rental, hold the plan, and find a held plan."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
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
from gpuherd.domain.money.budget import Demand
from gpuherd.domain.money.usage_span import nano_usd
from gpuherd.domain.secret import Secret
from gpuherd.usecases.access.manage_secrets import named_envs
from gpuherd.usecases.cloud.guard_creates import CREATES_BLOCKED, INSTALLATION_SHARED
from gpuherd.usecases.cloud.manage_volumes import pin_region
from gpuherd.usecases.instances.check_launch import agreed_terms
from gpuherd.usecases.instances.launch_instance import (
    PRICE_UNKNOWN,
    LaunchRequest,
    asked_regions,
    judged_values,
    must_know_price,
)
from gpuherd.usecases.services import Services

# Characters of the id in the name of an instance that was given none.
NAME_CHARS = 6
_BLOCKED = "creates are blocked ({}): it would wait until an admin lets them go on"


async def plan_launch(services: Services, request: LaunchRequest) -> Plan:
    """Choose as a launch and its passes do, but wait for the cloud's answer, and store nothing.

    `CloudUnavailable` if the cloud cannot be asked, `NotFound` as a launch.
    """
    now = services.clock.now()
    # The same terms as for a launch now: a plan must not promise what the launch would refuse.
    terms = await agreed_terms(services, request.terms, judged_values(request), request.caller.limits, now)
    request = replace(request, terms=terms)
    try:
        async with asyncio.timeout(services.rules.request_timeout_s):
            return await _plan(services, request)
    except TimeoutError:
        raise CloudTimeout("the cloud did not say in time what it sells; try again") from None


async def _plan(services: Services, request: LaunchRequest) -> Plan:
    catalogue, envs = services.browsed_catalogue, named_envs(request.envs)
    regions, offers, template = await asyncio.gather(
        catalogue.regions(),
        # Fresh: money is about to be spent on these prices.
        catalogue.offers_of(billing_modes(request.wish), fresh=True),
        catalogue.run_spec(replace(request.wish, envs=envs)),
    )
    codes = services.rules.regions.codes(request.region, request.regions, request.wish.optimize, regions)
    if request.wish.volumes:
        codes = (await pin_region(services, request.wish.volumes, asked_regions(request), regions),)
    wish = replace(request.wish, regions=codes, envs=envs)
    held = await services.capacity_line.held_for(Waiter("", services.clock.now(), wish), offers, regions)
    ranking = rank_offers(await catalogue.named_offers(offers, wish), wish, held)
    history = await services.stores.instances.ready_times_s(likely_product(ranking, wish))
    plan = Plan(
        wish=wish,
        template=template,
        instead_of=await _instead_of(services, wish, template),
        ranking=ranking,
        ready_in=time_to_ready(history),
        rentals=sample_count(history),
        disk_hourly_usd=catalogue.disk.hourly_usd(wish.disk_gb),
    )
    obstacles = [it async for it in _obstacles(services, plan, request)]
    blocked = await services.stores.flags.first(INSTALLATION_SHARED, CREATES_BLOCKED)
    warnings = [*_warnings(plan, request), *([_BLOCKED.format(blocked)] if blocked else [])]
    return replace(plan, obstacles=tuple(obstacles), warnings=tuple(warnings))


async def _instead_of(services: Services, wish: LaunchSpec, spec: Template) -> dict[str, Any]:
    """Return the values of the template that the wish replaces."""
    if not wish.template_id or wish.inputs == NO_INPUTS:
        return {}
    template = await services.browsed_catalogue.find_template(wish.template_id)
    return replaced_parts(template, spec, wish.inputs)


async def _obstacles(services: Services, plan: Plan, request: LaunchRequest) -> AsyncIterator[GpuherdError]:
    if not plan.ranking.accepted:
        yield no_capacity(plan.ranking, plan.wish)
        if plan.wish.patience_s and must_know_price(services, request):
            yield CloudUnavailable(PRICE_UNKNOWN)
    auth_id = plan.template.registry_auth_id
    if auth_id and (missing := await _registry_auth_error(services, auth_id)):
        yield missing
    if secret_error := await _secret_error(services, request):
        yield secret_error
    if quota_error := await _quota_error(services, plan, request.caller):
        yield quota_error
    if budget_error := await _budget_error(services, plan, request):
        yield budget_error


async def _registry_auth_error(services: Services, auth_id: str) -> NotFound | None:
    try:
        await services.browsed_catalogue.check_registry_auth(auth_id)
    except NotFound as missing:
        return missing
    return None


async def _secret_error(services: Services, request: LaunchRequest) -> GpuherdError | None:
    try:
        await services.environments.check(request.envs, request.caller.key_id)
    except (NotFound, SecretsKeyMissing) as missing:
        return missing
    return None


async def _quota_error(services: Services, plan: Plan, caller: Caller) -> QuotaExceeded | None:
    """Return why the limits of the key would refuse this. The launch decides."""
    if not caller.limits.on_rentals:
        return None
    wanted = Usage(plan.wish.gpu_num, plan.counted_usd or ZERO_USD)
    live = await services.stores.instances.all_live(caller.key_id)
    each = [usage_of(it.instance) for it in live]
    used = Usage(sum(it.gpus for it in each), sum((it.hourly_usd for it in each), ZERO_USD))
    try:
        check_quota(caller.limits, used, wanted)
    except QuotaExceeded as quota_error:
        return quota_error
    return None


async def _budget_error(services: Services, plan: Plan, request: LaunchRequest) -> GpuherdError | None:
    """Return why a budget would refuse this. The launch decides."""
    if not services.budget_cache.current():
        return None
    usd, now = plan.counted_usd, services.clock.now()
    try:
        lease = request.terms.lease
        length = None if lease is None else lease.length(now)
        price = None if usd is None else nano_usd(usd)
        demand = Demand(request.caller.key_id, request.labels, price, length)
        await services.stores.budgets.judge(demand, services.rules.budget_rules, now)
    except (QuotaExceeded, InvalidRequest, CloudUnavailable) as refusal:
        return refusal
    return None


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


async def hold_plan(
    services: Services, plan: Plan, body: Mapping[str, Any], caller: Caller
) -> HeldPlan | None:
    """Store the body with the price, and return the held plan; None if it cannot be rented."""
    price = plan.held_usd
    if not plan.fits or price is None:
        return None
    now = services.clock.now()
    plan_id = services.ids.new(ID_PREFIX, now)
    named = {"name": f"plan-{plan_id[-NAME_CHARS:]}", **body}
    held = HeldPlan(plan_id, caller.key_id, json.dumps(named), price, now, now + HELD_FOR)
    stored = held
    if named.get("envs"):
        # The values of variables are secrets.
        stored = replace(held, body=services.sealer.seal(Secret(held.body), held.about))
    await services.stores.held_plans.add(stored)
    return held


async def find_held_plan(services: Services, plan_id: str, caller: Caller) -> HeldPlan:
    """Return the plan, expired or not: the launch refuses an expired one. `NotFound` if there is none."""
    held = await services.stores.held_plans.find(plan_id, caller.key_id)
    if held is None:
        words = "this key has no such plan; hold a new one with POST /api/plans and hold: true"
        raise NotFound(words, code="PLAN_NOT_FOUND")
    if held.is_sealed:
        return replace(held, body=services.sealer.unseal(held.body, held.about).reveal())
    return held
