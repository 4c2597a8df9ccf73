"""`Gpuherd`: the client for programs that wait for each answer. It loads nothing but the standard library."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self, TypeVar, Unpack

from gpuherd.client.address import Address, find_server
from gpuherd.client.clock import Clock, SystemClock
from gpuherd.client.effects import Effect, Effects, Pause, Send, run
from gpuherd.client.methods import Executor, SyncResource
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
    OpenStream,
    ReadChunk,
    Stream,
    StreamEffects,
    StreamStep,
    run_stream,
)
from gpuherd.client.transport.sync_transport import HttpTransport
from gpuherd.client.transport.wire import USER_AGENT, Reply, Request
from gpuherd.client.waiting import OnProgress
from gpuherd.client.wish import Wish
from gpuherd.domain.access.secret import Secret

T = TypeVar("T")


class Transport(Protocol):
    """Carries requests to the server."""

    def send(self, request: Request) -> Reply: ...

    def listen(self, request: Request) -> Stream: ...

    def close(self) -> None: ...


class Instances(InstanceMethods, SyncResource):
    """`herd.instances`."""


class Operations(OperationMethods, SyncResource):
    """`herd.operations`."""


class Jobs(JobMethods, SyncResource):
    """`herd.jobs`."""


class Cloud(CloudMethods, SyncResource):
    """`herd.cloud`."""


class Budgets(BudgetMethods, SyncResource):
    """`herd.budgets`."""


class CostLedger(CostMethods, SyncResource):
    """`herd.costs`."""


class VolumeStore(VolumeMethods, SyncResource):
    """`herd.volumes`."""


class PrewarmTasks(PrewarmMethods, SyncResource):
    """`herd.prewarms`."""


class Registry(RegistryMethods, SyncResource):
    """`herd.registry`."""


class OrphanLedger(OrphanMethods, SyncResource):
    """`herd.orphans`."""


class Secrets(SecretMethods, SyncResource):
    """`herd.secrets`."""


class Keys(KeyMethods, SyncResource):
    """`herd.keys`."""


class AuditLog(AuditMethods, SyncResource):
    """`herd.audit`."""


class Endpoints(EndpointMethods, SyncResource):
    """`herd.webhooks.endpoints`."""


class Deliveries(DeliveryMethods, SyncResource):
    """`herd.webhooks.deliveries`."""


class Webhooks(WebhookMethods, SyncResource):
    """`herd.webhooks`."""

    def __init__(self, caller: RetryingCaller, executor: Executor) -> None:
        super().__init__(caller, executor)
        self.endpoints = Endpoints(caller, executor)
        self.deliveries = Deliveries(caller, executor)


class Gpuherd(AccountMethods, TemplateMethods, SyncResource):
    """A gpuherd server. Without arguments: the one of GPUHERD_URL, else the one on this machine.

    May be shared by threads. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        url: str | Address | None = None,
        key: str | Secret | None = None,
        timeout_s: float = 30,
        *,
        max_retries: int = DEFAULT_RETRIES.tries - 1,
        user_agent: str = USER_AGENT,
        transport: Transport | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        clock = clock or SystemClock()
        address = url if isinstance(url, Address) else find_server(url, key)
        self.url = address.url
        # Sockets know real time only, whatever the clock says.
        self._transport = transport or HttpTransport(address, SystemClock(), user_agent)
        retries = replace(DEFAULT_RETRIES, tries=1 + max_retries)
        caller = RetryingCaller(clock, rng or random.SystemRandom(), timeout_s, retries)
        executor = _Executor(self._transport, clock)
        super().__init__(caller, executor)
        self.instances = Instances(caller, executor)
        self.operations = Operations(caller, executor)
        self.jobs = Jobs(caller, executor)
        self.cloud = Cloud(caller, executor)
        self.costs = CostLedger(caller, executor)
        self.budgets = Budgets(caller, executor)
        self.volumes = VolumeStore(caller, executor)
        self.registry = Registry(caller, executor)
        self.prewarms = PrewarmTasks(caller, executor)
        self.orphans = OrphanLedger(caller, executor)
        self.keys = Keys(caller, executor)
        self.secrets = Secrets(caller, executor)
        self.audit = AuditLog(caller, executor)
        self.webhooks = Webhooks(caller, executor)

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
    ) -> Rented:
        """Rent for the length of a `with`: usable inside, released after it, whatever happens.

        `keep_on_error` leaves it running when an `Exception` ends the block; an interrupt releases it.
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
        return Rented(Rental(self._caller, terms), self._executor)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Gpuherd({self.url!r})"


class Rented:
    """An instance for the length of a `with`."""

    def __init__(self, rental: Rental, executor: Executor) -> None:
        self._rental = rental
        self._executor = executor

    def __enter__(self) -> Instance:
        try:
            return self._executor.run(self._rental.begin())
        except BaseException as error:
            self._executor.run(self._rental.end(error))
            raise

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executor.run(self._rental.end(error))


class _Executor:
    """Performs effects in the calling thread."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock

    def run(self, effects: Effects[T]) -> T:
        return run(effects, self._perform)

    def follow(self, effects: StreamEffects[T]) -> Generator[T, None, None]:
        reader = _StreamReader(self._transport, self._perform)
        try:
            yield from run_stream(effects, reader.perform)
        finally:
            reader.close()

    def _perform(self, effect: Effect) -> Reply | None:
        match effect:
            case Send(request):
                return self._transport.send(request)
            case Pause(seconds):
                self._clock.pause(seconds)
        return None


class _StreamReader:
    """Listens to one stream at a time."""

    def __init__(self, transport: Transport, perform: Callable[[Effect], Reply | None]) -> None:
        self._transport = transport
        self._perform = perform
        self._stream: Stream | None = None

    def perform(self, step: StreamStep) -> Reply | bytes | None:
        match step:
            case OpenStream(request):
                self.close()
                self._stream = self._transport.listen(request)
                return self._stream.reply
            case ReadChunk():
                return b"" if self._stream is None else self._stream.read()
            case _:
                return self._perform(step)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
