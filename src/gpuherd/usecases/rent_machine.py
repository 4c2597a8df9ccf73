"""Rent: take the next best offer, write the intent down, call once, write down what happened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from gpuherd.clock import Clock
from gpuherd.domain import events
from gpuherd.domain.attempt import Attempt, AttemptState
from gpuherd.domain.copying import replace
from gpuherd.domain.errors import (
    CloudError,
    CloudUnavailable,
    InvalidRequest,
    KeyRefused,
    NoCapacity,
    NotFound,
    OutcomeUnknown,
    OutOfStock,
    StaleWrite,
)
from gpuherd.domain.instance import Goal, Instance, Rental
from gpuherd.domain.machine import Machine
from gpuherd.domain.offer import Offer, Order, Template, TemplateUnusable
from gpuherd.domain.selection import Ranking
from gpuherd.domain.tag import Tag, cloud_name, owner_tag
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.store import Flags, Turn, Turns
from gpuherd.usecases.catalogue import Catalogue
from gpuherd.usecases.choose_offer import choose_offer, was_sold_out
from gpuherd.usecases.chronicle import Chronicle, News
from gpuherd.usecases.describe import iso
from gpuherd.usecases.forgotten_machine import forgotten_machine
from gpuherd.usecases.planning_record import Awaited, Record, awaiting, planned
from gpuherd.usecases.price_list import price_list
from gpuherd.usecases.promptly import SEND_WITHIN_S, refuse_late

CREATES_BLOCKED = "creates_blocked"
# After so many creates of unknown outcome we stop: something is wrong that more calls will not mend.
UNKNOWN_MAX = 3
WAIT_FIRST_S, WAIT_CAP_S = 1.0, 30.0
FIRST_LOOK = timedelta(seconds=2)
# Who waits for capacity looks this often.
CAPACITY_LOOK = timedelta(seconds=30)


async def _always() -> bool:
    return True


@dataclass(frozen=True)
class Tried:
    """A call was made and its outcome is in the turn: bound, refused for lack of stock, or unknown."""

    turn: Turn


@dataclass(frozen=True)
class NotNow:
    """Surely nothing was rented; the same may work later."""

    turn: Turn
    delay: timedelta
    reason: str
    # What goes on record when such a wait begins, where no rejected call tells it already.
    record: Record | None = None


@dataclass(frozen=True)
class Never:
    """Surely nothing was rented, and nothing will be: what to tell the user."""

    turn: Turn
    code: str
    reason: str
    details: Mapping[str, Any] = field(default_factory=dict)


Answer = Tried | NotNow | Never


@dataclass(frozen=True)
class RentMachine:
    """One create call, from the choice of the offer to its recorded outcome."""

    turns: Turns
    cloud: Cloud
    catalogue: Catalogue
    chronicle: Chronicle
    flags: Flags
    clock: Clock
    installation: str
    boot_id: str
    # Whether the cloud was seen since this process began; before that we may not know what we own.
    has_looked: Callable[[], Awaitable[bool]] = _always
    # So many create calls may stay without answer and effect. With one, no machine can ever be surplus.
    unknown_max: int = UNKNOWN_MAX

    async def __call__(self, turn: Turn) -> Answer:
        """Make at most one create call. `CloudUnavailable` or `KeyRefused` from here: none was made."""
        if not await self.has_looked():
            unseen = "waiting for the cloud: it was not seen since gpuherd started"
            return NotNow(turn, FIRST_LOOK, unseen, awaiting(Awaited.CLOUD))
        # Read again, because this turn may have begun before that look.
        turn = await self.turns.refresh(turn)
        if machine := forgotten_machine(turn, self.installation):
            return Tried(await self._take_back(turn, machine))
        if reason := await self.flags.get(CREATES_BLOCKED):
            words = f"creates are blocked: {reason}"
            return NotNow(turn, timedelta(seconds=WAIT_CAP_S), words, awaiting(Awaited.CREATES))
        abandoned = sum(it.state is AttemptState.ABANDONED for it in turn.attempts)
        if abandoned >= self.unknown_max:
            calls = "a create call" if abandoned == 1 else f"{abandoned} create calls"
            return Never(turn, "OUTCOME_UNKNOWN", f"{calls} had neither an answer nor an effect")
        try:
            template, ranking = await choose_offer(turn, self.catalogue, self.cloud, self.clock.now())
        except NoCapacity as error:
            until = turn.instance.created_at + timedelta(seconds=turn.instance.wish.capacity_wait_s)
            left = until - self.clock.now()
            if left <= timedelta(0):
                return Never(turn, error.code, error.message, error.details)
            reason = f"waiting for capacity until {iso(until)}: {error.message}"
            return NotNow(turn, min(CAPACITY_LOOK, left), reason, awaiting(Awaited.CAPACITY, error))
        except (InvalidRequest, NotFound, TemplateUnusable) as error:
            return Never(turn, error.code, error.message, error.details)
        decided_s = self.clock.monotonic()
        turn, attempt = await self._intend(turn, ranking.accepted[0], template, ranking)
        return await self._call(turn, attempt, ranking.accepted[0], template, decided_s)

    async def _intend(
        self, turn: Turn, offer: Offer, template: Template, ranking: Ranking
    ) -> tuple[Turn, Attempt]:
        """Commit the intent. Only after this may a byte of the create call go out."""
        instance = turn.instance
        n = max((it.n for it in turn.attempts), default=0) + 1
        price = offer.gpu_hourly_usd(instance.wish.billing_mode)
        assert price is not None, "an offer without a price is never accepted"
        attempt = Attempt(
            instance_id=instance.id,
            n=n,
            tag=str(Tag(self.installation, instance.key, n)),
            state=AttemptState.SENT,
            product_id=offer.product_id,
            product_name=offer.product_name,
            region=offer.region,
            cluster_id=offer.cluster_id,
            gpu_hourly_usd=price,
            sent_at=self.clock.now(),
            boot_id=self.boot_id,
            image_url=template.image,
        )
        instance = replace(instance, reason=f"renting {offer.product_name} in {offer.region}")
        plan = News(
            events.PLANNED, f"trying {offer.product_id} in {offer.region}", planned(ranking, instance.wish, n)
        )
        turn = await self.turns.save(turn, self.chronicle.change(instance, plan, attempt=attempt))
        return turn, attempt

    async def _call(
        self, turn: Turn, attempt: Attempt, offer: Offer, template: Template, decided_s: float
    ) -> Answer:
        instance = turn.instance
        order = Order(
            name=cloud_name(instance.name, Tag(self.installation, instance.key, attempt.n)),
            tag=attempt.tag,
            offer=offer,
            template=template,
            gpu_num=instance.wish.gpu_num,
            disk_gb=instance.wish.disk_gb,
            billing_mode=instance.wish.billing_mode,
            send_by_s=decided_s + SEND_WITHIN_S,
        )
        try:
            refuse_late(self.clock, decided_s)
            cloud_id = await self.cloud.create_machine(order)
        except OutcomeUnknown as error:
            return Tried(await self._unknown(turn, attempt, error))
        except OutOfStock as error:
            self.catalogue.forget_offers()
            return Tried(await self._rejected(turn, attempt, error))
        except (CloudUnavailable, KeyRefused) as error:
            turn = await self._rejected(turn, attempt, error)
            return NotNow(turn, _patience(turn, error), f"waiting for the cloud: {error.message}")
        except CloudError as error:
            return Never(await self._rejected(turn, attempt, error), error.code, error.message)
        return Tried(await self.bind(turn, attempt, cloud_id, "rented, waiting for it to start"))

    async def bind(self, turn: Turn, attempt: Attempt, cloud_id: str, reason: str, *news: News) -> Turn:
        """Write down that this machine is ours, in one transaction with everything that follows from it."""
        rental = Rental(
            product_id=attempt.product_id,
            product_name=attempt.product_name,
            region=attempt.region,
            cluster_id=attempt.cluster_id,
            gpu_hourly_usd=attempt.gpu_hourly_usd,
            image_url=attempt.image_url,
        )
        bound = replace(attempt, state=AttemptState.BOUND, cloud_id=cloud_id, closed_at=self.clock.now())

        def with_machine(it: Instance) -> Instance:
            wanted = it.goal is Goal.RUNNING
            return replace(it, cloud_id=cloud_id, rental=rental, reason=reason if wanted else it.reason)

        return await self._note(turn, with_machine, *news, attempt=bound)

    async def _take_back(self, turn: Turn, machine: Machine) -> Turn:
        """Bind a machine of this instance whose create call our memory has lost, and remember the call."""
        tag = owner_tag(machine)
        assert tag is not None, "only a tagged machine can be forgotten"
        news = News(
            events.MACHINE_FOUND,
            "found by its tag; this database had no record of the create call",
            {"attempt": tag.attempt, "cloudInstanceId": machine.cloud_id},
        )
        reason = "found by its tag, rented before this database was put back"
        price = (await price_list(self.catalogue)).gpu_hourly_usd(machine)
        if price is None:
            return await self._note(
                turn, lambda it: replace(it, cloud_id=machine.cloud_id, reason=reason), news, attempt=None
            )
        attempt = Attempt(
            instance_id=turn.instance.id,
            n=tag.attempt,
            tag=str(tag),
            state=AttemptState.BOUND,
            product_id=machine.product_id,
            product_name=machine.product_name,
            region=machine.region,
            cluster_id=machine.cluster_id,
            gpu_hourly_usd=price,
            sent_at=machine.created_at or self.clock.now(),
            boot_id=self.boot_id,
            image_url=machine.image_url,
        )
        return await self.bind(turn, attempt, machine.cloud_id, reason, news)

    async def _unknown(self, turn: Turn, attempt: Attempt, error: OutcomeUnknown) -> Turn:
        unsure = replace(attempt, state=AttemptState.UNKNOWN, error_code=error.code, error=error.message)
        news = News(events.OUTCOME_UNKNOWN, error.message, {"attempt": attempt.n})
        reason = "the create call got no answer; looking for its machine"
        return await self._note(turn, lambda it: replace(it, reason=reason), news, attempt=unsure)

    async def _rejected(self, turn: Turn, attempt: Attempt, error: CloudError) -> Turn:
        refused = replace(
            attempt,
            state=AttemptState.REJECTED,
            closed_at=self.clock.now(),
            error_code=error.code,
            error=error.message,
        )
        details = {"attempt": attempt.n, "productId": attempt.product_id, "region": attempt.region}
        news = News(events.ATTEMPT_REJECTED, error.message, {**details, "code": error.code})
        return await self._note(turn, lambda it: it, news, attempt=refused)

    async def _note(
        self, turn: Turn, change: Callable[[Instance], Instance], *news: News, attempt: Attempt | None
    ) -> Turn:
        """Write down how a call went, whatever the user has come to want while it was under way."""
        while True:
            try:
                noted = self.chronicle.change(change(turn.instance), *news, attempt=attempt)
                return await self.turns.save(turn, noted)
            except StaleWrite:
                # Raises if the lease is gone; else only the goal has changed, and this still holds.
                turn = await self.turns.refresh(turn)


def _patience(turn: Turn, error: CloudError) -> timedelta:
    """Wait as the cloud asks, else longer the more calls in a row were in vain."""
    in_vain = 0
    for attempt in sorted(turn.attempts, key=lambda it: it.n, reverse=True):
        if attempt.state is not AttemptState.REJECTED or was_sold_out(attempt):
            break
        in_vain += 1
    asked_s = getattr(error, "retry_after_s", None) or 0.0
    return timedelta(seconds=max(asked_s, min(WAIT_CAP_S, WAIT_FIRST_S * 2 ** max(0, in_vain - 1))))
