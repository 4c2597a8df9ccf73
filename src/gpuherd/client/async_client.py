"""`AsyncGpuherd`: the client for asyncio, and the implementation of the blocking client."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Coroutine, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from gpuherd.client.access_resources import AsyncAudit, AsyncKeys, AsyncSecrets, AsyncWebhooks
from gpuherd.client.account_resources import (
    AsyncBudgets,
    AsyncCloud,
    AsyncCosts,
    AsyncOrphans,
    AsyncPrewarms,
    AsyncRegistry,
    AsyncVolumes,
)
from gpuherd.client.client_connection import DEFAULT_RETRIES, Clock, Connection, Items, decode
from gpuherd.client.client_transport import (
    USER_AGENT,
    AiohttpTransport,
    Request,
    Transport,
    get,
    path_segment,
)
from gpuherd.client.follow_instance import HISTORY, OnBreak, OnProgress, OnResume, follow_events
from gpuherd.client.instance_resources import (
    PAGE_SIZE,
    WAIT_S,
    AsyncInstances,
    AsyncJobs,
    AsyncOperations,
    InstanceRef,
    id_or_name,
)
from gpuherd.client.rental import Release, Rental, rental_terms
from gpuherd.client.server_address import Address, find_server
from gpuherd.client.wish import Wish, create_body
from gpuherd.contract.catalogue_models import Product, Region, Template
from gpuherd.contract.instance_models import Comprehensive, Instance
from gpuherd.contract.plan_models import HeldPlan, Plan
from gpuherd.contract.service_models import Creates, Health, Sync
from gpuherd.contract.webhook_models import EventPage, LiveEvent
from gpuherd.domain.secret import Secret

TIMEOUT_S = 30.0
# A plan waits for the cloud's catalogue, unlike a create.
PLAN_TIMEOUT_S = 60.0


class AsyncGpuherd:
    """A gpuherd server. Without arguments: the one of GPUHERD_URL, else the one on this machine.

    Belongs to one event loop. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        url: str | Address | None = None,
        key: str | Secret | None = None,
        timeout_s: float = TIMEOUT_S,
        *,
        max_retries: int = DEFAULT_RETRIES.tries - 1,
        user_agent: str = USER_AGENT,
        transport: Transport | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        address = url if isinstance(url, Address) else find_server(url, key)
        self.url = address.url
        connection = Connection(
            transport or AiohttpTransport(address, user_agent),
            timeout_s,
            retries=replace(DEFAULT_RETRIES, tries=1 + max_retries),
            clock=clock,
            rng=rng,
        )
        self._connection = connection
        self.instances = AsyncInstances(connection)
        self.operations = AsyncOperations(connection)
        self.jobs = AsyncJobs(connection)
        self.cloud = AsyncCloud(connection)
        self.costs = AsyncCosts(connection)
        self.budgets = AsyncBudgets(connection)
        self.volumes = AsyncVolumes(connection)
        self.registry = AsyncRegistry(connection)
        self.prewarms = AsyncPrewarms(connection)
        self.orphans = AsyncOrphans(connection)
        self.keys = AsyncKeys(connection)
        self.secrets = AsyncSecrets(connection)
        self.audit = AsyncAudit(connection)
        self.webhooks = AsyncWebhooks(connection)

    def rent(
        self,
        name: str,
        *,
        product_name: str | Sequence[str],
        template_id: str | int | None = None,
        timeout_s: float = WAIT_S,
        on_progress: OnProgress | None = None,
        release: Release = "delete",
        keep_on_error: bool = False,
        **wish: Unpack[Wish],
    ) -> AsyncRented:
        """Rent for the length of an `async with`: usable inside, released after it, whatever happens.

        `keep_on_error` keeps it when an `Exception` ends the block. A cancellation releases it.
        """
        terms = rental_terms(
            self._connection,
            name,
            product_name,
            template_id,
            wish,
            timeout_s=timeout_s,
            on_progress=on_progress,
            release=release,
            keep_on_error=keep_on_error,
        )
        return AsyncRented(Rental(self._connection, terms))

    async def plan(
        self,
        product_name: str | Sequence[str],
        template_id: str | int | None = None,
        *,
        name: str | None = None,
        hold: bool = False,
        **wish: Unpack[Wish],
    ) -> Plan:
        """Return what a create like this would try, in which order and at what price. Nothing is rented.

        With `hold` a plan that fits has a `plan_id`: `instances.rent_plan` rents it once, and never for more.
        """
        body = create_body(name, product_name, template_id, wish) | ({"hold": True} if hold else {})
        timeout_s = max(self._connection.timeout_s, PLAN_TIMEOUT_S)
        request = Request("POST", "/api/plans", body=body, is_read_only=True, timeout_s=timeout_s)
        return decode(Plan, await self._connection.call(request))

    async def held_plan(self, plan_id: str) -> HeldPlan:
        """Return a held plan: what it rents, at what price, until when."""
        return await self._connection.get(HeldPlan, f"/api/plans/{path_segment(plan_id)}")

    async def products(
        self, product_name: str | None = None, *, billing_mode: Literal["spot", "onDemand"] | None = None
    ) -> Items[Product]:
        """Return what can be rented, with price and stock in each region."""
        return await self._connection.items(
            Product, "products", "/api/products", productName=product_name, billingMode=billing_mode
        )

    async def templates(self) -> Items[Template]:
        """Return the templates: what can run on a machine."""
        return await self._connection.items(Template, "templates", "/api/templates")

    async def template(self, template_id: str | int) -> Template:
        """Return one template."""
        return await self._connection.get(Template, _template_path(template_id))

    async def regions(self) -> Items[Region]:
        """Return the regions with all their names."""
        return await self._connection.items(Region, "regions", "/api/regions")

    async def comprehensive(
        self, *, include_novita_only: bool = True, sync_local_state: bool = False
    ) -> Comprehensive:
        """Return gpuherd's instances merged with all machines of the account."""
        return await self._connection.get(
            Comprehensive,
            "/api/instances/comprehensive",
            includeNovitaOnly=include_novita_only,
            syncLocalState=sync_local_state,
        )

    async def sync(self) -> Sync:
        """Let the server list the cloud now."""
        return await self._connection.change(Sync, "POST", "/api/sync")

    async def creates(self) -> Creates:
        """Return whether the server rents machines, and why not."""
        return await self._connection.get(Creates, "/api/creates")

    async def resume_creates(self) -> Creates:
        """Let the server rent machines again, after a person has looked into the reason."""
        return await self._connection.change(Creates, "POST", "/api/creates/resume")

    def events(
        self,
        instance: InstanceRef | None = None,
        *,
        type: str | None = None,
        since: int | None = None,
        on_break: OnBreak | None = None,
        on_resume: OnResume | None = None,
    ) -> AsyncGenerator[LiveEvent, None]:
        """Return events as they happen, without an end: of one instance, or of all that the key may see.

        With `since`, the id of an event, it begins behind that event. After a break it connects again and
        misses nothing: `on_break` is called when the stream breaks, `on_resume` when it is back.
        """
        wanted = None if instance is None else id_or_name(instance)
        return follow_events(self._connection, wanted, type, since, on_break, on_resume)

    async def history(
        self,
        instance: InstanceRef | None = None,
        *,
        type: str | None = None,
        since: int | None = None,
        limit: int = PAGE_SIZE,
    ) -> EventPage:
        """Return the latest events, newest first; with `since` those after that event, oldest first."""
        wanted = None if instance is None else id_or_name(instance)
        return await self._connection.get(
            EventPage, HISTORY, instance=wanted, type=type, limit=limit, lastEventId=since
        )

    async def health(self) -> Health:
        """Return the health of the server. An unhealthy one is an answer, not an error."""
        request = replace(get("/health"), accepted_statuses=frozenset({503}))
        return decode(Health, await self._connection.call(request))

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncGpuherd({self.url!r})"


class AsyncRented:
    """A rented instance; use it with `async with`."""

    def __init__(self, rental: Rental) -> None:
        self._rental = rental

    async def __aenter__(self) -> Instance:
        try:
            return await self._rental.begin()
        except BaseException as error:
            await _shielded(self._rental.end(error))
            raise

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _shielded(self._rental.end(error))


async def _shielded(work: Coroutine[Any, Any, None]) -> None:
    """Finish `work`, also if this task is cancelled meanwhile. The cancellation comes after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


def _template_path(template: str | int | Template) -> str:
    template_id = template.id if isinstance(template, Template) else str(template)
    return f"/api/templates/{path_segment(template_id)}"
