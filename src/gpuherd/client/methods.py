"""API methods that are written once and called in two ways: the answer itself, or something to await.

`@api_method` takes a method that yields its effects. On a `SyncResource` it is a function that returns the
result; on an `AsyncResource`, a coroutine function. `@paginated` does the same for lists that come page by
page. Type checkers see both, with all parameters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from gpuherd.client.effects import Effects
from gpuherd.client.errors import UnexpectedReply
from gpuherd.client.event_stream import EventEffects
from gpuherd.client.models.instance import LiveEvent
from gpuherd.client.retrying import RetryingCaller
from gpuherd.client.wire import Request, listed

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class Executor(Protocol):
    """Performs effects in the calling thread."""

    def run(self, effects: Effects[R]) -> R: ...

    def follow(self, effects: EventEffects) -> Iterator[LiveEvent]: ...


class AsyncExecutor(Protocol):
    """Performs effects in the running task."""

    async def run(self, effects: Effects[R]) -> R: ...

    def follow(self, effects: EventEffects) -> AsyncIterator[LiveEvent]: ...


class Resource:
    """One subject of the API, with its methods."""

    _caller: RetryingCaller


class SyncResource(Resource):
    """A resource whose methods return when they are done."""

    def __init__(self, caller: RetryingCaller, executor: Executor) -> None:
        self._caller = caller
        self._executor = executor


class AsyncResource(Resource):
    """A resource whose methods are awaited."""

    def __init__(self, caller: RetryingCaller, executor: AsyncExecutor) -> None:
        self._caller = caller
        self._executor = executor


class api_method(Generic[P, T]):
    """Makes a method of a generator of effects."""

    def __init__(self, effects: Callable[Concatenate[Any, P], Effects[T]]) -> None:
        self._effects = effects
        update_wrapper(self, effects)  # type: ignore[arg-type]

    @overload
    def __get__(self, it: None, owner: type) -> Self: ...
    @overload
    def __get__(self, it: SyncResource, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, it: AsyncResource, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, it: SyncResource | AsyncResource | None, owner: type) -> Any:
        if it is None:
            return self
        executor = it._executor

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return executor.run(self._effects(it, *args, **kwargs))

        return update_wrapper(call, self._effects)


class following(Generic[P]):
    """Makes an iterator without an end of what describes a stream; it is opened with the first `next`."""

    def __init__(self, effects: Callable[Concatenate[Any, P], EventEffects]) -> None:
        self._effects = effects
        update_wrapper(self, effects)  # type: ignore[arg-type]

    @overload
    def __get__(self, it: None, owner: type) -> Self: ...
    @overload
    def __get__(self, it: SyncResource, owner: type) -> Callable[P, Iterator[LiveEvent]]: ...
    @overload
    def __get__(self, it: AsyncResource, owner: type) -> Callable[P, AsyncIterator[LiveEvent]]: ...
    def __get__(self, it: SyncResource | AsyncResource | None, owner: type) -> Any:
        if it is None:
            return self
        executor = it._executor

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return executor.follow(self._effects(it, *args, **kwargs))

        return update_wrapper(call, self._effects)


@dataclass(frozen=True)
class Pages(Generic[T]):
    """A list that comes in pages: how to ask for one, and how to read its entries."""

    request: Request
    entries: str
    read: Callable[[object], T]

    def page(self, caller: RetryingCaller, cursor: str | None) -> Effects[tuple[tuple[T, ...], str | None]]:
        """Return the entries of one page, and where the next begins."""
        asked = (*self.request.query, *((("cursor", cursor),) if cursor else ()))
        answer = yield from caller.call(replace(self.request, query=asked))
        found, following = listed(answer, self.entries), answer.get("nextCursor")
        if following is not None and following == cursor:
            raise UnexpectedReply("the server's list leads back to the same page for ever")
        return tuple(self.read(it) for it in found), following


class paginated(Generic[P, T]):
    """Makes an iterator of what describes pages; a page is fetched when its first entry is wanted."""

    def __init__(self, pages: Callable[Concatenate[Any, P], Pages[T]]) -> None:
        self._pages = pages
        update_wrapper(self, pages)  # type: ignore[arg-type]

    @overload
    def __get__(self, it: None, owner: type) -> Self: ...
    @overload
    def __get__(self, it: SyncResource, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, it: AsyncResource, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, it: SyncResource | AsyncResource | None, owner: type) -> Any:
        if it is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            pages = self._pages(it, *args, **kwargs)
            return _each(it, pages) if isinstance(it, SyncResource) else _each_async(it, pages)

        return update_wrapper(call, self._pages)


def _each(it: SyncResource, pages: Pages[T]) -> Iterator[T]:
    entries, cursor = it._executor.run(pages.page(it._caller, None))
    yield from entries
    while cursor:
        entries, cursor = it._executor.run(pages.page(it._caller, cursor))
        yield from entries


async def _each_async(it: AsyncResource, pages: Pages[T]) -> AsyncIterator[T]:
    entries, cursor = await it._executor.run(pages.page(it._caller, None))
    for entry in entries:
        yield entry
    while cursor:
        entries, cursor = await it._executor.run(pages.page(it._caller, cursor))
        for entry in entries:
            yield entry
