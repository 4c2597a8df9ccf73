"""Conversations without a network: generators that yield effects, and two ways to perform them.

A method is written once, as a generator that yields `Send` and `Pause` and is given what came of them. `run`
performs them in the calling thread, `run_async` in the running task: so there is one source for both
clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from gpuherd.client.errors import UnexpectedReply
from gpuherd.client.transport.wire import Reply, Request
from gpuherd.contract.codec.model import Undecodable

T = TypeVar("T")


@dataclass(frozen=True)
class Send:
    """Carry a request to the server; its reply, or `ConnectionFailed`, comes back."""

    request: Request


@dataclass(frozen=True)
class Pause:
    """Let time pass."""

    seconds: float


Effect = Send | Pause
Effects = Generator[Effect, Any, T]


def send(request: Request) -> Effects[Reply]:
    """Send, with the type that `yield` cannot tell."""
    reply: Reply = yield Send(request)
    return reply


def pause(seconds: float) -> Effects[None]:
    """Let time pass."""
    yield Pause(seconds)


def run(effects: Effects[T], perform: Callable[[Effect], Reply | None]) -> T:
    """Perform one effect after the other, and return the result."""
    resume: Callable[[], Effect] = partial(next, effects)
    while True:
        try:
            effect = resume()
        except StopIteration as done:
            result: T = done.value
            return result
        except Undecodable as odd:
            raise UnexpectedReply(str(odd)) from None
        try:
            outcome = perform(effect)
        except BaseException as error:  # an interrupt, too, is raised where the reply is awaited
            resume = partial(effects.throw, error)
        else:
            resume = partial(effects.send, outcome)


async def run_async(effects: Effects[T], perform: Callable[[Effect], Awaitable[Reply | None]]) -> T:
    """Perform one effect after the other, and return the result."""
    resume: Callable[[], Effect] = partial(next, effects)
    while True:
        try:
            effect = resume()
        except StopIteration as done:
            result: T = done.value
            return result
        except Undecodable as odd:
            raise UnexpectedReply(str(odd)) from None
        try:
            outcome = await perform(effect)
        except BaseException as error:  # a cancellation, too, is raised where the reply is awaited
            resume = partial(effects.throw, error)
        else:
            resume = partial(effects.send, outcome)
