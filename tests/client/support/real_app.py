"""The real application in process, and both clients on top of it; time is the herd's."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from typing import Any, NoReturn

import httpx
from pydantic.alias_generators import to_camel

from gpuherd.client.access_resources import NewKey, NewSecret
from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.client.client_transport import Reply, Request
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.wire_models import ReplyModel
from tests.support.fake_clock import FakeClock

URL = "http://gpuherd"


class AppTransport:
    """Carries requests into the application, as they would be on the wire."""

    def __init__(self, http: httpx.AsyncClient, key: str) -> None:
        self._http = http
        self._key = key

    async def send(self, request: Request) -> Reply:
        headers = {**request.headers, "Authorization": f"Bearer {self._key}"}
        reply = await self._http.request(
            request.method, request.target, content=request.content, headers=headers
        )
        return Reply(reply.status_code, {k.lower(): v for k, v in reply.headers.items()}, reply.content)

    async def listen(self, request: Request) -> NoReturn:
        raise AssertionError("httpx waits for the end of a reply; streams are tested over sockets")

    async def close(self) -> None:
        """The application stays."""


class ThreadTransport:
    """The same for a client on another loop."""

    def __init__(self, transport: AppTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop

    async def send(self, request: Request) -> Reply:
        sending = asyncio.run_coroutine_threadsafe(self._transport.send(request), self._loop)
        return await asyncio.wrap_future(sending)

    async def listen(self, request: Request) -> NoReturn:
        raise AssertionError("httpx waits for the end of a reply; streams are tested over sockets")

    async def close(self) -> None:
        """The application stays."""


class HerdClock:
    """The herd's time for tasks of any loop."""

    def __init__(self, clock: FakeClock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock, self._loop = clock, loop

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def pause(self, seconds: float) -> None:
        raise AssertionError("the client only sleeps")

    async def sleep(self, seconds: float) -> None:
        sleeping = asyncio.run_coroutine_threadsafe(self._clock.sleep(seconds), self._loop)
        await asyncio.wrap_future(sleeping)


# What some replies leave out: the create and the lists do not ask the cloud, a list of deliveries is short.
LEFT_OUT = {
    *(("Instance", "stale"), ("Instance", "cost"), ("Instance", "waits")),
    *(("Delivery", "log"), ("Delivery", "payload")),
    # Of a plan that is not held.
    *(("Plan", "planId"), ("Plan", "expiresAt"), ("Plan", "heldHourlyPrice")),
}


def check_fields(it: Any) -> None:
    """Find fields that the server does not have, and values that the client reads as nothing."""
    if isinstance(it, list | tuple):
        for each in it:
            check_fields(each)
    elif isinstance(it, NewKey):
        check_fields(it.key)
    elif isinstance(it, NewSecret):
        check_fields(it.endpoint)
    elif isinstance(it, ReplyModel):
        for name, field in type(it).model_fields.items():
            key = field.serialization_alias or to_camel(name)
            known = key in it.raw or (type(it).__name__, key) in LEFT_OUT
            assert known, f"{type(it).__name__} has no {key} in {sorted(it.raw)}"
            assert it.raw.get(key) is None or getattr(it, name) is not None, key
            check_fields(getattr(it, name))


class RealAppClient:
    """One of the two clients on the real application."""

    def __init__(self, kind: str, http: httpx.AsyncClient, key: str, clock: FakeClock) -> None:
        loop = asyncio.get_running_loop()
        self.clock = HerdClock(clock, loop)
        transport, shared = AppTransport(http, key), {"clock": self.clock, "rng": random.Random(5)}
        self._sync = kind == "sync"
        self.herd: Any = (
            Gpuherd(URL, key, transport=ThreadTransport(transport, loop), **shared)  # type: ignore[arg-type]
            if self._sync
            else AsyncGpuherd(URL, key, transport=transport, **shared)  # type: ignore[arg-type]
        )

    async def __call__(self, what: Callable[[Any], Any]) -> Any:
        """Return what a verb gives, or all that a list has."""
        result = await self._result(what)
        check_fields(result)
        return result

    async def _result(self, what: Callable[[Any], Any]) -> Any:
        if self._sync:
            return await asyncio.to_thread(self._here, what)
        result = what(self.herd)
        if inspect.isawaitable(result):
            return await result
        return [it async for it in result] if isinstance(result, AsyncIterator) else result

    def _here(self, what: Callable[[Any], Any]) -> Any:
        result = what(self.herd)
        return list(result) if isinstance(result, Iterator) else result

    async def renting(self, body: Callable[[Any], None], **options: Any) -> None:
        """Rent for as long as `body` takes."""
        if self._sync:
            await asyncio.to_thread(self._rent_here, body, options)
        else:
            async with self.herd.rent("train-1", **options) as gpu:
                body(gpu)

    def _rent_here(self, body: Callable[[Any], None], options: dict[str, Any]) -> None:
        with self.herd.rent("train-1", **options) as gpu:
            body(gpu)
