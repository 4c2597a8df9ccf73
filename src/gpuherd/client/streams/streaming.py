"""Replies that come bit by bit, without a network: effects beside those of `effects`, and two ways to perform
them.

`OpenStream` opens such a reply, `ReadChunk` returns the next bytes of it, and what an `Emit` holds is for the
caller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from gpuherd.client.effects import Effect
from gpuherd.client.transport.wire import Reply, Request

T = TypeVar("T")


@dataclass(frozen=True)
class OpenStream:
    """Open a reply that comes bit by bit; what it begins with comes back, or all of it if it is a refusal."""

    request: Request


@dataclass(frozen=True)
class ReadChunk:
    """Wait for the next bytes; none at the end."""


@dataclass(frozen=True)
class Emit(Generic[T]):
    """Give this to the caller."""

    value: T


StreamStep = Effect | OpenStream | ReadChunk
StreamEffects = Generator[StreamStep | Emit[T], Any, None]


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


def run_stream(
    effects: StreamEffects[T], perform: Callable[[StreamStep], Reply | bytes | None]
) -> Iterator[T]:
    """Perform one effect after the other, and yield what is for the caller."""
    resume: Callable[[], StreamStep | Emit[T]] = partial(next, effects)
    while True:
        try:
            step = resume()
        except StopIteration:
            return
        if isinstance(step, Emit):
            yield step.value
            resume = partial(next, effects)
            continue
        try:
            outcome = perform(step)
        except BaseException as error:  # an interrupt, too, is raised where the reply is awaited
            resume = partial(effects.throw, error)
        else:
            resume = partial(effects.send, outcome)


async def run_stream_async(
    effects: StreamEffects[T], perform: Callable[[StreamStep], Awaitable[Reply | bytes | None]]
) -> AsyncIterator[T]:
    """Perform one effect after the other, and yield what is for the caller."""
    resume: Callable[[], StreamStep | Emit[T]] = partial(next, effects)
    while True:
        try:
            step = resume()
        except StopIteration:
            return
        if isinstance(step, Emit):
            yield step.value
            resume = partial(next, effects)
            continue
        try:
            outcome = await perform(step)
        except BaseException as error:  # a cancellation, too, is raised where the reply is awaited
            resume = partial(effects.throw, error)
        else:
            resume = partial(effects.send, outcome)
