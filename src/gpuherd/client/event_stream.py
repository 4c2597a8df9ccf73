"""Following what happens, without a network: which stream to open, what it says, how to go on after a break.

Written once, as steps, for both clients. What is new to a conversation here: `Listen` opens a reply that does
not end, `Hear` returns the next of it, and an event that is yielded is for whoever listens.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from gpuherd.client.asking import FIRST_DELAY_S, PATIENT, Asker
from gpuherd.client.errors import GpuherdError, UnexpectedReply
from gpuherd.client.models.live import LiveEvent
from gpuherd.client.sse import Messages, NoEventStream
from gpuherd.client.steps import Effect, pause
from gpuherd.client.wire import Reply, Request, get, refusal

# The server gives a sign of life every 15 seconds.
SILENCE_MAX_S = 45.0


@dataclass(frozen=True)
class Listen:
    """Open a reply that comes bit by bit; what it begins with comes back, or all of it if it is a refusal."""

    request: Request


@dataclass(frozen=True)
class Hear:
    """Wait for the next bytes; none at the end."""


Following = Generator[Effect | Listen | Hear | LiveEvent, Any, None]


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


def follow(asker: Asker, instance: str | None, type_: str | None, since: int | None) -> Following:
    """Tell what happens, for ever; after a break on from the last event."""
    last = (yield from _now(asker, instance, type_)) if since is None else str(since)
    question = get("/api/events", instance=instance, type=type_)
    failures = 0
    while True:
        try:
            begun = yield Listen(replace(question, last_event_id=last, timeout_s=SILENCE_MAX_S))
            if begun.status != 200:
                raise refusal(question, begun, begun.json or {})
            messages = Messages()
            while chunk := (yield Hear()):
                failures = 0
                for message in messages.feed(chunk):
                    yield LiveEvent.of(json.loads(message.data))
                    last = message.id
            yield from pause(FIRST_DELAY_S)
        except (NoEventStream, json.JSONDecodeError) as odd:
            raise UnexpectedReply(f"the stream of events cannot be read: {odd}") from None
        except GpuherdError as trouble:
            failures += 1
            delay_s = asker.delay_s(trouble, failures, PATIENT)
            if delay_s is None:
                raise
            yield from pause(delay_s)


def _now(
    asker: Asker, instance: str | None, type_: str | None
) -> Generator[Effect | Listen | Hear | LiveEvent, Any, str]:
    """Return where the log ends, so that also a break before the first event leaves no gap."""
    latest = get("/api/events/history", limit=1, instance=instance, type=type_)
    answer = yield from asker.ask(latest)
    last = answer.get("lastEventId")
    if not isinstance(last, str):
        raise UnexpectedReply("the server does not say where its events end; is it as new as this client?")
    return last


def each(
    steps: Following, perform: Callable[[Effect | Listen | Hear], Reply | bytes | None]
) -> Iterator[LiveEvent]:
    """Do one step after the other, and give the events that they lead to."""
    resume: Callable[[], Effect | Listen | Hear | LiveEvent] = partial(next, steps)
    while True:
        step = resume()
        if isinstance(step, LiveEvent):
            yield step
            resume = partial(next, steps)
            continue
        try:
            outcome = perform(step)
        except BaseException as error:  # an interrupt, too, belongs to whoever waits for the reply
            resume = partial(steps.throw, error)
        else:
            resume = partial(steps.send, outcome)


async def each_async(
    steps: Following, perform: Callable[[Effect | Listen | Hear], Awaitable[Reply | bytes | None]]
) -> AsyncIterator[LiveEvent]:
    """Do one step after the other, and give the events that they lead to."""
    resume: Callable[[], Effect | Listen | Hear | LiveEvent] = partial(next, steps)
    while True:
        step = resume()
        if isinstance(step, LiveEvent):
            yield step
            resume = partial(next, steps)
            continue
        try:
            outcome = await perform(step)
        except BaseException as error:  # a cancellation, too, belongs to whoever waits for the reply
            resume = partial(steps.throw, error)
        else:
            resume = partial(steps.send, outcome)
