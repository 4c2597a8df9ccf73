"""Conversations without a network: generators that say what to do next, and two ways to do it.

A verb is written once, as a generator that yields `Send` and `Pause` and is given what came of them. `run`
does them in the calling thread, `run_async` in the running task: so there is one source for both clients.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from gpuherd.client.wire import Reply, Request

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
Steps = Generator[Effect, Any, T]


def send(request: Request) -> Steps[Reply]:
    """Send, with the type that `yield` cannot tell."""
    reply: Reply = yield Send(request)
    return reply


def pause(seconds: float) -> Steps[None]:
    """Let time pass."""
    yield Pause(seconds)


def run(steps: Steps[T], perform: Callable[[Effect], Reply | None]) -> T:
    """Do one step after the other, and return what they lead to."""
    resume: Callable[[], Effect] = partial(next, steps)
    while True:
        try:
            effect = resume()
        except StopIteration as done:
            result: T = done.value
            return result
        try:
            outcome = perform(effect)
        except BaseException as error:  # an interrupt, too, belongs to whoever waits for the reply
            resume = partial(steps.throw, error)
        else:
            resume = partial(steps.send, outcome)


async def run_async(steps: Steps[T], perform: Callable[[Effect], Awaitable[Reply | None]]) -> T:
    """Do one step after the other, and return what they lead to."""
    resume: Callable[[], Effect] = partial(next, steps)
    while True:
        try:
            effect = resume()
        except StopIteration as done:
            result: T = done.value
            return result
        try:
            outcome = await perform(effect)
        except BaseException as error:  # a cancellation, too, belongs to whoever waits for the reply
            resume = partial(steps.throw, error)
        else:
            resume = partial(steps.send, outcome)
