"""`AsyncGpuherd`: the same client for programs that do other things meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, Unpack

from gpuherd.client.address import Address, find_server
from gpuherd.client.clock import Clock, SystemClock
from gpuherd.client.effects import Effect, Effects, Pause, Send, run_async
from gpuherd.client.methods import AsyncExecutor, AsyncResource
from gpuherd.client.models.instance import Instance
from gpuherd.client.renting import Release, Rental, terms_of
from gpuherd.client.resources.access import (
    AuditMethods,
    DeliveryMethods,
    EndpointMethods,
    KeyMethods,
    SecretMethods,
    WebhookMethods,
)
from gpuherd.client.resources.account import AccountMethods, CloudMethods, OrphanMethods
from gpuherd.client.resources.budgets import BudgetMethods
from gpuherd.client.resources.costs import CostMethods
from gpuherd.client.resources.images import RegistryMethods, TemplateMethods
from gpuherd.client.resources.instances import WAIT_S, InstanceMethods, JobMethods, OperationMethods
from gpuherd.client.resources.prewarms import PrewarmMethods
from gpuherd.client.resources.volumes import VolumeMethods
from gpuherd.client.retrying import DEFAULT_RETRIES, RetryingCaller
from gpuherd.client.streams.streaming import (
    AsyncStream,
    OpenStream,
    ReadChunk,
    StreamEffects,
    StreamStep,
    run_stream_async,
)
from gpuherd.client.transport.async_transport import AiohttpTransport
from gpuherd.client.transport.wire import USER_AGENT, Reply, Request
from gpuherd.client.waiting import OnProgress
from gpuherd.client.wish import Wish
from gpuherd.domain.access.secret import Secret

T = TypeVar("T")


class AsyncTransport(Protocol):
    """Carries requests to the server."""

    async def send(self, request: Request) -> Reply: ...

    async def listen(self, request: Request) -> AsyncStream: ...

    async def close(self) -> None: ...


class AsyncInstances(InstanceMethods, AsyncResource):
    """`herd.instances`."""


class AsyncOperations(OperationMethods, AsyncResource):
    """`herd.operations`."""


class AsyncJobs(JobMethods, AsyncResource):
    """`herd.jobs`."""


class AsyncCloud(CloudMethods, AsyncResource):
    """`herd.cloud`."""


class AsyncBudgets(BudgetMethods, AsyncResource):
    """`herd.budgets`."""


class AsyncCostLedger(CostMethods, AsyncResource):
    """`herd.costs`."""


class AsyncVolumeStore(VolumeMethods, AsyncResource):
    """`herd.volumes`."""


class AsyncPrewarmTasks(PrewarmMethods, AsyncResource):
    """`herd.prewarms`."""


class AsyncRegistry(RegistryMethods, AsyncResource):
    """`herd.registry`."""


class AsyncOrphanLedger(OrphanMethods, AsyncResource):
    """`herd.orphans`."""


class AsyncSecrets(SecretMethods, AsyncResource):
    """`herd.secrets`."""


class AsyncKeys(KeyMethods, AsyncResource):
    """`herd.keys`."""


class AsyncAuditLog(AuditMethods, AsyncResource):
    """`herd.audit`."""


class AsyncEndpoints(EndpointMethods, AsyncResource):
    """`herd.webhooks.endpoints`."""


class AsyncDeliveries(DeliveryMethods, AsyncResource):
    """`herd.webhooks.deliveries`."""


class AsyncWebhooks(WebhookMethods, AsyncResource):
    """`herd.webhooks`."""

    def __init__(self, caller: RetryingCaller, executor: AsyncExecutor) -> None:
        super().__init__(caller, executor)
        self.endpoints = AsyncEndpoints(caller, executor)
        self.deliveries = AsyncDeliveries(caller, executor)


class AsyncGpuherd(AccountMethods, TemplateMethods, AsyncResource):
    """A gpuherd server. Without arguments: the one of GPUHERD_URL, else the one on this machine.

    Belongs to one event loop. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        url: str | Address | None = None,
        key: str | Secret | None = None,
        timeout_s: float = 30,
        *,
        max_retries: int = DEFAULT_RETRIES.tries - 1,
        user_agent: str = USER_AGENT,
        transport: AsyncTransport | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        clock = clock or SystemClock()
        address = url if isinstance(url, Address) else find_server(url, key)
        self.url = address.url
        self._transport = transport or AiohttpTransport(address, user_agent)
        retries = replace(DEFAULT_RETRIES, tries=1 + max_retries)
        caller = RetryingCaller(clock, rng or random.SystemRandom(), timeout_s, retries)
        executor = _Executor(self._transport, clock)
        super().__init__(caller, executor)
        self.instances = AsyncInstances(caller, executor)
        self.operations = AsyncOperations(caller, executor)
        self.jobs = AsyncJobs(caller, executor)
        self.cloud = AsyncCloud(caller, executor)
        self.costs = AsyncCostLedger(caller, executor)
        self.budgets = AsyncBudgets(caller, executor)
        self.volumes = AsyncVolumeStore(caller, executor)
        self.registry = AsyncRegistry(caller, executor)
        self.prewarms = AsyncPrewarmTasks(caller, executor)
        self.orphans = AsyncOrphanLedger(caller, executor)
        self.keys = AsyncKeys(caller, executor)
        self.secrets = AsyncSecrets(caller, executor)
        self.audit = AsyncAuditLog(caller, executor)
        self.webhooks = AsyncWebhooks(caller, executor)

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

        `keep_on_error` leaves it running when an `Exception` ends the block; a cancellation releases it.
        """
        terms = terms_of(
            self._caller,
            name,
            product_name,
            template_id,
            wish,
            timeout_s=timeout_s,
            on_progress=on_progress,
            release=release,
            keep_on_error=keep_on_error,
        )
        return AsyncRented(Rental(self._caller, terms), self._executor)

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncGpuherd({self.url!r})"


class AsyncRented:
    """An instance for the length of an `async with`."""

    def __init__(self, rental: Rental, executor: AsyncExecutor) -> None:
        self._rental = rental
        self._executor = executor

    async def __aenter__(self) -> Instance:
        try:
            return await self._executor.run(self._rental.begin())
        except BaseException as error:
            await _shielded(self._executor.run(self._rental.end(error)))
            raise

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _shielded(self._executor.run(self._rental.end(error)))


async def _shielded(work: Coroutine[Any, Any, None]) -> None:
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


class _Executor:
    """Performs effects in the running task."""

    def __init__(self, transport: AsyncTransport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock

    async def run(self, effects: Effects[T]) -> T:
        return await run_async(effects, self._perform)

    async def follow(self, effects: StreamEffects[T]) -> AsyncGenerator[T, None]:
        reader = _StreamReader(self._transport, self._perform)
        try:
            async for it in run_stream_async(effects, reader.perform):
                yield it
        finally:
            reader.close()

    async def _perform(self, effect: Effect) -> Reply | None:
        match effect:
            case Send(request):
                return await self._transport.send(request)
            case Pause(seconds):
                await self._clock.sleep(seconds)
        return None


class _StreamReader:
    """Listens to one stream at a time."""

    def __init__(
        self, transport: AsyncTransport, perform: Callable[[Effect], Awaitable[Reply | None]]
    ) -> None:
        self._transport = transport
        self._perform = perform
        self._stream: AsyncStream | None = None

    async def perform(self, step: StreamStep) -> Reply | bytes | None:
        match step:
            case OpenStream(request):
                self.close()
                self._stream = await self._transport.listen(request)
                return self._stream.reply
            case ReadChunk():
                return b"" if self._stream is None else await self._stream.read()
            case _:
                return await self._perform(step)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
