"""Prewarm images in clusters: create, list, delete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import structlog

from gpuherd.contract.catalogue_models import PrewarmRemoved
from gpuherd.domain.api_key import Caller
from gpuherd.domain.cloud.offer import BillingMode, Offer, Region
from gpuherd.domain.cloud.template import (
    Prewarm,
    PrewarmIntent,
    PrewarmOrder,
    PrewarmProduct,
    PrewarmQuota,
    PrewarmState,
)
from gpuherd.domain.errors import (
    CloudError,
    CloudRefused,
    Conflict,
    FieldProblem,
    InvalidRequest,
    KeyRefused,
    NotFound,
    OutcomeUnknown,
)
from gpuherd.domain.instance.offer_ranking import offers_named
from gpuherd.ports.access_port import AuditLog
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.cloud_port import Cloud, ImagePrewarms
from gpuherd.ports.replica_port import Flags
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.cloud.create_once import CreateOnce, Intent, OnceWords
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache, find_region

log = structlog.get_logger()
AUDIT_ACTION = "prewarm.create"
INTENT = "prewarm_intent:"


PREWARM_WORDS = OnceWords(
    "prewarm task",
    "words",
    in_progress_code="PREWARM_CREATE_IN_PROGRESS",
    unknown_code="PREWARM_OUTCOME_UNKNOWN",
)


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
    create_once: CreateOnce

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
                await self.create_once.forget(flag, stored)
                return made
            # guard: a prewarm task without an answer is not sent again before it could have appeared
            self.create_once.check_settled(earlier.sent_at)
        if (there := next((it for it in same if it.state is not PrewarmState.FAILED), None)) is not None:
            raise _there_already(there)
        now, known = self.clock.now(), tuple(it.prewarm_id for it in same)
        intent = Intent(
            flag,
            stored,
            PrewarmIntent(self.ids.new("pre_"), known, now).to_text(),
            caller.audit_record(AUDIT_ACTION, order.image, now, after=f"in {region.code}"),
        )
        try:
            prewarm_id = await self.create_once(
                intent,
                lambda: self._check_absent(known, order),
                lambda send_by_s: self.prewarms.create_prewarm(order, send_by_s),
                lambda: self._id_beside(known, order),
            )
        except CloudRefused as refused:
            if not isinstance(refused, KeyRefused):
                await self._check_quota(refused)
            raise
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

    async def _check_absent(self, known: Iterable[str], order: PrewarmOrder) -> None:
        if (there := _not_among(known, await self._same(order))) is not None:
            raise _there_already(there)

    async def _id_beside(self, known: Iterable[str], order: PrewarmOrder) -> str | None:
        made = _not_among(known, await self._same(order))
        return None if made is None else made.prewarm_id


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


AUDIT_ACTION_delete = "prewarm.delete"


@dataclass(frozen=True)
class DeletePrewarm:
    """The use case. Once is as good as twice, so a lost answer is only looked after."""

    prewarms: ImagePrewarms
    list_prewarms: ListPrewarms
    audit: AuditLog
    clock: Clock

    async def __call__(self, prewarm_id: str, caller: Caller) -> PrewarmRemoved:
        """Remove it; `NotFound` if there is none."""
        known = next((it for it in await self.list_prewarms.fresh() if it.prewarm_id == prewarm_id), None)
        if known is None:
            raise NotFound(f"there is no prewarm task {prewarm_id!r}", code="PREWARM_NOT_FOUND")
        # Before the call: what is removed without a trace cannot be explained.
        before = f"{known.image} in {known.region}"
        await self.audit.append(
            caller.audit_record(AUDIT_ACTION_delete, prewarm_id, self.clock.now(), before)
        )
        try:
            await self.prewarms.delete_prewarm(prewarm_id)
        except NotFound:
            pass
        except OutcomeUnknown:
            if any(it.prewarm_id == prewarm_id for it in await self.list_prewarms.fresh()):
                raise
        self.list_prewarms.cache.clear()
        log.info("prewarm.removed", prewarm_id=prewarm_id, by=caller.key_id)
        return PrewarmRemoved(id=prewarm_id, removed=True)


# So many who wait for a task cost the cloud one question.
TTL_S = 5.0


ALL = "all"
LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class PrewarmListing:
    """The tasks, newest first, and the quota of the account."""

    tasks: tuple[Prewarm, ...]
    quota: PrewarmQuota


@dataclass(frozen=True)
class ListPrewarms:
    """The use case."""

    prewarms: ImagePrewarms
    catalogue: CatalogueCache
    cache: Cache[str, PrewarmListing]

    async def __call__(self, state: PrewarmState | None = None, region: str | None = None) -> PrewarmListing:
        """Return them, at most some seconds old; only those in a state or region, if one is said."""
        cluster_id = find_region(region, await self.catalogue.regions()).cluster_id if region else None
        found = await self.cache.get_or_load(ALL, self._load)
        wanted = (
            it
            for it in found.tasks
            if state in (None, it.state) and (cluster_id is None or it.cluster_id == cluster_id)
        )
        return replace(found, tasks=tuple(wanted))

    async def fresh(self) -> tuple[Prewarm, ...]:
        """Return them as they are now."""
        self.cache.clear()
        return _newest_first(await self.prewarms.list_prewarms())

    async def _load(self) -> PrewarmListing:
        tasks = await self.prewarms.list_prewarms()
        return PrewarmListing(_newest_first(tasks), await self.prewarms.prewarm_quota())


def _newest_first(tasks: Iterable[Prewarm]) -> tuple[Prewarm, ...]:
    by_id = sorted(tasks, key=lambda it: it.prewarm_id)
    return tuple(sorted(by_id, key=lambda it: it.created_at or LONG_AGO, reverse=True))
