"""Who waits for capacity, for what, and in which order they try again."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Sequence,
)
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuherd.domain.cloud.offer import Offer, OfferKey
from gpuherd.domain.errors import NotFound
from gpuherd.domain.instance.instance import Instance, rest_length
from gpuherd.domain.instance.instance_state import wants_machine
from gpuherd.domain.instance.launch_spec import LaunchSpec
from gpuherd.domain.instance.offer_ranking import (
    billing_modes,
    key_of,
    rejection_reason,
    require_offers,
)

# After this time without a refusal the count starts again at zero.
REFUSALS_FORGOTTEN = timedelta(hours=1)


@dataclass(frozen=True)
class OfferRest:
    """An offer that the cloud refused for lack of stock, and the cloud's message."""

    key: OfferKey
    # Refusals in a row.
    refusals: int
    refused_at: datetime
    message: str

    @property
    def length(self) -> timedelta:
        """How long the offer rests."""
        return rest_length(self.refusals)

    @property
    def next_try_at(self) -> datetime:
        return self.refused_at + self.length

    def is_over(self, now: datetime) -> bool:
        # abs(): if the wall clock stepped back, the refusal seems to lie in the future.
        return abs(now - self.refused_at) >= self.length

    def is_forgotten(self, now: datetime) -> bool:
        return abs(now - self.refused_at) >= REFUSALS_FORGOTTEN


def rest_after_refusal(key: OfferKey, message: str, earlier: OfferRest | None, now: datetime) -> OfferRest:
    """Return the rest of an offer that the cloud has just refused."""
    if earlier is None or earlier.is_forgotten(now):
        return OfferRest(key, 1, now, message)
    if not earlier.is_over(now):
        # Several callers asked at the same time. That counts as one refusal.
        return earlier
    # guard: an offer rests longer each time
    return OfferRest(key, earlier.refusals + 1, now, message)


@dataclass(frozen=True)
class Waiter:
    """One instance that waits in line."""

    instance_id: str
    since: datetime
    wish: LaunchSpec
    # From this time on, on-demand offers are accepted too. None: never, or from the beginning.
    fallback_at: datetime | None = None

    @property
    def order(self) -> tuple[datetime, str]:
        """The sort key: the oldest waiter comes first."""
        # guard: the oldest comes first
        return self.since, self.instance_id

    def takes_spot_only(self, now: datetime) -> bool:
        return self.fallback_at is not None and now < self.fallback_at


@dataclass(frozen=True)
class PlaceInLine:
    """How many waiters come first, when the next try happens, and the cloud's last message."""

    ahead: int
    next_try_at: datetime | None
    last_refusal: OfferRest | None


# The offers that a waiter would accept.
Takes = Callable[[Waiter], Collection[OfferKey]]


def is_in_line(instance: Instance) -> bool:
    """Return True if the instance waits for its turn.

    An instance whose last call has an unknown outcome does not.
    """
    return instance.line_since is not None and instance.waiting_for is not None and wants_machine(instance)


def waiter_of(instance: Instance, now: datetime) -> Waiter:
    """Return the instance as a waiter. An instance that is not in line comes last."""
    after = instance.wish.fallback_after_s
    fallback_at = None if after is None else instance.created_at + timedelta(seconds=after)
    return Waiter(instance.id, instance.line_since or now, instance.wish, fallback_at)


def taken_before(me: Waiter, line: Iterable[Waiter], takes: Takes) -> dict[OfferKey, int]:
    """Return the offers that others have waited for longer, each with the number of those waiters."""
    waited_for: dict[OfferKey, int] = {}
    for other in line:
        if other.instance_id != me.instance_id and other.order < me.order:
            for key in takes(other):
                waited_for[key] = waited_for.get(key, 0) + 1
    return waited_for


def count_ahead(me: Waiter, line: Iterable[Waiter], takes: Takes) -> int:
    """Return how many come first who would take something that this one would take."""
    mine = frozenset(takes(me))
    before = (it for it in line if it.instance_id != me.instance_id and it.order < me.order)
    return sum(not mine.isdisjoint(takes(it)) for it in before)


def heads(line: Iterable[Waiter], takes: Takes, on_sale: Collection[OfferKey]) -> Sequence[Waiter]:
    """Return the waiters that are first in line for an offer that can be tried now."""
    left, found = set(on_sale), []
    for waiter in sorted(line, key=lambda it: it.order):
        if not left:
            break
        if mine := left.intersection(takes(waiter)):
            found.append(waiter)
            left -= mine
    return found


def wanted_offers(offers: Iterable[Offer], wish: LaunchSpec, *, spot_only: bool) -> frozenset[OfferKey]:
    """Return the offers that a launch spec accepts, whether in stock or not."""
    modes = billing_modes(wish)[:1] if spot_only else billing_modes(wish)
    try:
        named = require_offers([it for it in offers if it.listed_as in modes], wish)
    except NotFound:
        return frozenset()
    shown = (it if it.available else replace(it, available=True) for it in named)
    return frozenset(key_of(it, wish) for it in shown if rejection_reason(it, wish) is None)
