"""Following the event stream, without a network: which stream to open, what it says, how to resume after a
break.

Written once, as stream effects, for both clients."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuherd.client.effects import Effects, pause
from gpuherd.client.errors import ApiError, ConnectionFailed, GpuherdError, UnexpectedReply
from gpuherd.client.models.instance import LiveEvent
from gpuherd.client.retrying import FIRST_DELAY_S, RetryingCaller
from gpuherd.client.streams.streaming import Emit, OpenStream, ReadChunk, StreamEffects
from gpuherd.client.transport.sse import NotAnEventStream, SseParser
from gpuherd.client.transport.wire import api_error, get
from gpuherd.contract.codec.model import Undecodable

# The server gives a sign of life every 15 seconds.
SILENCE_MAX_S = 45.0
HISTORY = "/api/events/history"


EventEffects = StreamEffects[LiveEvent]
OnBreak = Callable[[GpuherdError], None]
OnResume = Callable[[], None]


@dataclass(frozen=True)
class EventFilter:
    """Which events are wanted: of one instance, or of one type; None is all."""

    instance: str | None
    type: str | None


def follow(
    caller: RetryingCaller,
    wanted: EventFilter,
    since: int | None,
    on_break: OnBreak | None = None,
    on_resume: OnResume | None = None,
) -> EventEffects:
    """Tell what happens, for ever; after a break on from the last event."""
    last = (yield from _now(caller, wanted)) if since is None else str(since)
    question = get("/api/events", instance=wanted.instance, type=wanted.type)
    failures = 0
    is_broken = False
    while True:
        try:
            begun = yield OpenStream(replace(question, last_event_id=last, timeout_s=SILENCE_MAX_S))
            if begun.status != 200:
                raise api_error(question, begun, begun.json or {})
            messages = SseParser()
            while chunk := (yield ReadChunk()):
                failures = 0
                if is_broken and on_resume is not None:
                    on_resume()
                is_broken = False
                for message in messages.feed(chunk):
                    yield Emit(LiveEvent.of(json.loads(message.data)))
                    last = message.id
            yield from pause(FIRST_DELAY_S)
        except (NotAnEventStream, json.JSONDecodeError, Undecodable) as odd:
            raise UnexpectedReply(f"the stream of events cannot be read: {odd}") from None
        except GpuherdError as trouble:
            failures += 1
            delay_s = _delay_s(caller, trouble, failures)
            if delay_s is None:
                raise
            if not is_broken and on_break is not None:
                on_break(trouble)
            is_broken = True
            yield from pause(delay_s)


def _delay_s(caller: RetryingCaller, trouble: GpuherdError, failures: int) -> float | None:
    """Return how long to wait before the stream is opened again; None if that would be in vain."""
    backoff_s = caller.backoff_s(failures)
    if isinstance(trouble, ConnectionFailed):
        return backoff_s
    if isinstance(trouble, ApiError) and trouble.is_temporary:
        return max(backoff_s, trouble.retry_after_s or 0.0)
    return None


def _now(caller: RetryingCaller, wanted: EventFilter) -> Effects[str]:
    """Return where the log ends, so that also a break before the first event leaves no gap."""
    latest = get(HISTORY, limit=1, instance=wanted.instance, type=wanted.type)
    answer = yield from caller.call(latest)
    last = answer.get("lastEventId")
    if not isinstance(last, str):
        raise UnexpectedReply("the server does not say where its events end; is it as new as this client?")
    return last
