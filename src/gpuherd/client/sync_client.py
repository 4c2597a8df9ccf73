"""`Gpuherd`: the client for programs that wait for each answer. It loads nothing but the standard library."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol, Self, TypeVar, Unpack

from gpuherd.client.address import find_server
from gpuherd.client.asking import Asker
from gpuherd.client.clock import Clock, SystemClock
from gpuherd.client.following import Following, Hear, Listen, Stream, each
from gpuherd.client.http_link import HttpLink
from gpuherd.client.models.instance import Instance
from gpuherd.client.models.live import LiveEvent
from gpuherd.client.renting import Release, Rental, terms_of
from gpuherd.client.resources.access import DeliveryVerbs, EndpointVerbs, KeyVerbs, WebhookVerbs
from gpuherd.client.resources.account import AccountVerbs, OrphanVerbs
from gpuherd.client.resources.instances import WAIT_S, InstanceVerbs, JobVerbs, OperationVerbs
from gpuherd.client.steps import Effect, Pause, Send, Steps, run
from gpuherd.client.verbs import Blocking, Desk
from gpuherd.client.waiting import OnProgress
from gpuherd.client.wire import Reply, Request
from gpuherd.client.wish import Wish
from gpuherd.domain.secret import Secret

T = TypeVar("T")


class Link(Protocol):
    """Carries requests to the server."""

    def send(self, request: Request) -> Reply: ...

    def listen(self, request: Request) -> Stream: ...

    def close(self) -> None: ...


class Instances(InstanceVerbs, Blocking):
    """`herd.instances`."""


class Operations(OperationVerbs, Blocking):
    """`herd.operations`."""


class Jobs(JobVerbs, Blocking):
    """`herd.jobs`."""


class OrphanLedger(OrphanVerbs, Blocking):
    """`herd.orphans`."""


class Keys(KeyVerbs, Blocking):
    """`herd.keys`."""


class Endpoints(EndpointVerbs, Blocking):
    """`herd.webhooks.endpoints`."""


class Deliveries(DeliveryVerbs, Blocking):
    """`herd.webhooks.deliveries`."""


class Webhooks(WebhookVerbs, Blocking):
    """`herd.webhooks`."""

    def __init__(self, asker: Asker, desk: Desk) -> None:
        super().__init__(asker, desk)
        self.endpoints = Endpoints(asker, desk)
        self.deliveries = Deliveries(asker, desk)


class Gpuherd(AccountVerbs, Blocking):
    """A gpuherd server. Without arguments: the one of GPUHERD_URL, else the one on this machine.

    May be shared by threads. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | Secret | None = None,
        timeout_s: float = 30,
        *,
        link: Link | None = None,
        clock: Clock | None = None,
        chance: random.Random | None = None,
    ) -> None:
        clock = clock or SystemClock()
        address = find_server(url, key)
        self.url = address.url
        self._link = link or HttpLink(address, clock)
        asker = Asker(clock, chance or random.SystemRandom(), timeout_s)
        desk = _Desk(self._link, clock)
        super().__init__(asker, desk)
        self.instances = Instances(asker, desk)
        self.operations = Operations(asker, desk)
        self.jobs = Jobs(asker, desk)
        self.orphans = OrphanLedger(asker, desk)
        self.keys = Keys(asker, desk)
        self.webhooks = Webhooks(asker, desk)

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
    ) -> Rented:
        """Rent for the length of a `with`: usable inside, released after it, whatever happens.

        `keep_on_error` leaves it running when an `Exception` ends the block; an interrupt releases it.
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
        return Rented(Rental(self._asker, terms), self._desk)

    def close(self) -> None:
        """Close the connections."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Gpuherd({self.url!r})"


class Rented:
    """An instance for the length of a `with`."""

    def __init__(self, rental: Rental, desk: Desk) -> None:
        self._rental = rental
        self._desk = desk

    def __enter__(self) -> Instance:
        try:
            return self._desk.run(self._rental.begin())
        except BaseException as error:
            self._desk.run(self._rental.end(error))
            raise

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._desk.run(self._rental.end(error))


class _Desk:
    """Does steps in the calling thread."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock

    def run(self, steps: Steps[T]) -> T:
        return run(steps, self._perform)

    def follow(self, steps: Following) -> Iterator[LiveEvent]:
        ear = _Ear(self._link, self._perform)
        try:
            yield from each(steps, ear.perform)
        finally:
            ear.close()

    def _perform(self, effect: Effect) -> Reply | None:
        match effect:
            case Send(request):
                return self._link.send(request)
            case Pause(seconds):
                self._clock.pause(seconds)
        return None


class _Ear:
    """Listens to one stream at a time."""

    def __init__(self, link: Link, perform: Callable[[Effect], Reply | None]) -> None:
        self._link = link
        self._perform = perform
        self._stream: Stream | None = None

    def perform(self, step: Effect | Listen | Hear) -> Reply | bytes | None:
        match step:
            case Listen(request):
                self.close()
                self._stream = self._link.listen(request)
                return self._stream.reply
            case Hear():
                return b"" if self._stream is None else self._stream.read()
            case _:
                return self._perform(step)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
