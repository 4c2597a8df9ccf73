"""Launch: check the wish, remember it with its goal, and leave the work to a job. Nothing is rented here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import (
    dataclass,
    field,
    fields,
    replace,
)
from datetime import datetime, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any, NamedTuple

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
from gpuherd.domain.money.budget import BudgetRules
from gpuherd.domain.trace_spans import INSTANCE_ID, EndedSpan, Trace
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.instance_port import Instances
from gpuherd.ports.telemetry_port import NullTracer, Tracer
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.access.manage_secrets import Environments, named_envs
from gpuherd.usecases.cloud.manage_volumes import PinRegion
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache, within_budget
from gpuherd.usecases.cloud.run_capacity_line import CapacityLine
from gpuherd.usecases.events.record_event import EventRecorder, NewEvent
from gpuherd.usecases.instances.check_launch import AskedValues, JudgeValues, RegionRules
from gpuherd.usecases.money.judge_budgets import BudgetCache
from gpuherd.usecases.service.make_jobs import JobFactory

# An estimate does not get better by asking for every create of a burst how long the others took.
HISTORY_TTL_S = 5.0


# A burst wishes for the same thing over and over.
SATISFIABLE_MAX = 256


_values = attrgetter(*(it.name for it in fields(LaunchSpec)))
AUDIT_ACTION = "instance.create"


PRICE_UNKNOWN = (
    "what this costs is not known now, and this key or a budget may only spend so much; "
    "try again, or say a maxHourlyPrice"
)


@dataclass(frozen=True)
class LaunchRequest:
    """A wish and all that goes with it; regions still in the user's words."""

    name: str
    # Without its variables, which are in here with their values and in the wish sealed.
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
    # The caller's own word for this very request: said twice, it is still one request.
    claim: IdempotencyClaim | None = None
    caller: Caller = SYSTEM_CALLER
    # The plan that this was read from: one plan is one instance, and that costs no more than was planned.
    plan: HeldPlan | None = None

    @property
    def claims(self) -> tuple[IdempotencyClaim, ...]:
        """All that this request may be the second one of."""
        # No Idempotency-Key has a blank in it.
        plan = self.plan
        of_plan = () if plan is None else (IdempotencyClaim(plan.owner, f"plan {plan.id}", plan.id),)
        return of_plan if self.claim is None else (self.claim, *of_plan)


@dataclass(frozen=True)
class Launched:
    """The instance that stands for the request, and whether an earlier, equal request made it."""

    instance: Instance
    replayed: bool


class _CheckedWish(NamedTuple):
    """A wish that may be fulfilled, with the codes of its regions, and what is known about it by then."""

    wish: LaunchSpec
    # What the best offer for it costs.
    hourly_usd: Decimal | None
    # Which one it will get.
    product_name: str
    # Of its image, by the template where the wish names none.
    registry_auth_id: str | None


@dataclass(frozen=True, kw_only=True)
class LaunchInstance:
    """The use case."""

    instances: Instances
    catalogue: CatalogueCache
    environments: Environments
    pin_region: PinRegion
    event_recorder: EventRecorder
    job_factory: JobFactory
    rules: RegionRules
    clock: Clock
    ids: Ids
    max_wait: timedelta
    judge: JudgeValues
    budgets: BudgetCache
    budget_rules: BudgetRules
    line: CapacityLine
    # Of one lineage in a day, where the request says nothing.
    max_replacements: int
    # A request waits for the catalogue no longer than this; what is not known by then, the job finds out.
    lookup_budget_s: float
    tracer: Tracer = field(default_factory=NullTracer)
    _histories: Cache[str, Sequence[float]] = field(init=False)
    # Wishes that some offer fits, each with the very catalogue in which that was so, the best price and the
    # product.
    _satisfiable: dict[tuple[Any, ...], tuple[tuple[Offer, ...], Decimal | None, str]] = field(
        default_factory=dict, init=False
    )

    def __post_init__(self) -> None:
        histories: Cache[str, Sequence[float]] = Cache(self.clock, HISTORY_TTL_S, 1000, "ready_times")
        object.__setattr__(self, "_histories", histories)

    async def __call__(self, request: LaunchRequest) -> Launched:
        """Accept a wish and return the instance that stands for it; a repeated claim returns the first."""
        begun = self.clock.now() if self.tracer.is_on else None
        caller = request.caller
        if known := await self.made_of(request):
            return Launched(known, replayed=True)
        now = self.clock.now()
        request = _at_planned_price(request, now)
        terms = await self.judge.agreed(request.terms, judged_values(request), caller.limits, now)
        if request.wish.registry_auth_id:
            await self._check_registry_auth(request.wish.registry_auth_id)
        if request.envs:
            await self.environments.check(request.envs, caller.key_id)
        wish, hourly_usd, product_name, registry_auth_id = await self._checked(request)
        if must_know_price(request, self.budgets):
            # What was counted is all that it may cost, or a dearer fallback would go past the limit.
            # guard: a key with a limit pays no more than was counted
            wish = replace(wish, hourly_usd_max=hourly_usd)
        if request.envs:
            wish = replace(wish, envs=self.environments.sealed(request.envs, caller.key_id))
        history = await self._history(product_name)
        now = self.clock.now()
        instance = Instance(
            id=self.ids.new(ID_PREFIX, now),
            name=request.name,
            wish=wish,
            goal=Goal.RUNNING,
            status=Status.CREATING,
            created_at=now,
            deadline=now + timedelta(seconds=wish.patience_s) + self.max_wait,
            estimated_ready_at=now + time_to_ready(history),
            owner=caller.key_id,
            correlation_id=caller.correlation_id,
            expected_hourly_usd=hourly_usd,
            disk_hourly_usd=self.catalogue.disk.hourly_usd(wish.disk_gb),
            reason="accepted, looking for an offer",
            webhook_url=request.webhook_url,
            labels=request.labels,
            on_failure=request.on_failure,
            health_check=request.health_check,
            replacement=self._replacement(request),
            terms=terms,
            lease_term=accepted_term(terms.lease, now, self.judge.ends.lease_warning),
        )
        new_event = NewEvent(instance_event.CREATED, "accepted", after=Status.CREATING.value)
        change = self.event_recorder.change(instance, new_event, actor=caller.key_id)
        change = replace(
            change,
            jobs=(self.job_factory.reconcile_job(change.instance, registry_auth_id), *change.jobs),
            audit_record=caller.audit_record(AUDIT_ACTION, instance.id, now, after=_audit_text(instance)),
            limits=caller.limits if caller.limits.on_rentals else None,
            judged_by=self.budget_rules if self.budgets.current() else None,
        )
        # guard: one plan is one instance
        accepted = await self.instances.add(change, *request.claims)
        if begun is not None and accepted.id == instance.id:
            self.tracer.record(_accept_span(instance, begun, self.clock.now()))
        return Launched(accepted, replayed=accepted.id != instance.id)

    async def made_of(self, request: LaunchRequest) -> Instance | None:
        """Return the instance that an equal request, or one of the same plan, has made before."""
        for claim in request.claims:
            if known := await self.instances.claimed(claim):
                return known
        return None

    def _replacement(self, request: LaunchRequest) -> ReplacePolicy:
        most = request.max_replacements
        return ReplacePolicy(
            request.on_reclaim, self.max_replacements if most is None else most, request.handover_s
        )

    async def _history(self, product_name: str) -> Sequence[float]:
        return await self._histories.get_or_load(
            product_name, lambda: self.instances.ready_times_s(product_name)
        )

    async def _checked(self, request: LaunchRequest) -> _CheckedWish:
        """Return the wish with what is known about it; what is already known to be impossible is refused."""
        named = replace(request.wish, envs=named_envs(request.envs)) if request.envs else request.wish
        regions, offers, spec = await self._known(named)
        auth_id = None if spec is None else spec.registry_auth_id
        codes = self.rules.codes(request.region, request.regions, request.wish.optimize, regions)
        if request.wish.volumes:
            codes = (await self.pin_region(request.wish.volumes, asked_regions(request), regions),)
        wish = replace(request.wish, regions=codes)
        if offers is None or regions is None:
            self._refuse_unpriced(request)
            return _CheckedWish(wish, None, wish.product_name, auth_id)
        wanted = _values(wish)
        known = self._satisfiable.get(wanted)
        if known is None or known[0] is not offers:
            meant = await self.catalogue.named_offers(offers, wish, self.lookup_budget_s)
            ranking = rank_offers(meant, wish)
            if not ranking.accepted and wish.patience_s:
                self._refuse_unpriced(request)
                return _CheckedWish(wish, None, likely_product(ranking, wish), auth_id)
            if not ranking.accepted:
                raise no_capacity(ranking, wish)
            if len(self._satisfiable) >= SATISFIABLE_MAX:
                self._satisfiable.clear()
            product_name = likely_product(ranking, wish)
            known = self._satisfiable[wanted] = (offers, counted_usd(ranking, wish), product_name)
        if not self.line.is_quiet and not wish.patience_s:
            # guard: who came later does not take what others wait for
            await self._refuse_waited_for(wish, offers, regions)
        return _CheckedWish(wish, known[1], known[2], auth_id)

    async def _refuse_waited_for(
        self, wish: LaunchSpec, offers: Sequence[Offer], regions: Sequence[Region]
    ) -> None:
        """Refuse a wish for which all offers rest, or are waited for by others; it would not wait itself."""
        me = Waiter("", self.clock.now(), wish)
        ranking = rank_offers(
            require_offers(offers, wish), wish, await self.line.held_for(me, offers, regions)
        )
        if not ranking.accepted:
            raise no_capacity(ranking, wish)

    async def _check_registry_auth(self, auth_id: str) -> None:
        """Refuse a credential that is known not to be there; that of a template is looked up by the job."""
        await within_budget(self.lookup_budget_s, self.catalogue.check_registry_auth(auth_id))

    def _refuse_unpriced(self, request: LaunchRequest) -> None:
        """Refuse a wish of unknown price where there is a limit on what may be spent."""
        if must_know_price(request, self.budgets):
            raise CloudUnavailable(PRICE_UNKNOWN)

    async def _known(
        self, wish: LaunchSpec
    ) -> tuple[tuple[Region, ...] | None, tuple[Offer, ...] | None, Template | None]:
        """Return regions, offers and what shall run as far as known in time; what cannot run raises."""
        modes = billing_modes(wish)
        if from_cache := self.catalogue.from_cache(modes, wish):
            return from_cache
        return await asyncio.gather(
            within_budget(self.lookup_budget_s, self.catalogue.regions()),
            within_budget(self.lookup_budget_s, self.catalogue.offers_of(modes)),
            within_budget(self.lookup_budget_s, self.catalogue.run_spec(wish)),
        )


def asked_regions(request: LaunchRequest) -> tuple[str, ...]:
    """Return the regions that the user named, in his words; none: the settings choose."""
    return (*((request.region,) if request.region else ()), *(request.regions or ()))


def judged_values(request: LaunchRequest) -> AskedValues:
    """Return what the catalogue and the clock judge of a request."""
    return AskedValues(request.region, request.regions, request.terms.lease)


def must_know_price(request: LaunchRequest, budgets: BudgetCache) -> bool:
    """Return True if there is a limit on what may be spent, and the wish itself sets none."""
    caller = request.caller
    # guard: what a budget has counted is all that it may cost
    is_limited = caller.limits.max_hourly_usd is not None or budgets.binds(caller.key_id, request.labels)
    return is_limited and request.wish.hourly_usd_max is None


def _at_planned_price(request: LaunchRequest, now: datetime) -> LaunchRequest:
    """Let what was planned cost no more than the plan said; an expired plan is refused."""
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
