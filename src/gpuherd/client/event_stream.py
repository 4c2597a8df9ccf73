"""Following the event stream, without a network: which stream to open, what it says, how to resume after a
break.

Written once, as effects, for both clients. Two effects are new here: `OpenStream` opens a reply that does
not end, `ReadChunk` returns the next bytes of it; an event that is yielded is for the caller."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from gpuherd.client.effects import Effect, pause
from gpuherd.client.errors import GpuherdError, UnexpectedReply
from gpuherd.client.models.instance import LiveEvent
from gpuherd.client.retrying import DEFAULT_RETRIES, FIRST_DELAY_S, RetryingCaller
from gpuherd.client.sse import NotAnEventStream, SseParser
from gpuherd.client.wire import Reply, Request, api_error, get

# The server gives a sign of life every 15 seconds.
SILENCE_MAX_S = 45.0


@dataclass(frozen=True)
class OpenStream:
    """Open a reply that comes bit by bit; what it begins with comes back, or all of it if it is a refusal."""

    request: Request


@dataclass(frozen=True)
class ReadChunk:
    """Wait for the next bytes; none at the end."""


EventEffects = Generator[Effect | OpenStream | ReadChunk | LiveEvent, Any, None]


class Stream(Protocol):
    """A reply that is being read."""

    reply: Reply

    def read(self) -> bytes: ...

    def close(self) -> None: ...


class AsyncStream(Protocol):
    """The same for tasks."""

    reply: Reply

    async def read(self) -> bytes: ...

    def close(self) -> None: ...


def follow(
    caller: RetryingCaller, instance: str | None, type_: str | None, since: int | None
) -> EventEffects:
    """Tell what happens, for ever; after a break on from the last event."""
    last = (yield from _now(caller, instance, type_)) if since is None else str(since)
    question = get("/api/events", instance=instance, type=type_)
    failures = 0
    while True:
        try:
            begun = yield OpenStream(replace(question, last_event_id=last, timeout_s=SILENCE_MAX_S))
            if begun.status != 200:
                raise api_error(question, begun, begun.json or {})
            messages = SseParser()
            while chunk := (yield ReadChunk()):
                failures = 0
                for message in messages.feed(chunk):
                    yield LiveEvent.of(json.loads(message.data))
                    last = message.id
            yield from pause(FIRST_DELAY_S)
        except (NotAnEventStream, json.JSONDecodeError) as odd:
            raise UnexpectedReply(f"the stream of events cannot be read: {odd}") from None
        except GpuherdError as trouble:
            failures += 1
            delay_s = caller.delay_s(trouble, failures, DEFAULT_RETRIES)
            if delay_s is None:
                raise
            yield from pause(delay_s)


def _now(
    caller: RetryingCaller, instance: str | None, type_: str | None
) -> Generator[Effect | OpenStream | ReadChunk | LiveEvent, Any, str]:
    """Return where the log ends, so that also a break before the first event leaves no gap."""
    latest = get("/api/events/history", limit=1, instance=instance, type=type_)
    answer = yield from caller.call(latest)
    last = answer.get("lastEventId")
    if not isinstance(last, str):
        raise UnexpectedReply("the server does not say where its events end; is it as new as this client?")
    return last


def run_stream(
    effects: EventEffects, perform: Callable[[Effect | OpenStream | ReadChunk], Reply | bytes | None]
) -> Iterator[LiveEvent]:
    """Perform one effect after the other, and yield the events."""
    resume: Callable[[], Effect | OpenStream | ReadChunk | LiveEvent] = partial(next, effects)
    while True:
        step = resume()
        if isinstance(step, LiveEvent):
            yield step
            resume = partial(next, effects)
            continue
        try:
            outcome = perform(step)
        except BaseException as error:  # an interrupt, too, is raised where the reply is awaited
            resume = partial(effects.throw, error)
        else:
            resume = partial(effects.send, outcome)


async def run_stream_async(
    effects: EventEffects,
    perform: Callable[[Effect | OpenStream | ReadChunk], Awaitable[Reply | bytes | None]],
) -> AsyncIterator[LiveEvent]:
    """Perform one effect after the other, and yield the events."""
    resume: Callable[[], Effect | OpenStream | ReadChunk | LiveEvent] = partial(next, effects)
    while True:
        step = resume()
        if isinstance(step, LiveEvent):
            yield step
            resume = partial(next, effects)
            continue
        try:
            outcome = await perform(step)
        except BaseException as error:  # a cancellation, too, is raised where the reply is awaited
            resume = partial(effects.throw, error)
        else:
            resume = partial(effects.send, outcome)
