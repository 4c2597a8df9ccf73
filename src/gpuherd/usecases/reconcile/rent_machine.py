"""Rent.

Take the next best offer, record the intent, make one create call, record its outcome; a machine that this
instance has already is bound instead.
"""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from gpuherd.contract.wire_models import iso
from gpuherd.domain.clock_reading import ClockReading
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
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.cloud_port import Cloud
from gpuherd.ports.instance_port import InstanceLeases, LeasedInstance
from gpuherd.ports.replica_port import Flags
from gpuherd.usecases.access.manage_secrets import Environments
from gpuherd.usecases.cloud.guard_creates import CREATES_BLOCKED, INSTALLATION_SHARED
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache
from gpuherd.usecases.cloud.run_capacity_line import CapacityLine
from gpuherd.usecases.events.record_event import EventRecorder, NewEvent
from gpuherd.usecases.instances.tell_timeline import EventDetails, plan_record, wait_record
from gpuherd.usecases.reconcile.adopt_machine import BindFoundMachine, BindMachine
from gpuherd.usecases.reconcile.choose_offer import choose_offer, is_refusal_told, was_sold_out
from gpuherd.usecases.reconcile.clock_steps import ClockStepDetector
from gpuherd.usecases.reconcile.send_deadline import SEND_WITHIN_S, check_send_deadline

# After so many creates of unknown outcome we stop: something is wrong that more calls will not mend.
# guard: a few unknown outcomes are enough
UNKNOWN_OUTCOMES_MAX = 3


BACKOFF_FIRST_S, BACKOFF_CAP_S = 1.0, 30.0


# So many calls, about 20 minutes: who waits for longer than an instance usually may asks less and less often.
REFUSALS_AT_CAP, LONG_BACKOFF_CAP_S = 45, 300.0


FIRST_LIST_RETRY = timedelta(seconds=2)
ZERO = timedelta(0)


# Who waits in line is woken when it is its turn; this is the resync for one that is not.
LINE_RECHECK = timedelta(minutes=30)


async def _always() -> bool:
    return True


async def _never(_: Instance) -> bool:
    return False


@dataclass(frozen=True)
class CreateAttempted:
    """A call was made and its outcome is on record: bound, refused for lack of stock, or unknown."""

    leased: LeasedInstance


@dataclass(frozen=True)
class RentLater:
    """Surely nothing was rented; the same may work later."""

    leased: LeasedInstance
    delay: timedelta
    reason: str
    waiting: Waiting | None = None
    # What goes on record when such a wait begins, where no rejected call tells it already.
    record: EventDetails | None = None


@dataclass(frozen=True)
class CannotRent:
    """Surely nothing was rented, and nothing will be: what to tell the user."""

    leased: LeasedInstance
    code: str
    reason: str
    details: Mapping[str, Any] = field(default_factory=dict)


RentOutcome = CreateAttempted | RentLater | CannotRent


@dataclass(frozen=True, kw_only=True)
class RentMachine:
    """One create call, from the choice of the offer to its recorded outcome."""

    instance_leases: InstanceLeases
    cloud: Cloud
    catalogue: CatalogueCache
    environments: Environments
    event_recorder: EventRecorder
    flags: Flags
    clock: Clock
    clock_steps: ClockStepDetector
    installation: str
    boot_id: str
    line: CapacityLine
    bind: BindMachine
    bind_found: BindFoundMachine
    # Drawn for each create call, so that no other database can make the same tag.
    nonce: Callable[[], str]
    read_clocks: Callable[[], ClockReading]
    # Whether the cloud was seen since this process began; before that we may not know what we own.
    has_listed: Callable[[], Awaitable[bool]] = _always
    # Whether the database may have lost a create call of this instance that cannot be seen yet.
    may_have_lost_create: Callable[[Instance], Awaitable[bool]] = _never
    # So many create calls may stay without answer and effect. With one, no machine can ever be surplus.
    unknown_outcomes_max: int = UNKNOWN_OUTCOMES_MAX

    async def __call__(self, leased: LeasedInstance) -> RentOutcome:
        """Make at most one create call. `CloudUnavailable` or `KeyRefused` from here: none was made."""
        # guard: no create before the first look
        if not await self.has_listed():
            return self._until_listed(leased, "it was not seen since gpuherd started")
        # Read again, because this pass may have begun before that look.
        leased = await self.instance_leases.refresh(leased)
        if (found := await self.find_lost(leased)) is not None:
            return found
        # guard: the alarm stops creates
        if reason := await self.flags.first(INSTALLATION_SHARED, CREATES_BLOCKED):
            return RentLater(
                leased,
                timedelta(seconds=BACKOFF_CAP_S),
                f"creates are blocked: {reason}",
                Waiting(WaitingFor.CREATES, reason, self.clock.now()),
                wait_record(WaitingFor.CREATES),
            )
        abandoned = sum(it.state is AttemptState.ABANDONED for it in leased.attempts)
        if abandoned >= self.unknown_outcomes_max:
            calls = "a create call" if abandoned == 1 else f"{abandoned} create calls"
            return CannotRent(leased, "OUTCOME_UNKNOWN", f"{calls} had neither an answer nor an effect")
        try:
            is_early = self._until_fallback(leased.instance) > ZERO
            template, ranking = await choose_offer(
                leased, self.catalogue, self.cloud, self.line, self.clock.now(), spot_only=is_early
            )
            # Before the intent: what cannot be read is never asked for.
            # guard: variables that cannot be read rent nothing
            envs = await self.environments.opened(leased.instance)
            template = with_envs(template, envs)
        except NoCapacity as error:
            return self._without_offer(leased, error)
        except (InvalidRequest, NotFound, SecretUnreadable, TemplateUnusable) as error:
            return CannotRent(leased, error.code, error.message, error.details)
        if not leased.instance.wish.patience_s:
            return await self._try_best(leased, template, envs, ranking)
        with self.line.calling(key_of(ranking.accepted[0], leased.instance.wish)) as pause:
            if pause:
                # Whether there is any stock is being found out.
                return RentLater(leased, pause, "")
            return await self._try_best(leased, template, envs, ranking)

    async def _try_best(
        self, leased: LeasedInstance, template: Template, envs: Sequence[OpenedEnv], ranking: Ranking
    ) -> RentOutcome:
        decided_s, best = self.clock.boottime(), ranking.accepted[0]
        # guard: intent before the call
        leased, attempt, plan = await self._record_intent(leased, best, template, ranking)
        return await self._call(leased, attempt, best, template, envs, decided_s, plan)

    async def find_lost(self, leased: LeasedInstance) -> CreateAttempted | RentLater | None:
        """Bind a machine whose create call is not on record, or wait until there surely is none."""
        if bound := await self.bind_found(leased):
            return CreateAttempted(bound)
        # guard: a create call that the store has lost is given time to show up
        if await self.may_have_lost_create(leased.instance):
            return self._until_listed(
                leased,
                "the database has lost its newest entries, perhaps a create call; looking for its machine",
            )
        return None

    def _without_offer(self, leased: LeasedInstance, error: NoCapacity) -> RentLater | CannotRent:
        """Wait for an offer, if there is time left for it."""
        it = leased.instance
        until = self._after(it, it.wish.patience_s)
        left, fallback = until - self.clock.now(), self._until_fallback(it)
        if left <= ZERO:
            return CannotRent(leased, error.code, error.message, error.details)
        return RentLater(
            leased,
            min(LINE_RECHECK, left, fallback if fallback > ZERO else left),
            f"waiting for capacity until {iso(until)}: {error.message}",
            Waiting(WaitingFor.CAPACITY, error.message, self.clock.now()),
            wait_record(WaitingFor.CAPACITY, error),
        )

    def _after(self, it: Instance, seconds: int) -> datetime:
        """Return when so much of a wait is over: what was promised is a span of time, not a date."""
        # guard: a clock that is set ahead ends no wait for capacity
        return it.created_at + timedelta(seconds=seconds) + self.clock_steps.ahead_since(it.created_at)

    def _until_fallback(self, it: Instance) -> timedelta:
        """Return how long only spot will do."""
        return self._after(it, it.wish.fallback_after_s or 0) - self.clock.now()

    def _until_listed(self, leased: LeasedInstance, why: str) -> RentLater:
        return RentLater(
            leased,
            FIRST_LIST_RETRY,
            f"waiting for the cloud: {why}",
            Waiting(WaitingFor.CLOUD, why, self.clock.now()),
            wait_record(WaitingFor.CLOUD),
        )

    async def _record_intent(
        self, leased: LeasedInstance, offer: Offer, template: Template, ranking: Ranking
    ) -> tuple[LeasedInstance, Attempt, tuple[NewEvent, ...]]:
        """Commit the intent. Only after this may a byte of the create call go out.

        What is tried again and again in a wait is not told again and again: then the event comes back, for
        whoever learns that it went otherwise this time.
        """
        instance = leased.instance
        n = max((it.n for it in leased.attempts), default=0) + 1
        price, reading = gpu_hourly_usd(offer, instance.wish), self.read_clocks()
        assert price is not None, "an offer without a price is never accepted"
        # guard: each create call has a random part in its tag
        attempt = Attempt(
            instance_id=instance.id,
            n=n,
            tag=str(Tag(self.installation, instance.key, n, self.nonce())),
            state=AttemptState.SENT,
            product_id=offer.product_id,
            product_name=offer.product_name,
            region=offer.region,
            cluster_id=offer.cluster_id,
            gpu_hourly_usd=price,
            sent_at=reading.at,
            boot_id=self.boot_id,
            image_url=template.image,
            billing_mode=mode_of(offer, instance.wish),
            sent_reading=reading,
        )
        reason = f"renting {offer.product_name} in {offer.region}"
        # A wait for capacity goes on until something is rented; nobody else may try the offer meanwhile.
        # guard: nobody overtakes a call that is under way
        waits = None if instance.line_since is None else instance.waiting_for
        is_told = is_refusal_told(
            instance, leased.attempts, attempt.offer_key, OutOfStock.code, attempt.sent_at
        )
        instance = replace(instance, reason=reason, waiting_for=waits)
        plan = NewEvent(
            instance_event.PLANNED,
            f"trying {offer.product_id} in {offer.region}",
            plan_record(ranking, instance.wish, n),
        )
        told, untold = ((), (plan,)) if is_told else ((plan,), ())
        leased = await self.instance_leases.save(
            leased, self.event_recorder.change(instance, *told, attempt=attempt)
        )
        return leased, attempt, untold

    async def _call(
        self,
        leased: LeasedInstance,
        attempt: Attempt,
        offer: Offer,
        template: Template,
        envs: Sequence[OpenedEnv],
        decided_s: float,
        plan: tuple[NewEvent, ...],
    ) -> RentOutcome:
        instance = leased.instance
        order = CreateCall(
            name=cloud_name(instance.name, attempt.tag),
            tag=attempt.tag,
            offer=offer,
            template=template,
            gpu_num=instance.wish.gpu_num,
            disk_gb=instance.wish.disk_gb,
            billing_mode=mode_of(offer, instance.wish),
            secret_envs=frozenset(it.name for it in envs if it.is_credential),
            volumes=instance.wish.volumes,
            send_by_s=decided_s + SEND_WITHIN_S,
        )
        try:
            # guard: a create is made promptly or not at all
            check_send_deadline(self.clock, decided_s)
            cloud_id = await self.cloud.create_machine(order)
        except OutcomeUnknown as error:
            return CreateAttempted(await self._unknown(leased, attempt, error, plan))
        except OutOfStock as error:
            leased = await self._rejected(leased, attempt, error, plan)
            # guard: a refusal counts for everybody
            await self.line.note_refusal(attempt.offer_key, error.message)
            if not leased.instance.wish.patience_s:
                # Those who wait do not ask for the catalogue at each refusal.
                self.catalogue.invalidate_offers()
            return CreateAttempted(leased)
        except (CloudUnavailable, KeyRefused) as error:
            leased = await self._rejected(leased, attempt, error, plan)
            return RentLater(
                leased,
                _backoff(leased, error),
                f"waiting for the cloud: {error.message}",
                Waiting(WaitingFor.CLOUD, error.message, self.clock.now()),
            )
        except CloudError as error:
            return CannotRent(await self._rejected(leased, attempt, error, plan), error.code, error.message)
        return CreateAttempted(
            await self.bind(leased, attempt, cloud_id, "rented, waiting for it to start", *plan)
        )

    async def _unknown(
        self, leased: LeasedInstance, attempt: Attempt, error: OutcomeUnknown, plan: tuple[NewEvent, ...]
    ) -> LeasedInstance:
        unsure = replace(attempt, state=AttemptState.UNKNOWN, error_code=error.code, error=error.message)
        new_event = NewEvent(instance_event.OUTCOME_UNKNOWN, error.message, {"attempt": attempt.n})
        reason = "the create call got no answer; looking for its machine"
        leased = await self.bind.save_outcome(
            leased, lambda it: replace(it, reason=reason, waiting_for=None), *plan, new_event, attempt=unsure
        )
        self.line.note(leased.instance)
        return leased

    async def _rejected(
        self, leased: LeasedInstance, attempt: Attempt, error: CloudError, plan: tuple[NewEvent, ...]
    ) -> LeasedInstance:
        refused = replace(
            attempt,
            state=AttemptState.REJECTED,
            closed_at=self.clock.now(),
            error_code=error.code,
            error=error.message,
        )
        details = {"attempt": attempt.n, "productId": attempt.product_id, "region": attempt.region}
        new_event = NewEvent(instance_event.ATTEMPT_REJECTED, error.message, {**details, "code": error.code})
        earlier = [it for it in leased.attempts if it.n != attempt.n]
        is_told = is_refusal_told(leased.instance, earlier, attempt.offer_key, error.code, attempt.sent_at)
        # guard: a wait does not write for ever
        told = () if is_told else (*plan, new_event)
        return await self.bind.save_outcome(leased, lambda it: it, *told, attempt=refused)


def _backoff(leased: LeasedInstance, error: CloudError) -> timedelta:
    """Wait as the cloud asks, else longer the more calls in a row were in vain."""
    in_vain = 0
    for attempt in sorted(leased.attempts, key=lambda it: it.n, reverse=True):
        if attempt.state is not AttemptState.REJECTED or was_sold_out(attempt):
            break
        in_vain += 1
    asked_s = getattr(error, "retry_after_s", None) or 0.0
    return timedelta(seconds=max(asked_s, _backoff_s(in_vain)))


def _backoff_s(in_vain: int) -> float:
    if in_vain <= REFUSALS_AT_CAP:
        return min(BACKOFF_CAP_S, BACKOFF_FIRST_S * (1 << max(0, in_vain - 1)))
    return min(LONG_BACKOFF_CAP_S, BACKOFF_CAP_S * (1 << min(in_vain - REFUSALS_AT_CAP, 10)))
