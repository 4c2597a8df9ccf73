"""Rent: take the best offer, record the intent, make one create call, record its outcome.

A machine that this instance has already is bound instead. Nothing may be moved inside `rent_machine`: each
step protects the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuherd import __version__
from gpuherd.contract.wire_models import iso
from gpuherd.domain.cloud.offer import Offer
from gpuherd.domain.cloud.template import (
    CreateCall,
    Template,
    TemplateUnusable,
    with_envs,
)
from gpuherd.domain.errors import (
    CloudError,
    CloudUnavailable,
    InvalidRequest,
    KeyRefused,
    NoCapacity,
    NotFound,
    OutcomeUnknown,
    OutOfStock,
    SecretUnreadable,
)
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import Instance, Waiting, WaitingFor
from gpuherd.domain.instance.launch_spec import OpenedEnv
from gpuherd.domain.instance.offer_ranking import (
    Ranking,
    gpu_hourly_usd,
    key_of,
    mode_of,
)
from gpuherd.domain.instance.rent_attempt import (
    Attempt,
    AttemptState,
    Tag,
    cloud_name,
)
from gpuherd.ports.instance_port import LeasedInstance
from gpuherd.usecases.cloud.guard_creates import CREATES_BLOCKED, INSTALLATION_SHARED
from gpuherd.usecases.events.record_event import NewEvent
from gpuherd.usecases.instances.tell_timeline import plan_record, wait_record
from gpuherd.usecases.reconcile.adopt_machine import adopt_own_machine, bind_machine, may_have_lost_create
from gpuherd.usecases.reconcile.choose_offer import choose_offer, is_refusal_reported, was_sold_out
from gpuherd.usecases.reconcile.reconcile_context import InstancePass, Pause
from gpuherd.usecases.reconcile.record_status import record_failure
from gpuherd.usecases.reconcile.send_deadline import SEND_WITHIN_S, check_send_deadline
from gpuherd.usecases.services import Services

# After so many creates of unknown outcome an instance fails: more calls would not mend what is wrong.
# guard: a few unknown outcomes are enough
UNKNOWN_OUTCOMES_MAX = 3


BACKOFF_FIRST_S, BACKOFF_CAP_S = 1.0, 30.0


# So many calls take about 20 minutes: an instance that waits for longer asks less and less often.
REFUSALS_AT_CAP, LONG_BACKOFF_CAP_S = 45, 300.0


FIRST_LIST_RETRY = timedelta(seconds=2)
ZERO = timedelta(0)


# An instance in line is woken when its turn comes; this is the resync for one that is not.
LINE_RECHECK = timedelta(minutes=30)


@dataclass(frozen=True)
class _Order:
    """What a create call would use, and when that was decided, by the boot-time clock."""

    template: Template
    envs: Sequence[OpenedEnv]
    ranking: Ranking
    decided_s: float

    @property
    def offer(self) -> Offer:
        return self.ranking.accepted[0]


async def rent_machine(this_pass: InstancePass) -> Pause | None:
    """Make at most one create call and record its outcome, or say what the instance waits for.

    `CloudUnavailable` or `KeyRefused` from here: no call was made.
    """
    services = this_pass.services
    # guard: no create before the first look
    if not await services.observer.has_listed():
        return _until_listed(this_pass, "it was not seen since gpuherd started")
    # This pass may have begun before that list.
    await this_pass.reread()
    if await adopt_own_machine(this_pass):
        return None
    if (pause := await wait_for_lost_create(this_pass)) is not None:
        return pause
    # guard: the alarm stops creates
    if reason := await services.stores.flags.first(INSTALLATION_SHARED, CREATES_BLOCKED):
        return Pause(
            timedelta(seconds=BACKOFF_CAP_S),
            f"creates are blocked: {reason}",
            Waiting(WaitingFor.CREATES, reason, services.clock.now()),
            wait_record(WaitingFor.CREATES),
        )
    abandoned = sum(attempt.state is AttemptState.ABANDONED for attempt in this_pass.locked.attempts)
    if abandoned >= services.rules.unknown_outcomes_max:
        calls = "a create call" if abandoned == 1 else f"{abandoned} create calls"
        reason = f"{calls} had neither an answer nor an effect"
        await record_failure(this_pass, "OUTCOME_UNKNOWN", reason)
        return None
    try:
        is_early = _until_fallback(services, this_pass.instance) > ZERO
        template, ranking = await choose_offer(services, this_pass.locked, spot_only=is_early)
        # Before the intent: nothing is rented for variables that cannot be read.
        # guard: variables that cannot be read rent nothing
        envs = await services.environments.opened(this_pass.instance)
        template = with_envs(template, envs)
    except NoCapacity as error:
        return await _wait_for_offer(this_pass, error)
    except (InvalidRequest, NotFound, SecretUnreadable, TemplateUnusable) as error:
        await record_failure(this_pass, error.code, error.message, error.details)
        return None
    if not this_pass.instance.wish.patience_s:
        return await _rent_best(this_pass, template, envs, ranking)
    offer_key = key_of(ranking.accepted[0], this_pass.instance.wish)
    with services.capacity_line.calling(offer_key) as other_call:
        if other_call:
            # Another call is finding out whether there is any stock.
            return Pause(other_call)
        return await _rent_best(this_pass, template, envs, ranking)


async def _rent_best(
    this_pass: InstancePass, template: Template, envs: Sequence[OpenedEnv], ranking: Ranking
) -> Pause | None:
    order = _Order(template, envs, ranking, this_pass.services.clock.boottime())
    # guard: intent before the call
    attempt, plan = await _record_intent(this_pass, order)
    return await _make_call(this_pass, order, attempt, plan)


async def wait_for_lost_create(this_pass: InstancePass) -> Pause | None:
    """Return a pause while a create call that the database has lost may still show up."""
    # guard: a create call that the store has lost is given time to show up
    if await may_have_lost_create(this_pass.services, this_pass.instance):
        return _until_listed(
            this_pass,
            "the database has lost its newest entries, perhaps a create call; looking for its machine",
        )
    return None


def _until_listed(this_pass: InstancePass, why: str) -> Pause:
    return Pause(
        FIRST_LIST_RETRY,
        f"waiting for the cloud: {why}",
        Waiting(WaitingFor.CLOUD, why, this_pass.services.clock.now()),
        wait_record(WaitingFor.CLOUD),
    )


async def _wait_for_offer(this_pass: InstancePass, error: NoCapacity) -> Pause | None:
    """Wait for an offer until the time of the launch spec is over; then record the failure."""
    services, instance = this_pass.services, this_pass.instance
    until = _wait_end(services, instance, instance.wish.patience_s)
    left, fallback = until - services.clock.now(), _until_fallback(services, instance)
    if left <= ZERO:
        await record_failure(this_pass, error.code, error.message, error.details)
        return None
    return Pause(
        min(LINE_RECHECK, left, fallback if fallback > ZERO else left),
        f"waiting for capacity until {iso(until)}: {error.message}",
        Waiting(WaitingFor.CAPACITY, error.message, services.clock.now()),
        wait_record(WaitingFor.CAPACITY, error),
    )


def _wait_end(services: Services, instance: Instance, seconds: int) -> datetime:
    """Return when so much of a wait is over: the user was promised a span of time, not a date."""
    created_at, adjustments = instance.created_at, services.clock_adjustments
    # guard: a clock that is set ahead ends no wait for capacity
    return created_at + timedelta(seconds=seconds) + adjustments.ahead_since(created_at)


def _until_fallback(services: Services, instance: Instance) -> timedelta:
    """Return for how long the instance accepts spot only."""
    return _wait_end(services, instance, instance.wish.fallback_after_s or 0) - services.clock.now()


async def _record_intent(this_pass: InstancePass, order: _Order) -> tuple[Attempt, tuple[NewEvent, ...]]:
    """Commit the intent. Only after this may a byte of the create call go out.

    A wait that tries the same offer again and again does not report each plan. Then the event is returned, so
    that it is reported if the call ends otherwise this time.
    """
    services, instance, offer = this_pass.services, this_pass.instance, order.offer
    attempts = this_pass.locked.attempts
    n = max((earlier.n for earlier in attempts), default=0) + 1
    price, reading = gpu_hourly_usd(offer, instance.wish), services.observer.metering.read_clocks()
    assert price is not None, "an offer without a price is never accepted"
    # guard: each create call has a random part in its tag
    attempt = Attempt(
        instance_id=instance.id,
        n=n,
        tag=str(Tag(services.stores.installation, instance.key, n, _nonce(services))),
        state=AttemptState.SENT,
        product_id=offer.product_id,
        product_name=offer.product_name,
        region=offer.region,
        cluster_id=offer.cluster_id,
        gpu_hourly_usd=price,
        sent_at=reading.at,
        boot_id=services.rules.boot_id,
        image_url=order.template.image,
        billing_mode=mode_of(offer, instance.wish),
        sent_reading=reading,
    )
    reason = f"renting {offer.product_name} in {offer.region}"
    # A wait for capacity goes on until something is rented; no other instance may try the offer meanwhile.
    # guard: nobody overtakes a call that is under way
    waits = None if instance.line_since is None else instance.waiting_for
    is_reported = is_refusal_reported(instance, attempts, attempt.offer_key, OutOfStock.code, attempt.sent_at)
    plan = NewEvent(
        instance_event.PLANNED,
        f"trying {offer.product_id} in {offer.region}",
        plan_record(order.ranking, instance.wish, n),
    )
    now, later = ((), (plan,)) if is_reported else ((plan,), ())
    await this_pass.save(replace(instance, reason=reason, waiting_for=waits), *now, attempt=attempt)
    return attempt, later


def _nonce(services: Services) -> str:
    """Return the random part of a tag; empty while a replica of another version may be unable to read it."""
    is_known = all(replica.version == __version__ for replica in services.live_replicas())
    return services.ids.nonce() if is_known else ""


async def _make_call(
    this_pass: InstancePass, order: _Order, attempt: Attempt, plan: tuple[NewEvent, ...]
) -> Pause | None:
    """Make the create call once, and record its outcome."""
    services, call = this_pass.services, _create_call(this_pass.instance, order, attempt)
    try:
        # guard: a create is made promptly or not at all
        check_send_deadline(services.clock, order.decided_s)
        cloud_id = await services.cloud.create_machine(call)
    except OutcomeUnknown as error:
        await _record_unknown(this_pass, attempt, error, plan)
        return None
    except OutOfStock as error:
        await _record_rejected(this_pass, attempt, error, plan)
        # guard: a refusal counts for everybody
        await services.capacity_line.note_refusal(attempt.offer_key, error.message)
        if not this_pass.instance.wish.patience_s:
            # An instance that waits does not read the catalogue again at each refusal.
            services.catalogue.invalidate_offers()
        return None
    except (CloudUnavailable, KeyRefused) as error:
        await _record_rejected(this_pass, attempt, error, plan)
        return Pause(
            _backoff(this_pass.locked, error),
            f"waiting for the cloud: {error.message}",
            Waiting(WaitingFor.CLOUD, error.message, services.clock.now()),
        )
    except CloudError as error:
        await _record_rejected(this_pass, attempt, error, plan)
        await record_failure(this_pass, error.code, error.message)
        return None
    await bind_machine(this_pass, attempt, cloud_id, "rented, waiting for it to start", *plan)
    return None


def _create_call(instance: Instance, order: _Order, attempt: Attempt) -> CreateCall:
    return CreateCall(
        name=cloud_name(instance.name, attempt.tag),
        tag=attempt.tag,
        offer=order.offer,
        template=order.template,
        gpu_num=instance.wish.gpu_num,
        disk_gb=instance.wish.disk_gb,
        billing_mode=mode_of(order.offer, instance.wish),
        secret_envs=frozenset(env.name for env in order.envs if env.is_credential),
        volumes=instance.wish.volumes,
        send_by_s=order.decided_s + SEND_WITHIN_S,
    )


async def _record_unknown(
    this_pass: InstancePass, attempt: Attempt, error: OutcomeUnknown, plan: tuple[NewEvent, ...]
) -> None:
    unsure = replace(attempt, state=AttemptState.UNKNOWN, error_code=error.code, error=error.message)
    new_event = NewEvent(instance_event.OUTCOME_UNKNOWN, error.message, {"attempt": attempt.n})
    reason = "the create call got no answer; looking for its machine"
    await this_pass.save_outcome(
        lambda instance: replace(instance, reason=reason, waiting_for=None), *plan, new_event, attempt=unsure
    )
    this_pass.services.capacity_line.note(this_pass.instance)


async def _record_rejected(
    this_pass: InstancePass, attempt: Attempt, error: CloudError, plan: tuple[NewEvent, ...]
) -> None:
    refused = replace(
        attempt,
        state=AttemptState.REJECTED,
        closed_at=this_pass.services.clock.now(),
        error_code=error.code,
        error=error.message,
    )
    details = {"attempt": attempt.n, "productId": attempt.product_id, "region": attempt.region}
    new_event = NewEvent(instance_event.ATTEMPT_REJECTED, error.message, {**details, "code": error.code})
    earlier = [known for known in this_pass.locked.attempts if known.n != attempt.n]
    is_reported = is_refusal_reported(
        this_pass.instance, earlier, attempt.offer_key, error.code, attempt.sent_at
    )
    # guard: a wait does not write for ever
    new_events = () if is_reported else (*plan, new_event)
    await this_pass.save_outcome(lambda instance: instance, *new_events, attempt=refused)


def _backoff(locked: LeasedInstance, error: CloudError) -> timedelta:
    """Wait as long as the cloud asks, else longer after each further call in vain."""
    in_vain = 0
    for attempt in sorted(locked.attempts, key=lambda attempt: attempt.n, reverse=True):
        if attempt.state is not AttemptState.REJECTED or was_sold_out(attempt):
            break
        in_vain += 1
    requested_s = getattr(error, "retry_after_s", None) or 0.0
    return timedelta(seconds=max(requested_s, _backoff_s(in_vain)))


def _backoff_s(in_vain: int) -> float:
    if in_vain <= REFUSALS_AT_CAP:
        return min(BACKOFF_CAP_S, BACKOFF_FIRST_S * (1 << max(0, in_vain - 1)))
    return min(LONG_BACKOFF_CAP_S, BACKOFF_CAP_S * (1 << min(in_vain - REFUSALS_AT_CAP, 10)))
