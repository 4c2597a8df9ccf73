"""The line of instances that wait for capacity: who tries next, and who is woken."""

from __future__ import annotations

from collections.abc import (
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from gpuherd.contract.wire_models import iso
from gpuherd.domain.cloud.capacity_line import (
    REFUSALS_FORGOTTEN,
    OfferRest,
    PlaceInLine,
    Takes,
    Waiter,
    count_ahead,
    heads,
    is_in_line,
    rest_after_refusal,
    taken_before,
    waiter_of,
    wanted_offers,
)
from gpuherd.domain.cloud.offer import (
    BillingMode,
    Offer,
    OfferKey,
    Region,
)
from gpuherd.domain.errors import CloudError
from gpuherd.domain.instance.instance import Instance, StartWait
from gpuherd.domain.instance.launch_spec import LaunchSpec
from gpuherd.domain.instance.offer_ranking import billing_modes
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.instance_port import CapacityMemory
from gpuherd.ports.job_port import Jobs
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache, known_codes
from gpuherd.usecases.service.make_jobs import JobFactory

# What another replica has written may be unknown here for so long.
SHARED_AGE_MAX_S = 1.0


# The catalogue is asked so often while anybody waits: as old as prices may be.
LOOK_INTERVAL = timedelta(seconds=30)


# The place that was taken back is tried last for so long; which ones they are is read so often.
PLACE_AVOIDED = timedelta(hours=1)


PLACES_AGE_MAX_S = 10.0


# The grants of an offer count for this long after the last one.
GRANTS_REMEMBERED_S = 60.0


# While other calls for an offer run, an instance that can wait is put off for at least this long.
TURNED_AWAY_MIN = timedelta(seconds=1)


TURNED_AWAY_MAX = timedelta(seconds=10)
TURNED_AWAY_APART = timedelta(milliseconds=20)
_Wanted = dict[tuple[LaunchSpec, bool], frozenset[OfferKey]]


@dataclass
class _Calls:
    """The calls for one offer that are made for instances that can wait."""

    under_way: int = 0
    # How many calls were granted since the last refusal.
    granted: int = 0
    granted_at_s: float = 0.0
    # How many instances were put off since the last call ended.
    turned_away: int = 0


class CapacityLine:
    """Knows which instances wait, which offers rest, and which instance may try which offer.

    Passes change this state here, and the store keeps it.
    """

    def __init__(
        self,
        memory: CapacityMemory,
        catalogue: CatalogueCache,
        browsed: CatalogueCache,
        clock: Clock,
        *,
        is_shared: bool = False,
    ):
        """`browsed` is the catalogue for those who only look."""
        self._memory = memory
        self._catalogue = catalogue
        self._browsed = browsed
        self._clock = clock
        self._is_shared = is_shared
        self._line: dict[str, Instance] = {}
        self._rests: dict[OfferKey, OfferRest] = {}
        self._read_at_s = 0.0
        self._looked_at: datetime | None = None
        self._calls: dict[OfferKey, _Calls] = {}
        # Where machines were taken back lately, and when.
        self._reclaimed: Mapping[OfferKey, datetime] = {}

    @property
    def waiting(self) -> int:
        """How many wait in line."""
        return len(self._line)

    @property
    def is_quiet(self) -> bool:
        """Whether nobody waits and nothing rests."""
        return not self._line and not self._rests

    async def refresh(self) -> None:
        """Learn it anew; what was known stays known while the store is away."""
        line, rests = await self._memory.load()
        self._line = {it.id: it for it in line}
        self._rests = {it.key: it for it in rests}
        self._reclaimed = await self._memory.reclaimed_since(self._clock.now() - PLACE_AVOIDED)
        self._read_at_s = self._clock.monotonic()

    def note(self, it: Instance) -> None:
        """Take over how an instance stands now."""
        if is_in_line(it):
            self._line[it.id] = it
        else:
            self._line.pop(it.id, None)

    async def note_refusal(self, key: OfferKey, message: str) -> None:
        """Let an offer rest that the cloud has just refused, for everybody."""
        rest = rest_after_refusal(key, message, self._rests.get(key), self._clock.now())
        self._rests[key] = rest
        if key in self._calls:
            self._calls[key].granted = 0
        await self._memory.remember(rest)

    async def note_rental(self, key: OfferKey) -> None:
        """Let an offer that was rented rest no longer."""
        if (calls := self._calls.get(key)) is not None:
            calls.granted += 1
            calls.granted_at_s = self._clock.monotonic()
        if self._rests.pop(key, None) is not None:
            await self._memory.forget(key)

    async def note_reclaim(self, key: OfferKey) -> None:
        """Let others go last where the cloud takes a spot machine back."""
        now = self._clock.now()
        self._reclaimed = {**self._reclaimed, key: now}
        await self._memory.note_reclaim(key, now)

    async def avoided(self) -> frozenset[OfferKey]:
        """Return where the cloud has taken machines back in the last hour: tried last, but tried."""
        if self._is_shared and self._clock.monotonic() - self._read_at_s > PLACES_AGE_MAX_S:
            await self.refresh()
        now = self._clock.now()
        # After the wall clock stepped back, `at` seems to lie in the future.
        return frozenset(key for key, at in self._reclaimed.items() if abs(now - at) < PLACE_AVOIDED)

    @contextmanager
    def calling(self, key: OfferKey) -> Iterator[timedelta]:
        """Yield how long an instance that can wait must leave this offer to the calls that run now.

        One call may run at a time, and one more for each recent grant. If there is stock, a thousand
        instances are soon served side by side. If there is none, one call finds out for all.
        """
        calls = self._calls.setdefault(key, _Calls())
        if self._clock.monotonic() - calls.granted_at_s > GRANTS_REMEMBERED_S:
            calls.granted = 0
        # guard: before anybody waits, one call finds out for all
        if calls.under_way > calls.granted:
            # The more instances ask, the longer each of them is put off.
            calls.turned_away += 1
            yield min(TURNED_AWAY_MAX, TURNED_AWAY_MIN + calls.turned_away * TURNED_AWAY_APART)
            return
        calls.under_way += 1
        try:
            yield timedelta(0)
        finally:
            calls.under_way -= 1
            calls.turned_away = 0

    async def held_for(
        self, it: Waiter, offers: Sequence[Offer], regions: Sequence[Region]
    ) -> Mapping[OfferKey, str]:
        """Return which of these offers, all of their lists, must not be tried for this one now, and why."""
        if self.is_quiet:
            return {}
        if self._is_shared and self._clock.monotonic() - self._read_at_s > SHARED_AGE_MAX_S:
            await self.refresh()
        now = self._clock.now()
        held = {
            key: f"refused for lack of stock at {iso(rest.refused_at)}, tried again from "
            f"{iso(rest.next_try_at)} on"
            for key, rest in self._rests.items()
            if not rest.is_over(now)
        }
        for key, others in taken_before(it, self._waiters(now), _takes(offers, regions, now)).items():
            held.setdefault(key, f"{others} {'has' if others == 1 else 'have'} waited for it longer")
        return held

    async def place_of(self, it: Instance) -> PlaceInLine | None:
        """Return the place of an instance in line. None if it does not wait, or if its place is unknown."""
        if it.start_wait is not None and it.waiting_for is not None:
            return self._place_of_start(it, it.start_wait)
        if not is_in_line(it):
            return None
        try:
            return await self._place_of(it)
        except CloudError:
            return None

    def _place_of_start(self, it: Instance, wait: StartWait) -> PlaceInLine:
        """Return the place of an instance that waits for the GPUs beside its disk. No other can take them."""
        rental, now = it.rental, self._clock.now()
        refusal = None
        if rental is not None and wait.refused_at is not None:
            key = OfferKey(rental.product_id, rental.region, it.billing_mode)
            refusal = OfferRest(key, wait.refusals, wait.refused_at, wait.message)
        return PlaceInLine(0, wait.next_try_at(now), refusal)

    async def _place_of(self, it: Instance) -> PlaceInLine:
        now = self._clock.now()
        offers, regions = await self._browsed.offers_of(_modes([it])), await self._browsed.regions()
        takes, me = _takes(offers, regions, now), waiter_of(it, now)
        ahead = count_ahead(me, self._waiters(now), takes)
        known = [self._rests[key] for key in takes(me) if key in self._rests]
        resting = [rest.next_try_at for rest in known if not rest.is_over(now)]
        next_look = (self._looked_at or now) + LOOK_INTERVAL
        return PlaceInLine(
            ahead=ahead,
            next_try_at=None if ahead else min(resting, default=max(now, next_look)),
            last_refusal=max(known, key=lambda rest: rest.refused_at, default=None),
        )

    async def heads(self) -> Sequence[Instance]:
        """Return those who are the first in line for something that is on sale, and does not rest."""
        if not self._line:
            return ()
        now = self._clock.now()
        regions = await self._catalogue.regions()
        offers = await self._catalogue.offers_of(_modes(self._line.values()), fresh=True)
        self._looked_at = now
        on_sale = {
            OfferKey(it.product_id, it.region, it.listed_as)
            for it in offers
            if it.available and not self._is_resting(it, now)
        }
        found = heads(self._waiters(now), _takes(offers, regions, now), on_sale)
        return [self._line[it.instance_id] for it in found]

    def is_forgetful(self) -> bool:
        """Return True if some refusal is so old that it says nothing any more."""
        now = self._clock.now()
        return any(it.is_forgotten(now) for it in self._rests.values())

    def _is_resting(self, offer: Offer, now: datetime) -> bool:
        rest = self._rests.get(OfferKey(offer.product_id, offer.region, offer.listed_as))
        return rest is not None and not rest.is_over(now)

    def _waiters(self, now: datetime) -> list[Waiter]:
        return [waiter_of(it, now) for it in self._line.values()]


def _modes(instances: Iterable[Instance]) -> list[BillingMode]:
    """Return every way in which these may be paid for."""
    wanted = {mode for it in instances for mode in billing_modes(it.wish)}
    return [mode for mode in BillingMode if mode in wanted]


def _takes(offers: Sequence[Offer], regions: Sequence[Region], now: datetime) -> Takes:
    """Return what tells which of these offers somebody would take; many wish for the same."""
    known: _Wanted = {}
    places = tuple(regions)

    def takes(waiter: Waiter) -> frozenset[OfferKey]:
        wish, spot_only = waiter.wish, waiter.takes_spot_only(now)
        if (wish, spot_only) not in known:
            codes = known_codes(wish.regions, places)
            # Without any that is known, nothing would do; and no region at all means any.
            nowhere = bool(wish.regions) and not codes
            known[wish, spot_only] = (
                frozenset()
                if nowhere
                else wanted_offers(offers, replace(wish, regions=codes), spot_only=spot_only)
            )
        return known[wish, spot_only]

    return takes


log = structlog.get_logger()


# The first in line is woken this often while there is an offer to try.
WAKE_AGAIN_S = 30.0


@dataclass
class WatchCapacity:
    """Runs every few seconds on the leader, and after each rental of an instance that waited."""

    line: CapacityLine
    memory: CapacityMemory
    jobs: Jobs
    job_factory: JobFactory
    clock: Clock
    _woken_at_s: dict[str, float] = field(default_factory=dict, init=False)

    async def __call__(self) -> int:
        """Refresh the line, and wake each instance that may try. Return how many."""
        await self.line.refresh()
        if self.line.is_quiet:
            self._woken_at_s.clear()
            return 0
        if self.line.is_forgetful():
            await self.memory.prune(self.clock.now() - REFUSALS_FORGOTTEN)
        return await self.wake_heads()

    async def wake_heads(self) -> int:
        """Wake each instance that is first in line for an offer it can try now. Return how many."""
        try:
            heads = await self.line.heads()
        except CloudError as error:
            # The next pass reads the catalogue again soon, and instances in line have time.
            log.info("capacity.catalogue_unknown", code=error.code)
            return 0
        now_s = self.clock.monotonic()
        due = [it for it in heads if now_s - self._woken_at_s.get(it.id, -WAKE_AGAIN_S) >= WAKE_AGAIN_S]
        known = self._woken_at_s
        self._woken_at_s = {it.id: known.get(it.id, now_s) for it in heads} | {it.id: now_s for it in due}
        if due:
            await self.jobs.wake_or_enqueue([self.job_factory.reconcile_job(it) for it in due])
        return len(due)
