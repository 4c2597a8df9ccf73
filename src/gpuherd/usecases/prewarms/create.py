"""Create an image prewarm task: there may be few of them, so each is made once or not at all.

The intent is durable before the call. When no answer comes, a task for the same image and place is looked
for; where there is none the outcome stays unknown, and the same is not sent again before it could no longer
appear.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from gpuherd.clock import Clock, Ids
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.domain.cloud.offer import BillingMode, Offer, Region
from gpuherd.domain.cloud.prewarm import Prewarm, PrewarmIntent, PrewarmOrder, PrewarmProduct, PrewarmState
from gpuherd.domain.errors import (
    CloudError,
    CloudRefused,
    CloudUnavailable,
    Conflict,
    FieldProblem,
    GpuherdError,
    InvalidRequest,
    KeyRefused,
    OutcomeUnknown,
)
from gpuherd.domain.instance.offer_ranking import offers_named
from gpuherd.ports.cloud import Cloud, ImagePrewarms
from gpuherd.ports.flags import Flags
from gpuherd.usecases.cloud.catalogue import CatalogueCache, find_region
from gpuherd.usecases.prewarms.list_all import ListPrewarms

log = structlog.get_logger()

AUDIT_ACTION = "prewarm.create"
INTENT = "prewarm_intent:"
# Not later after the intent was written: by then another may have decided otherwise.
SEND_WITHIN_S = 10.0


@dataclass(frozen=True)
class PrewarmWish:
    """What is asked for; region and products still in the user's words."""

    image: str
    region: str
    registry_auth_id: str = ""
    products: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class CreatePrewarm:
    """The use case."""

    prewarms: ImagePrewarms
    list_prewarms: ListPrewarms
    cloud: Cloud
    catalogue: CatalogueCache
    flags: Flags
    clock: Clock
    ids: Ids
    settling: SettlingPolicy

    async def __call__(self, wanted: PrewarmWish, caller: Caller) -> Prewarm:
        """Return the task; `Conflict` if there is one for it, `CloudUnavailable` while it is not known."""
        region, order = await self._order(wanted)
        flag = INTENT + order.digest
        stored = await self.flags.get(flag)
        same = await self._same(order)
        if stored is not None:
            earlier = PrewarmIntent.of_text(stored)
            if (made := _not_among(earlier.before, same)) is not None:
                # An earlier try has made it after all.
                await self.flags.swap(flag, stored, None)
                return made
            self._check_settled(earlier)
        if (there := next((it for it in same if it.state is not PrewarmState.FAILED), None)) is not None:
            raise _there_already(there)
        now, known = self.clock.now(), tuple(it.prewarm_id for it in same)
        intent = PrewarmIntent(self.ids.new("pre_"), known, now).to_text()
        record = caller.audit_record(AUDIT_ACTION, order.image, now, after=f"in {region.code}")
        if not await self.flags.swap(flag, stored, intent, record):
            raise Conflict("another create of this prewarm is under way", code="PREWARM_CREATE_IN_PROGRESS")
        prewarm_id = await self._send(order, known, flag, intent)
        await self.flags.swap(flag, intent, None)
        self.list_prewarms.cache.clear()
        log.info("prewarm.created", prewarm_id=prewarm_id, by=caller.key_id)
        return Prewarm(
            prewarm_id,
            order.image,
            region.code,
            region.cluster_id,
            PrewarmState.PENDING,
            order.registry_auth_id,
            order.products,
            note=order.note,
            created_at=now,
        )

    async def _order(self, wanted: PrewarmWish) -> tuple[Region, PrewarmOrder]:
        """Look up what the user's words mean, and report all of them at once that mean nothing."""
        problems: list[FieldProblem] = []
        region: Region | None = None
        try:
            region = find_region(wanted.region, await self.catalogue.regions())
        except InvalidRequest as invalid:
            problems += invalid.problems
        products: dict[str, PrewarmProduct] = {}
        if wanted.products:
            offers = await self.catalogue.offers(BillingMode.ON_DEMAND)
            here = [it for it in offers if region is None or it.cluster_id == region.cluster_id]
            for word in wanted.products:
                if not (meant := _products_called(word, here)):
                    words = f"products: nothing called {word!r} is sold there; see GET /api/products"
                    problems.append(FieldProblem("products", "INVALID_PRODUCTS", words))
                products.update((it.product_id, it) for it in meant)
        if region is None or problems:
            raise InvalidRequest(problems)
        if wanted.registry_auth_id:
            await self.cloud.check_registry_auth(wanted.registry_auth_id)
        order = PrewarmOrder(
            wanted.image,
            region.cluster_id,
            wanted.registry_auth_id,
            tuple(products.values()),
            wanted.note,
        )
        return region, order

    async def _send(self, order: PrewarmOrder, known: tuple[str, ...], flag: str, intent: str) -> str:
        try:
            return await self.prewarms.create_prewarm(order, self.clock.boottime() + SEND_WITHIN_S)
        except OutcomeUnknown as unknown:
            try:
                made = _not_among(known, await self._same(order))
            except CloudError:
                made = None
            if made is None:
                raise self._not_known(self.settling.settle_without_witness.total_seconds()) from unknown
            return made.prewarm_id
        except GpuherdError as error:
            # Surely not made.
            await self.flags.swap(flag, intent, None)
            if isinstance(error, CloudRefused) and not isinstance(error, KeyRefused):
                await self._check_quota(error)
            raise

    async def _check_quota(self, refused: CloudRefused) -> None:
        """Say so if it was the quota: by which word the cloud refuses then is not written anywhere."""
        try:
            quota = await self.prewarms.prewarm_quota()
        except CloudError:
            return
        if quota.is_used_up:
            raise Conflict(
                f"the account has {quota.used} prewarm tasks and may have {quota.limit}; delete one first",
                code="PREWARM_QUOTA_EXCEEDED",
                details={"used": quota.used, "limit": quota.limit},
            ) from refused

    async def _same(self, order: PrewarmOrder) -> tuple[Prewarm, ...]:
        return tuple(it for it in await self.list_prewarms.fresh() if order.is_done_by(it))

    def _check_settled(self, earlier: PrewarmIntent) -> None:
        left = earlier.settles_in(self.clock.now(), self.settling.settle_without_witness)
        if left.total_seconds() > 0:
            raise self._not_known(left.total_seconds())

    def _not_known(self, left_s: float) -> CloudUnavailable:
        return CloudUnavailable(
            "no answer came to the create of this prewarm task, and it is not listed yet; ask again with the "
            "same words: it is looked for first, and never made twice",
            code="PREWARM_OUTCOME_UNKNOWN",
            retry_after_s=min(30.0, math.ceil(left_s)),
        )


def _products_called(word: str, offers: Iterable[Offer]) -> list[PrewarmProduct]:
    sold = list(offers)
    meant = [it for it in sold if it.product_id == word] or offers_named(sold, word)
    return [PrewarmProduct(it.product_id, it.product_name) for it in meant]


def _not_among(known: Iterable[str], tasks: Iterable[Prewarm]) -> Prewarm | None:
    before = set(known)
    return next((it for it in tasks if it.prewarm_id not in before), None)


def _there_already(there: Prewarm) -> Conflict:
    return Conflict(
        f"there is a prewarm task for this image and place already ({there.state}); "
        "delete it to have the image pulled anew",
        code="PREWARM_EXISTS",
        details={"id": there.prewarm_id, "state": there.state.value},
    )
