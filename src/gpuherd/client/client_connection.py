"""Asks a server: retries, errors, lists, and the one place that reads replies into models."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Generic, Protocol, TypeVar

from gpuherd.client.client_errors import (
    ERROR_BY_STATUS,
    NO_CAPACITY_CODES,
    ApiError,
    Conflict,
    ConnectionFailed,
    FieldError,
    GpuherdError,
    NoCapacity,
    TooManyRequests,
    Unavailable,
    UnexpectedReply,
)
from gpuherd.client.client_transport import Json, Reply, Request, Transport, get
from gpuherd.contract.wire_models import ReplyModel, Undecodable

M = TypeVar("M", bound=ReplyModel)
T = TypeVar("T")

NO_CONTENT = 204
FIRST_DELAY_S = 0.25
DELAY_MAX_S = 8.0
# The client does not wait for a longer Retry-After: it raises the error at once.
RETRY_AFTER_MAX_S = 30.0


class Clock(Protocol):
    """The clocks that the client needs."""

    def now(self) -> datetime:
        """Return the wall clock, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease."""
        ...

    def pause(self, seconds: float) -> None:
        """Block this thread for `seconds`."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend this task for `seconds`."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        # Commands that work on the database get this clock too, but do not read it.
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True)
class RetryPolicy:
    """How often, for how long, and on which statuses the client repeats a request."""

    tries: int
    # No try begins later than this after the first. None: the timeout of one try.
    span_s: float | None
    retry_statuses: frozenset[int]


DEFAULT_RETRIES = RetryPolicy(tries=5, span_s=None, retry_statuses=frozenset({429, 502, 503}))
NO_RETRIES = RetryPolicy(tries=1, span_s=None, retry_statuses=frozenset())


class Items(tuple[T, ...]):
    """A whole list. `raw` is the reply that it was read from."""

    raw: Mapping[str, Any]

    @classmethod
    def of(cls, items: Iterable[T], raw: Mapping[str, Any]) -> Items[T]:
        made = cls(items)
        made.raw = raw
        return made


@dataclass(frozen=True)
class Page(Generic[T]):
    """A part of a list. `next_cursor` is None at the end; `total` counts the whole list."""

    entries: tuple[T, ...]
    total: int | None
    next_cursor: str | None
    raw: Mapping[str, Any] = field(repr=False, compare=False)


class AsyncPaged(AsyncIterator[T]):
    """Iterates over all entries of a list. It fetches a page when its first entry is needed."""

    def __init__(self, fetch: Callable[[str | None], Awaitable[Page[T]]]) -> None:
        self._fetch = fetch
        self._entries = self._all_entries()

    async def page(self, cursor: str | None = None) -> Page[T]:
        """Return the first page, or the one that begins at `cursor`."""
        return await self._fetch(cursor)

    async def pages(self) -> AsyncGenerator[Page[T], None]:
        """Iterate over the pages, from the first."""
        page = await self._fetch(None)
        yield page
        while page.next_cursor:
            page = await self._fetch(page.next_cursor)
            yield page

    async def __anext__(self) -> T:
        return await anext(self._entries)

    async def _all_entries(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for entry in page.entries:
                yield entry


class Connection:
    """Asks one server. It repeats what is safe to repeat with backoff, and sends everything else once."""

    def __init__(
        self,
        transport: Transport,
        timeout_s: float,
        *,
        retries: RetryPolicy = DEFAULT_RETRIES,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.clock = clock or SystemClock()
        self._transport = transport
        self._retries = retries
        self._rng = rng or random.SystemRandom()

    def new_key(self) -> str:
        """Return a new, unique idempotency key."""
        return f"py-{self._rng.getrandbits(128):032x}"

    async def get(self, model: type[M], path: str, /, **query: object) -> M:
        """Read one object."""
        return decode(model, await self.call(get(path, **query)))

    async def change(self, model: type[M], method: str, path: str, body: Json | None = None) -> M:
        """Change something. The idempotency key makes the repeats of the client safe."""
        return decode(model, await self.call(self.request(method, path, body)))

    def request(self, method: str, path: str, body: Json | None = None, key: str | None = None) -> Request:
        """Return a request that may be repeated: under `key`, or under a new one."""
        return Request(method, path, body=body, idempotency_key=self.new_key() if key is None else key)

    async def items(self, model: type[M], name: str, path: str, /, **query: object) -> Items[M]:
        """Read a whole list, which the reply calls `name`."""
        return items_of(model, name, await self.call(get(path, **query)))

    def pages(self, model: type[M], name: str, path: str, /, **query: object) -> AsyncPaged[M]:
        """Read a list page by page."""

        async def fetch(cursor: str | None) -> Page[M]:
            reply = await self.call(get(path, **query, cursor=cursor or None))
            next_cursor, total = reply.get("nextCursor"), reply.get("total")
            if next_cursor is not None and next_cursor == cursor:
                raise UnexpectedReply("the server's list leads back to the same page for ever")
            entries = items_of(model, name, reply)
            return Page(entries, total if isinstance(total, int) else None, next_cursor, reply)

        return AsyncPaged(fetch)

    async def stream(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Return a reply piece by piece. Nothing is repeated."""
        stream = await self._transport.listen(request)
        try:
            if stream.reply.status != 200:
                raise _api_error(request, stream.reply)
            while piece := await stream.read():
                yield piece
        finally:
            stream.close()

    async def call(self, request: Request, policy: RetryPolicy | None = None) -> Json:
        """Return the JSON of a successful reply, or raise the error of the last try."""
        _, body = await self.exchange(request, policy)
        return body

    async def exchange(self, request: Request, policy: RetryPolicy | None = None) -> tuple[Reply, Json]:
        """Return a successful reply and its JSON, or raise the error of the last try."""
        policy = self._retries if policy is None else policy
        timeout_s = self.timeout_s if request.timeout_s is None else request.timeout_s
        request = replace(request, timeout_s=timeout_s)
        deadline = self.clock.monotonic() + (timeout_s if policy.span_s is None else policy.span_s)
        may_have_happened = False
        for tries in itertools.count(1):
            try:
                reply = await self._transport.send(request)
                return reply, _body_of(request, reply)
            except GpuherdError as error:
                # One lost answer is enough: an error of the second try says nothing about the first.
                may_have_happened = error.may_have_happened = may_have_happened or error.may_have_happened
                error.idempotency_key = request.idempotency_key
                delay_s = self._delay_s(error, tries, policy)
                if delay_s is None or tries >= policy.tries or not request.is_repeatable:
                    raise
                if self.clock.monotonic() + delay_s > deadline:
                    raise
            await self.clock.sleep(delay_s)
        raise AssertionError("the loop above ends with a reply or an error")

    def backoff_s(self, tries: int) -> float:
        """Return the pause after so many tries: exponential, with jitter."""
        return min(FIRST_DELAY_S * 2.0 ** min(tries - 1, 10), DELAY_MAX_S) * self._rng.uniform(0.5, 1.0)

    async def close(self) -> None:
        await self._transport.close()

    def _delay_s(self, error: GpuherdError, tries: int, policy: RetryPolicy) -> float | None:
        """Return the pause before the next try, or None if a repeat cannot help."""
        backoff_s = self.backoff_s(tries)
        if isinstance(error, ConnectionFailed):
            return backoff_s
        if not isinstance(error, ApiError) or error.status not in policy.retry_statuses:
            return None
        if error.retry_after_s is None:
            # A 429 without Retry-After is a used up quota: waiting does not help.
            return None if isinstance(error, TooManyRequests) else backoff_s
        return None if error.retry_after_s > RETRY_AFTER_MAX_S else max(error.retry_after_s, backoff_s)


def decode(model: type[M], json: object) -> M:
    """Read a part of a reply into its model. Anything else is an `UnexpectedReply`."""
    try:
        return model.of(json)
    except Undecodable as error:
        raise UnexpectedReply(str(error)) from None


def items_of(model: type[M], name: str, reply: Json) -> Items[M]:
    """Read the list called `name` out of a reply."""
    found = reply.get(name)
    if not isinstance(found, list):
        raise UnexpectedReply(f"the server's answer has no list of {name}; is it as new as this client?")
    return Items.of((decode(model, entry) for entry in found), reply)


def without_none(body: Json) -> Json:
    """Leave out what is None: the server's defaults hold."""
    return {name: value for name, value in body.items() if value is not None}


async def tell(listener: Callable[..., object] | None, *values: object) -> None:
    """Call a listener, if there is one.

    The blocking client hands in listeners that must be awaited: they run in the calling thread.
    """
    result = None if listener is None else listener(*values)
    if isinstance(result, Awaitable):
        await result


def _body_of(request: Request, reply: Reply) -> Json:
    if reply.status == NO_CONTENT:
        return {}
    body = reply.json
    if body is not None and (200 <= reply.status < 300 or reply.status in request.accepted_statuses):
        return body
    if 200 <= reply.status < 300:
        raise UnexpectedReply(_not_gpuherd(request, reply), status=reply.status)
    raise _api_error(request, reply)


def _api_error(request: Request, reply: Reply) -> ApiError:
    """Return the error of a reply, whether gpuherd has written it or a proxy."""
    body = reply.json or {}
    code = str(body.get("code") or "UNEXPECTED_REPLY")
    kind = ERROR_BY_STATUS.get(reply.status, Unavailable if reply.status >= 500 else ApiError)
    if kind is Conflict and code in NO_CAPACITY_CODES:
        kind = NoCapacity
    errors, details = body.get("errors"), body.get("details")
    problems = [entry for entry in errors if isinstance(entry, dict)] if isinstance(errors, list) else []
    retry_after_s = _seconds_of(body.get("retryAfter"))
    if retry_after_s is None:
        retry_after_s = _seconds_of(reply.headers.get("retry-after"))
    return kind(
        reply.status,
        code,
        str(body.get("detail") or body.get("title") or _not_gpuherd(request, reply)),
        errors=tuple(
            FieldError(*(str(problem.get(name) or "") for name in ("field", "code", "message")))
            for problem in problems
        ),
        request_id=str(body.get("requestId") or reply.headers.get("x-request-id") or "") or None,
        retry_after_s=retry_after_s,
        details=details if isinstance(details, dict) else {},
        title=str(body.get("title") or ""),
    )


def _seconds_of(value: object) -> float | None:
    try:
        seconds = float(str(value))
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None


def _not_gpuherd(request: Request, reply: Reply) -> str:
    return (
        f"{request.method} {request.path} was answered with HTTP {reply.status} and no document of gpuherd; "
        "is something else listening at this address?"
    )
