"""Prewarm images in regions: create, list and delete the tasks of the account."""

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
    PrewarmOrder,
    PrewarmProduct,
    PrewarmQuota,
    PrewarmState,
)
from gpuherd.domain.errors import (
    CloudError,
    CloudRefused,
    CloudUnavailable,
    Conflict,
    FieldProblem,
    InvalidRequest,
    KeyRefused,
    NotFound,
    OutcomeUnknown,
)
from gpuherd.domain.instance.offer_ranking import offers_named
from gpuherd.usecases.cloud.read_catalogue import find_region
from gpuherd.usecases.services import Services

log = structlog.get_logger()
CREATED, DELETED = "prewarm.create", "prewarm.delete"
# Users who wait for a task share one call to the cloud within this time.
PREWARMS_TTL_S = 5.0
_ALL = "all"
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class PrewarmSpec:
    """What the user asks for; the region and the products still in the user's words."""

    image: str
    region: str
    registry_auth_id: str = ""
    products: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class PrewarmListing:
    """The tasks, newest first, and the quota of the account."""

    tasks: tuple[Prewarm, ...]
    quota: PrewarmQuota


async def list_prewarms(
    services: Services, state: PrewarmState | None = None, region: str | None = None
) -> PrewarmListing:
    """Return the tasks, at most some seconds old; only those in a state or region, if one is given."""

    async def load() -> PrewarmListing:
        tasks = await services.prewarms.list_prewarms()
        return PrewarmListing(_newest_first(tasks), await services.prewarms.prewarm_quota())

    regions = await services.browsed_catalogue.regions() if region else ()
    cluster_id = find_region(region, regions).cluster_id if region else None
    found = await services.prewarm_cache.get_or_load(_ALL, load)
    wanted = (
        task for task in found.tasks if state in (None, task.state) and cluster_id in (None, task.cluster_id)
    )
    return replace(found, tasks=tuple(wanted))


async def create_prewarm(services: Services, wanted: PrewarmSpec, caller: Caller) -> Prewarm:
    """Return the task that was made; `Conflict` if there is one for this image and place.

    gpuherd lists the tasks before the call, and again if the call gets no answer. That is enough: a second
    task for the same image costs nothing.
    """
    region, order = await _order(services, wanted)
    same = await _tasks_for(services, order)
    there = next((task for task in same if task.state is not PrewarmState.FAILED), None)
    if there is not None:
        raise Conflict(
            f"there is a prewarm task for this image and place already ({there.state}); "
            "delete it to have the image pulled anew",
            code="PREWARM_EXISTS",
            details={"id": there.prewarm_id, "state": there.state.value},
        )
    now = services.clock.now()
    record = caller.audit_record(CREATED, order.image, now, after=f"in {region.code}")
    await services.stores.audit.append(record)
    try:
        prewarm_id = await services.prewarms.create_prewarm(order)
    except OutcomeUnknown as unknown:
        prewarm_id = await _id_of_new_task(services, order, same, unknown)
    except CloudRefused as refused:
        if not isinstance(refused, KeyRefused):
            await _check_quota(services, refused)
        raise
    services.prewarm_cache.clear()
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


async def _order(services: Services, wanted: PrewarmSpec) -> tuple[Region, PrewarmOrder]:
    """Return what the user's words mean; `InvalidRequest` names all that mean nothing."""
    catalogue = services.browsed_catalogue
    problems: list[FieldProblem] = []
    region: Region | None = None
    try:
        region = find_region(wanted.region, await catalogue.regions())
    except InvalidRequest as invalid:
        problems += invalid.problems
    products: dict[str, PrewarmProduct] = {}
    if wanted.products:
        offers = await catalogue.offers(BillingMode.ON_DEMAND)
        here = [offer for offer in offers if region is None or offer.cluster_id == region.cluster_id]
        for word in wanted.products:
            if not (meant := _products_called(word, here)):
                words = f"products: nothing called {word!r} is sold there; see GET /api/products"
                problems.append(FieldProblem("products", "INVALID_PRODUCTS", words))
            products.update((product.product_id, product) for product in meant)
    if region is None or problems:
        raise InvalidRequest(problems)
    if wanted.registry_auth_id:
        cloud = services.browse_cloud or services.cloud
        await cloud.check_registry_auth(wanted.registry_auth_id)
    order = PrewarmOrder(
        wanted.image,
        region.cluster_id,
        wanted.registry_auth_id,
        tuple(products.values()),
        wanted.note,
    )
    return region, order


def _products_called(word: str, offers: list[Offer]) -> list[PrewarmProduct]:
    meant = [offer for offer in offers if offer.product_id == word] or offers_named(offers, word)
    return [PrewarmProduct(offer.product_id, offer.product_name) for offer in meant]


async def _id_of_new_task(
    services: Services, order: PrewarmOrder, before: Iterable[Prewarm], unknown: OutcomeUnknown
) -> str:
    """Return the id of the task that the unanswered call made, if the cloud lists one."""
    known = {task.prewarm_id for task in before}
    try:
        made = [task for task in await _tasks_for(services, order) if task.prewarm_id not in known]
    except CloudError:
        made = []
    if not made:
        raise CloudUnavailable(
            "no answer came to the create of this prewarm task, and it is not listed yet; ask again: "
            "gpuherd looks for it first",
            code="PREWARM_OUTCOME_UNKNOWN",
            retry_after_s=30.0,
        ) from unknown
    return made[0].prewarm_id


async def _check_quota(services: Services, refused: CloudRefused) -> None:
    """Raise `Conflict` if the quota is used up: the cloud documents no code for that refusal."""
    try:
        quota = await services.prewarms.prewarm_quota()
    except CloudError:
        return
    if quota.is_used_up:
        raise Conflict(
            f"the account has {quota.used} prewarm tasks and may have {quota.limit}; delete one first",
            code="PREWARM_QUOTA_EXCEEDED",
            details={"used": quota.used, "limit": quota.limit},
        ) from refused


async def delete_prewarm(services: Services, prewarm_id: str, caller: Caller) -> PrewarmRemoved:
    """Remove a task; `NotFound` if there is none. A second delete does no harm."""
    known = await _find(services, prewarm_id)
    if known is None:
        raise NotFound(f"there is no prewarm task {prewarm_id!r}", code="PREWARM_NOT_FOUND")
    before = f"{known.image} in {known.region}"
    record = caller.audit_record(DELETED, prewarm_id, services.clock.now(), before)
    # Before the call: what disappears without a record cannot be explained.
    await services.stores.audit.append(record)
    try:
        await services.prewarms.delete_prewarm(prewarm_id)
    except NotFound:
        pass
    except OutcomeUnknown:
        if await _find(services, prewarm_id) is not None:
            raise
    services.prewarm_cache.clear()
    log.info("prewarm.removed", prewarm_id=prewarm_id, by=caller.key_id)
    return PrewarmRemoved(id=prewarm_id, removed=True)


async def _find(services: Services, prewarm_id: str) -> Prewarm | None:
    listed = await _list_now(services)
    return next((task for task in listed if task.prewarm_id == prewarm_id), None)


async def _tasks_for(services: Services, order: PrewarmOrder) -> tuple[Prewarm, ...]:
    """Return the tasks that pull the same image to the same place."""
    return tuple(task for task in await _list_now(services) if order.is_done_by(task))


async def _list_now(services: Services) -> tuple[Prewarm, ...]:
    services.prewarm_cache.clear()
    return _newest_first(await services.prewarms.list_prewarms())


def _newest_first(tasks: Iterable[Prewarm]) -> tuple[Prewarm, ...]:
    by_id = sorted(tasks, key=lambda task: task.prewarm_id)
    return tuple(sorted(by_id, key=lambda task: task.created_at or _LONG_AGO, reverse=True))
