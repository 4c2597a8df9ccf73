"""Launch: check the wish, store it with its goal, and leave the work to a job. Nothing is rented here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from gpuherd.domain.api_key import SYSTEM_CALLER, Caller
from gpuherd.domain.cloud.capacity_line import Waiter
from gpuherd.domain.cloud.offer import Offer, Region
from gpuherd.domain.cloud.template import Template
from gpuherd.domain.errors import CloudUnavailable
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import (
    ID_PREFIX,
    Goal,
    Instance,
    Status,
)
from gpuherd.domain.instance.launch_spec import GivenEnv, LaunchSpec, OnFailure
from gpuherd.domain.instance.lease import NO_TERMS, Terms, accepted_term
from gpuherd.domain.instance.lineage import OnReclaim, ReplacePolicy
from gpuherd.domain.instance.offer_ranking import (
    billing_modes,
    billing_words,
    counted_usd,
    likely_product,
    no_capacity,
    rank_offers,
    require_offers,
)
from gpuherd.domain.instance.plan import HeldPlan, time_to_ready
from gpuherd.domain.trace_spans import INSTANCE_ID, EndedSpan, Trace
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.usecases.access.manage_secrets import named_envs
from gpuherd.usecases.cloud.manage_volumes import pin_region
from gpuherd.usecases.cloud.read_catalogue import within_budget
from gpuherd.usecases.events.record_event import NewEvent
from gpuherd.usecases.instances.check_launch import AskedValues, agreed_terms
from gpuherd.usecases.services import Services

AUDIT_ACTION = "instance.create"
PRICE_UNKNOWN = (
    "what this costs is not known now, and this key or a budget may only spend so much; "
    "try again, or say a maxHourlyPrice"
)


@dataclass(frozen=True)
class LaunchRequest:
    """A wish and all that goes with it. Regions are still in the user's words."""

    name: str
    # Without the environment: `envs` has the values, and the stored wish has them sealed.
    wish: LaunchSpec
    envs: tuple[GivenEnv, ...] = ()
    region: str | None = None
    regions: tuple[str, ...] | None = None
    webhook_url: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    on_failure: OnFailure = OnFailure.DELETE
    health_check: HealthCheck | None = None
    terms: Terms = NO_TERMS
    on_reclaim: OnReclaim = OnReclaim.NONE
    # None: as many as the settings say.
    max_replacements: int | None = None
    handover_s: int = 0
    # Two requests with the same claim are one request.
    claim: IdempotencyClaim | None = None
    caller: Caller = SYSTEM_CALLER
    # The plan that this was read from. One plan is one instance, and it never costs more than planned.
    plan: HeldPlan | None = None

    @property
    def claims(self) -> tuple[IdempotencyClaim, ...]:
        """The claims that an earlier, equal request has stored."""
        # No Idempotency-Key has a blank in it.
        plan = self.plan
        of_plan = () if plan is None else (IdempotencyClaim(plan.owner, f"plan {plan.id}", plan.id),)
        return of_plan if self.claim is None else (self.claim, *of_plan)


@dataclass(frozen=True)
class Launched:
    """The instance of the request. `replayed` if an earlier, equal request made it."""

    instance: Instance
    replayed: bool


class _CheckedWish(NamedTuple):
    """A wish that can be fulfilled as far as is known, with the codes of its regions."""

    wish: LaunchSpec
    # Of the best offer; None while prices are unknown.
    hourly_usd: Decimal | None
    # Of the best offer.
    product_name: str
    # Of the image, or of the template if the wish has no image.
    registry_auth_id: str | None


async def launch_instance(services: Services, request: LaunchRequest) -> Launched:
    """Accept a wish and return its instance. A repeated claim returns the instance of the first request."""
    begun = services.clock.now() if services.tracer.is_on else None
    caller = request.caller
    if known := await find_launched(services, request):
        return Launched(known, replayed=True)
    now = services.clock.now()
    request = _at_planned_price(request, now)
    terms = await agreed_terms(services, request.terms, judged_values(request), caller.limits, now)
    request = replace(request, terms=terms)
    if request.wish.registry_auth_id:
        await _check_registry_auth(services, request.wish.registry_auth_id)
    if request.envs:
        await services.environments.check(request.envs, caller.key_id)
    checked = await _checked(services, request)
    wish = checked.wish
    if must_know_price(services, request):
        # The counted price is the highest allowed one. A more expensive fallback would exceed the limit.
        # guard: a key with a limit pays no more than was counted
        wish = replace(wish, hourly_usd_max=checked.hourly_usd)
    if request.envs:
        wish = replace(wish, envs=services.environments.sealed(request.envs, caller.key_id))
    instance = await _new_instance(services, request, checked._replace(wish=wish))
    new_event = NewEvent(instance_event.CREATED, "accepted", after=Status.CREATING.value)
    change = services.event_recorder.change(instance, new_event, actor=caller.key_id)
    job = services.job_factory.reconcile_job(change.instance, checked.registry_auth_id)
    change = replace(
        change,
        jobs=(job, *change.jobs),
        audit_record=caller.audit_record(
            AUDIT_ACTION, instance.id, instance.created_at, after=_audit_text(instance)
        ),
        limits=caller.limits if caller.limits.on_rentals else None,
        judged_by=services.rules.budget_rules if services.budget_cache.current() else None,
    )
    # guard: one plan is one instance
    accepted = await services.stores.instances.add(change, *request.claims)
    if begun is not None and accepted.id == instance.id:
        services.tracer.record(_accept_span(instance, begun, services.clock.now()))
    return Launched(accepted, replayed=accepted.id != instance.id)


async def find_launched(services: Services, request: LaunchRequest) -> Instance | None:
    """Return the instance of an equal request, or of the same plan; None if there is none."""
    for claim in request.claims:
        if known := await services.stores.instances.claimed(claim):
            return known
    return None


async def _new_instance(services: Services, request: LaunchRequest, checked: _CheckedWish) -> Instance:
    history = await services.stores.instances.ready_times_s(checked.product_name)
    rules, wish, now = services.rules, checked.wish, services.clock.now()
    most = request.max_replacements
    return Instance(
        id=services.ids.new(ID_PREFIX, now),
        name=request.name,
        wish=wish,
        goal=Goal.RUNNING,
        status=Status.CREATING,
        created_at=now,
        deadline=now + timedelta(seconds=wish.patience_s) + rules.instance_max_wait,
        estimated_ready_at=now + time_to_ready(history),
        owner=request.caller.key_id,
        correlation_id=request.caller.correlation_id,
        expected_hourly_usd=checked.hourly_usd,
        disk_hourly_usd=services.browsed_catalogue.disk.hourly_usd(wish.disk_gb),
        reason="accepted, looking for an offer",
        webhook_url=request.webhook_url,
        labels=request.labels,
        on_failure=request.on_failure,
        health_check=request.health_check,
        replacement=ReplacePolicy(
            request.on_reclaim, rules.max_replacements if most is None else most, request.handover_s
        ),
        terms=request.terms,
        lease_term=accepted_term(request.terms.lease, now, rules.lease_warning),
    )


async def _check_registry_auth(services: Services, auth_id: str) -> None:
    """Refuse an unknown credential. The job looks up the credential of a template."""
    question = services.browsed_catalogue.check_registry_auth(auth_id)
    await within_budget(services.rules.lookup_budget_s, question)


async def _checked(services: Services, request: LaunchRequest) -> _CheckedWish:
    """Return the wish with what is known about it. Refuse a wish that is known to be impossible."""
    catalogue, line = services.browsed_catalogue, services.capacity_line
    named = replace(request.wish, envs=named_envs(request.envs)) if request.envs else request.wish
    regions, offers, spec = await _known(services, named)
    auth_id = None if spec is None else spec.registry_auth_id
    codes = services.rules.regions.codes(request.region, request.regions, request.wish.optimize, regions)
    if request.wish.volumes:
        codes = (await pin_region(services, request.wish.volumes, asked_regions(request), regions),)
    wish = replace(request.wish, regions=codes)
    if offers is None or regions is None:
        _refuse_unpriced(services, request)
        return _CheckedWish(wish, None, wish.product_name, auth_id)
    ranking = rank_offers(await catalogue.named_offers(offers, wish, services.rules.lookup_budget_s), wish)
    if not ranking.accepted:
        if not wish.patience_s:
            raise no_capacity(ranking, wish)
        _refuse_unpriced(services, request)
        return _CheckedWish(wish, None, likely_product(ranking, wish), auth_id)
    if not line.is_quiet and not wish.patience_s:
        # guard: who came later does not take what others wait for
        await _refuse_waited_for(services, wish, offers, regions)
    return _CheckedWish(wish, counted_usd(ranking, wish), likely_product(ranking, wish), auth_id)


async def _known(
    services: Services, wish: LaunchSpec
) -> tuple[tuple[Region, ...] | None, tuple[Offer, ...] | None, Template | None]:
    """Return regions, offers and what runs, each None if not known in time. Raise if it cannot run."""
    catalogue, budget_s = services.browsed_catalogue, services.rules.lookup_budget_s
    return await asyncio.gather(
        within_budget(budget_s, catalogue.regions()),
        within_budget(budget_s, catalogue.offers_of(billing_modes(wish))),
        within_budget(budget_s, catalogue.run_spec(wish)),
    )


def _refuse_unpriced(services: Services, request: LaunchRequest) -> None:
    """Refuse a wish of unknown price if spending is limited."""
    if must_know_price(services, request):
        raise CloudUnavailable(PRICE_UNKNOWN)


async def _refuse_waited_for(
    services: Services, wish: LaunchSpec, offers: Sequence[Offer], regions: Sequence[Region]
) -> None:
    """Refuse a wish that would not wait itself, if all its offers rest or other instances wait for them."""
    held = await services.capacity_line.held_for(Waiter("", services.clock.now(), wish), offers, regions)
    ranking = rank_offers(require_offers(offers, wish), wish, held)
    if not ranking.accepted:
        raise no_capacity(ranking, wish)


def asked_regions(request: LaunchRequest) -> tuple[str, ...]:
    """Return the regions that the user named. Without any the settings choose."""
    return (*((request.region,) if request.region else ()), *(request.regions or ()))


def judged_values(request: LaunchRequest) -> AskedValues:
    """Return what the catalogue and the clock judge of a request."""
    return AskedValues(request.region, request.regions, request.terms.lease)


def must_know_price(services: Services, request: LaunchRequest) -> bool:
    """Return True if a key or a budget limits spending and the wish has no price cap."""
    caller, budgets = request.caller, services.budget_cache
    # guard: what a budget has counted is all that it may cost
    is_limited = caller.limits.max_hourly_usd is not None or budgets.binds(caller.key_id, request.labels)
    return is_limited and request.wish.hourly_usd_max is None


def _at_planned_price(request: LaunchRequest, now: datetime) -> LaunchRequest:
    """Cap the price at the price of the plan. Refuse an expired plan."""
    if request.plan is None:
        return request
    request.plan.check(now)
    # guard: a plan never costs more
    return replace(request, wish=replace(request.wish, hourly_usd_max=request.plan.hourly_usd))


def _accept_span(instance: Instance, begun: datetime, ended: datetime) -> EndedSpan:
    about = {INSTANCE_ID: instance.id, "gpuherd.key.id": instance.owner}
    return EndedSpan("accept", begun, ended, Trace(instance.id), attributes=about)


def _audit_text(instance: Instance) -> str:
    wish = instance.wish
    return f"{instance.name}: {wish.gpu_num} x {' or '.join(wish.names)}, {billing_words(wish)}"
