"""`AsyncGpuherd`: the same client for programs that do other things meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, Unpack

from gpuherd.client.address import find_server
from gpuherd.client.aiohttp_link import AiohttpLink
from gpuherd.client.asking import Asker
from gpuherd.client.clock import Clock, SystemClock
from gpuherd.client.following import AsyncStream, Following, Hear, Listen, each_async
from gpuherd.client.models.instance import Instance
from gpuherd.client.models.live import LiveEvent
from gpuherd.client.renting import Release, Rental, terms_of
from gpuherd.client.resources.access import DeliveryVerbs, EndpointVerbs, KeyVerbs, WebhookVerbs
from gpuherd.client.resources.account import AccountVerbs, OrphanVerbs
from gpuherd.client.resources.instances import WAIT_S, InstanceVerbs, JobVerbs, OperationVerbs
from gpuherd.client.steps import Effect, Pause, Send, Steps, run_async
from gpuherd.client.verbs import AsyncDesk, Awaiting
from gpuherd.client.waiting import OnProgress
from gpuherd.client.wire import Reply, Request
from gpuherd.client.wish import Wish
from gpuherd.domain.secret import Secret

T = TypeVar("T")


class AsyncLink(Protocol):
    """Carries requests to the server."""

    async def send(self, request: Request) -> Reply: ...

    async def listen(self, request: Request) -> AsyncStream: ...

    async def close(self) -> None: ...


class AsyncInstances(InstanceVerbs, Awaiting):
    """`herd.instances`."""


class AsyncOperations(OperationVerbs, Awaiting):
    """`herd.operations`."""


class AsyncJobs(JobVerbs, Awaiting):
    """`herd.jobs`."""


class AsyncOrphanLedger(OrphanVerbs, Awaiting):
    """`herd.orphans`."""


class AsyncKeys(KeyVerbs, Awaiting):
    """`herd.keys`."""


class AsyncEndpoints(EndpointVerbs, Awaiting):
    """`herd.webhooks.endpoints`."""


class AsyncDeliveries(DeliveryVerbs, Awaiting):
    """`herd.webhooks.deliveries`."""


class AsyncWebhooks(WebhookVerbs, Awaiting):
    """`herd.webhooks`."""

    def __init__(self, asker: Asker, desk: AsyncDesk) -> None:
        super().__init__(asker, desk)
        self.endpoints = AsyncEndpoints(asker, desk)
        self.deliveries = AsyncDeliveries(asker, desk)


class AsyncGpuherd(AccountVerbs, Awaiting):
    """A gpuherd server. Without arguments: the one of GPUHERD_URL, else the one on this machine.

    Belongs to one event loop. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | Secret | None = None,
        timeout_s: float = 30,
        *,
        link: AsyncLink | None = None,
        clock: Clock | None = None,
        chance: random.Random | None = None,
    ) -> None:
        clock = clock or SystemClock()
        address = find_server(url, key)
        self.url = address.url
        self._link = link or AiohttpLink(address)
        asker = Asker(clock, chance or random.SystemRandom(), timeout_s)
        desk = _Desk(self._link, clock)
        super().__init__(asker, desk)
        self.instances = AsyncInstances(asker, desk)
        self.operations = AsyncOperations(asker, desk)
        self.jobs = AsyncJobs(asker, desk)
        self.orphans = AsyncOrphanLedger(asker, desk)
        self.keys = AsyncKeys(asker, desk)
        self.webhooks = AsyncWebhooks(asker, desk)

    def rent(
        self,
        name: str,
        *,
        product_name: str,
        template_id: str | int,
        timeout_s: float = WAIT_S,
        on_progress: OnProgress | None = None,
        release: Release = "delete",
        keep_on_error: bool = False,
        **wish: Unpack[Wish],
    ) -> AsyncRented:
        """Rent for the length of an `async with`: usable inside, released after it, whatever happens.

        `keep_on_error` leaves it running when an `Exception` ends the block; a cancellation releases it.
        """
        terms = terms_of(
            self._asker,
            name,
            product_name,
            template_id,
            wish,
            timeout_s=timeout_s,
            on_progress=on_progress,
            release=release,
            keep_on_error=keep_on_error,
        )
        return AsyncRented(Rental(self._asker, terms), self._desk)

    async def close(self) -> None:
        """Close the connections."""
        await self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncGpuherd({self.url!r})"


class AsyncRented:
    """An instance for the length of an `async with`."""

    def __init__(self, rental: Rental, desk: AsyncDesk) -> None:
        self._rental = rental
        self._desk = desk

    async def __aenter__(self) -> Instance:
        try:
            return await self._desk.run(self._rental.begin())
        except BaseException as error:
            await _surely(self._desk.run(self._rental.end(error)))
            raise

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _surely(self._desk.run(self._rental.end(error)))


async def _surely(work: Coroutine[Any, Any, None]) -> None:
    """Do `work` to its end, even if this task is cancelled meanwhile; the cancellation comes after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as again:
            cancelled = again
    task.result()
    if cancelled is not None:
        raise cancelled


class _Desk:
    """Does steps in the running task."""

    def __init__(self, link: AsyncLink, clock: Clock) -> None:
        self._link = link
        self._clock = clock

    async def run(self, steps: Steps[T]) -> T:
        return await run_async(steps, self._perform)

    async def follow(self, steps: Following) -> AsyncIterator[LiveEvent]:
        ear = _Ear(self._link, self._perform)
        try:
            async for event in each_async(steps, ear.perform):
                yield event
        finally:
            ear.close()

    async def _perform(self, effect: Effect) -> Reply | None:
        match effect:
            case Send(request):
                return await self._link.send(request)
            case Pause(seconds):
                await self._clock.sleep(seconds)
        return None


class _Ear:
    """Listens to one stream at a time."""

    def __init__(self, link: AsyncLink, perform: Callable[[Effect], Awaitable[Reply | None]]) -> None:
        self._link = link
        self._perform = perform
        self._stream: AsyncStream | None = None

    async def perform(self, step: Effect | Listen | Hear) -> Reply | bytes | None:
        match step:
            case Listen(request):
                self.close()
                self._stream = await self._link.listen(request)
                return self._stream.reply
            case Hear():
                return b"" if self._stream is None else await self._stream.read()
            case _:
                return await self._perform(step)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
