"""The rentals of the live check: what it rents, and how it rents over the server."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import ROUND_UP, Decimal
from typing import Protocol, TypeVar

from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.client.client_errors import GpuherdError, NotFound
from gpuherd.contract.instance_models import Instance
from gpuherd.contract.lease_models import LeaseBody
from gpuherd.domain.cloud.offer import Offer
from gpuherd.ops.doctor_results import CannotLook

T = TypeVar("T")


# This many products are named, the cheapest first.
CHOICE = 3


LABEL = ("gpuherd-doctor", "live")


# The maximum length, to test that the cloud keeps all characters and the tag after them.
INSTANCE_NAME = "gpuherd-doctor-live-".ljust(100, "x")


ENDED_STATUSES = frozenset({"deleting", "deleted"})


@dataclass(frozen=True)
class RentPlan:
    """What is rented, and how long each step may take."""

    product_names: tuple[str, ...]
    template_id: str
    # USD per hour; more expensive offers are rejected.
    price_max: Decimal
    # Renewed while the doctor runs. After a kill, the machine costs money for this long.
    lease: timedelta = timedelta(minutes=5)
    boot_limit: timedelta = timedelta(minutes=15)
    step_limit: timedelta = timedelta(minutes=4)

    @property
    def usd_max(self) -> Decimal:
        """The maximum cost: rental, boot, stop, start and removal, and one lease after a kill."""
        span = self.boot_limit + 4 * self.step_limit + self.lease
        hours = Decimal(span.total_seconds()) / 3600
        return max(Decimal("0.01"), (self.price_max * hours).quantize(Decimal("0.01"), ROUND_UP))


def plan_of(offers: Sequence[Offer], template_id: str) -> RentPlan:
    """Choose the cheapest product, and two more if it is sold out by then."""
    sold = sorted((it for it in offers if it.available and it.spot_usd), key=lambda it: it.spot_usd or 0)
    if not sold:
        raise CannotLook("no spot machine is offered now")
    cheapest: dict[str, Decimal] = {}
    for it in sold:
        cheapest.setdefault(it.product_name, it.spot_usd or Decimal(0))
    names = tuple(cheapest)[:CHOICE]
    return RentPlan(names, template_id, max(cheapest[name] for name in names))


@dataclass(frozen=True)
class RentalState:
    """What the server knows about the rental."""

    id: str
    status: str
    cloud_id: str | None
    gpu_usd: Decimal | None
    trouble: str


class Rentals(Protocol):
    """The server, as the doctor needs it. Methods raise `CannotLook` if the server refuses."""

    async def check(self) -> None: ...

    async def create(self, plan: RentPlan) -> RentalState: ...

    async def get(self, rental_id: str) -> RentalState: ...

    async def stop(self, rental_id: str) -> None: ...

    async def start(self, rental_id: str) -> None: ...

    async def renew(self, rental_id: str, lease: timedelta) -> None: ...

    async def remove_all(self) -> int: ...

    async def creates_blocked(self) -> str | None: ...


class ServerRentals:
    """Rents through the API of a server."""

    def __init__(self, herd: AsyncGpuherd) -> None:
        self._herd = herd

    async def check(self) -> None:
        """Refuse to rent if no server could end the rental."""
        health = await _asked(self._herd.health())
        if health.creates_blocked:
            raise CannotLook(f"the server rents nothing: {health.creates_blocked}")

    async def create(self, plan: RentPlan) -> RentalState:
        # guard: what the doctor rents has a lease
        made = await _asked(
            self._herd.instances.create(
                INSTANCE_NAME,
                plan.product_names,
                plan.template_id,
                billing_mode="spot",
                optimize="price",
                max_hourly_price=plan.price_max,
                labels=dict([LABEL]),
                lease=_lease(plan.lease),
            )
        )
        return _state(made)

    async def get(self, rental_id: str) -> RentalState:
        return _state(await _asked(self._herd.instances.get(rental_id)))

    async def stop(self, rental_id: str) -> None:
        await _asked(self._herd.instances.stop(rental_id))

    async def start(self, rental_id: str) -> None:
        await _asked(self._herd.instances.start(rental_id))

    async def renew(self, rental_id: str, lease: timedelta) -> None:
        await _asked(self._herd.instances.set_lease(rental_id, _lease(lease)))

    async def remove_all(self) -> int:
        """Delete every rental of a doctor: its own, and those of a killed one."""
        return await _asked(self._remove_all())

    async def _remove_all(self) -> int:
        found = [it async for it in self._herd.instances.list(label=LABEL)]
        left = [it for it in found if it.status not in ENDED_STATUSES]
        for it in left:
            with contextlib.suppress(NotFound):
                await self._herd.instances.delete(it.id)
        return len(left)

    async def creates_blocked(self) -> str | None:
        return (await _asked(self._herd.health())).creates_blocked


async def _asked(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except GpuherdError as error:
        raise CannotLook(f"the gpuherd server: {error}") from None


def _lease(span: timedelta) -> LeaseBody:
    return LeaseBody(seconds=int(span.total_seconds()), then="delete")


def _state(it: Instance) -> RentalState:
    trouble = "" if it.last_error is None else it.last_error.message
    return RentalState(it.id, it.status, it.cloud_instance_id, it.gpu_hourly_price, trouble)
