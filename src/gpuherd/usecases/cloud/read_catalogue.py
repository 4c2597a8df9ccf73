"""What the cloud sells, cached for a few minutes: offers, regions, templates, and today's prices."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import (
    Awaitable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from typing import Any, Self, TypeVar

import structlog

from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.offer import (
    NOVITA_DISK,
    BillingMode,
    DiskTariff,
    Offer,
    Region,
)
from gpuherd.domain.cloud.template import NO_TEMPLATE, Template, run_spec
from gpuherd.domain.errors import (
    CloudError,
    CloudUnavailable,
    FieldProblem,
    InvalidRequest,
    KeyRefused,
    NotFound,
)
from gpuherd.domain.instance.launch_spec import LaunchSpec
from gpuherd.domain.instance.offer_ranking import other_modes, require_offers, sold_otherwise
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.cloud_port import Cloud
from gpuherd.resilience.ttl_cache import Cache

OFFERS_TTL_S = 300.0
TEMPLATES_TTL_S = 600.0


# How long a template counts as missing, so that repeated requests for it cost nothing.
MISSES_TTL_S = 30.0


# A rental with a price limit never uses an older list than this.
PRICES_TTL_S = 30.0


# Who asks: questions of the one are not those of the other.
RENTAL, BROWSE = "rental", "browse"


T = TypeVar("T")


class CatalogueCache:
    """The cloud's catalogue behind caches; many askers at once make one call."""

    def __init__(self, cloud: Cloud, clock: Clock, disk: DiskTariff = NOVITA_DISK):
        self._cloud = cloud
        self.disk = disk
        self._clock = clock
        self._lane = RENTAL
        self._offers: Cache[BillingMode, tuple[Offer, ...]] = Cache(clock, OFFERS_TTL_S, 8, "offers")
        self._regions: Cache[str, tuple[Region, ...]] = Cache(clock, OFFERS_TTL_S, 1, "regions")
        # Each under its id, and the list of all under None.
        self._templates: Cache[str | None, tuple[Template, ...]] = Cache(
            clock, TEMPLATES_TTL_S, 1000, "templates"
        )
        # Kept apart, so that no number of wrong ids displaces a template that is used.
        self._missing: Cache[str, tuple[str, str]] = Cache(clock, MISSES_TTL_S, 1000, "template_misses")
        # With what is wrong with a credential, if anything is.
        self._registry_auths: Cache[str, tuple[str, str] | bool] = Cache(
            clock, MISSES_TTL_S, 100, "registry_auths"
        )

    def for_browsing(self, cloud: Cloud) -> Self:
        """Return this very catalogue for people who look: they share what is known, and ask through `cloud`.

        A rental does not join their questions, which wait behind everything else.
        """
        view = copy.copy(self)
        view._cloud, view._lane = cloud, BROWSE
        return view

    @property
    def caches(self) -> tuple[Cache[Any, Any], ...]:
        return (self._offers, self._regions, self._templates, self._missing)

    async def offers(self, mode: BillingMode) -> tuple[Offer, ...]:
        async def load() -> tuple[Offer, ...]:
            # What the disk costs is in no list of the cloud.
            listed = await self._cloud.list_offers(mode)
            return tuple([replace(it, disk=self.disk, listed_as=mode) for it in listed])

        return await self._offers.get_or_load(mode, load, lane=self._lane)

    async def prices(self, mode: BillingMode) -> tuple[Offer, ...]:
        """Return offers that are young enough to hold a price against a limit."""
        kept = self._offers.get_stale(mode)
        if kept is not None and kept[1] > PRICES_TTL_S:
            self._offers.invalidate(mode)
        return await self.offers(mode)

    async def regions(self) -> tuple[Region, ...]:
        return await self._regions.get_or_load("all", self._cloud.list_regions, lane=self._lane)

    async def templates(self) -> tuple[Template, ...]:
        return await self._templates.get_or_load(None, self._cloud.list_templates, lane=self._lane)

    async def run_spec(self, wish: LaunchSpec) -> Template:
        """Return what shall run, all but the variables of the wish; or say why it cannot."""
        template = await self.find_template(wish.template_id) if wish.needs_template else NO_TEMPLATE
        return run_spec(template, wish.inputs)

    async def find_template(self, template_id: str) -> Template:
        """Return a template whether or not a machine can be started from it."""

        async def load() -> tuple[Template, ...]:
            try:
                return (await self._cloud.get_template(template_id),)
            except NotFound as missing:
                self._missing.put(template_id, (missing.message, missing.code))
                raise

        # A rental that was accepted is not given up for what somebody was told before.
        if self._lane == BROWSE and (told := self._missing.peek(template_id)):
            raise NotFound(told[0], code=told[1])
        (found,) = await self._templates.get_or_load(template_id, load, lane=self._lane)
        return found

    async def check_registry_auth(self, auth_id: str) -> None:
        """Return if there was such a registry credential within the last seconds; `NotFound` if not."""

        async def load() -> tuple[str, str] | bool:
            try:
                await self._cloud.check_registry_auth(auth_id)
            except NotFound as missing:
                return missing.message, missing.code
            return True

        found = await self._registry_auths.get_or_load(auth_id, load, lane=self._lane)
        if isinstance(found, tuple):
            raise NotFound(found[0], code=found[1])

    async def offers_of(self, modes: Sequence[BillingMode], *, fresh: bool = False) -> tuple[Offer, ...]:
        """Return the offers of all these modes; with `fresh`, young enough as above."""
        listed = self.prices if fresh else self.offers
        if len(modes) == 1:
            return await listed(modes[0])
        return tuple(chain.from_iterable([await listed(mode) for mode in modes]))

    async def named_offers(
        self, listed: Iterable[Offer], wish: LaunchSpec, budget_s: float = 5.0
    ) -> tuple[Offer, ...]:
        """Return what a wish means by its product; what is sold only in another way has no price for it."""
        try:
            return require_offers(listed, wish)
        except NotFound:
            modes = other_modes(wish)
            others = await within_budget(budget_s, self.offers_of(modes)) if modes else None
            if others is None:
                raise
            return sold_otherwise(others, wish)

    def invalidate_offers(self) -> None:
        """The stock is not what we thought: ask anew next time."""
        self._offers.clear()


async def within_budget(budget_s: float, question: Awaitable[T]) -> T | None:
    """Return the answer if it comes in time, None if it does not or if the cloud cannot be asked."""
    try:
        async with asyncio.timeout(budget_s):
            return await question
    except (TimeoutError, CloudUnavailable, KeyRefused):
        return None


def known_codes(words: tuple[str, ...], regions: tuple[Region, ...]) -> tuple[str, ...]:
    """Return the codes of the regions that are meant, each once; a word that means none is passed over."""
    called = [next((it.code for it in regions if it.is_called(word)), None) for word in words]
    return tuple(dict.fromkeys(code for code in called if code is not None))


def unknown_regions(words: Iterable[str], regions: Sequence[Region], field: str) -> list[FieldProblem]:
    """Return a problem for each word that means no region."""
    unknown = [word for word in words if not any(it.is_called(word) for it in regions)]
    choices = ", ".join(it.code for it in regions) if unknown else ""
    said = [f"unknown region {word!r}; there are: {choices}" for word in unknown]
    return [FieldProblem(field, "INVALID_REGION", it) for it in said]


def find_region(word: str, regions: Iterable[Region]) -> Region:
    """Return the region that is meant; a word that means none is a mistake."""
    known = tuple(regions)
    if problems := unknown_regions([word], known, "region"):
        raise InvalidRequest(problems)
    return next(it for it in known if it.is_called(word))


log = structlog.get_logger()
PriceKey = tuple[str, str, str]


@dataclass(frozen=True)
class PriceList:
    """Prices of one GPU for one hour, and of disks."""

    prices: Mapping[PriceKey, Decimal] = field(default_factory=dict)
    disk: DiskTariff = NOVITA_DISK

    def gpu_hourly_usd(self, machine: Machine) -> Decimal | None:
        """Return the price of one GPU of this machine, or None where it is not known."""
        return self.prices.get((machine.billing_mode, machine.product_id, machine.cluster_id))

    def gpus_hourly_usd(self, machine: Machine) -> Decimal | None:
        """Return the price of all GPUs of this machine, without its disk."""
        price = self.gpu_hourly_usd(machine)
        return None if price is None else price * max(machine.gpu_num, 1)


async def price_list(catalogue: CatalogueCache) -> PriceList:
    """Return today's prices, as far as the cloud tells them."""
    prices: dict[PriceKey, Decimal] = {}
    for mode in BillingMode:
        for offer in await _offers(catalogue, mode):
            price = offer.gpu_hourly_usd(mode)
            if price is not None:
                prices[mode.value, offer.product_id, offer.cluster_id] = price
    return PriceList(prices, catalogue.disk)


async def _offers(catalogue: CatalogueCache, mode: BillingMode) -> tuple[Offer, ...]:
    try:
        return await catalogue.offers(mode)
    except CloudError as error:
        # A price is good to know, but nothing waits for it.
        log.info("prices.unknown", mode=mode.value, code=error.code)
        return ()
