"""Verbs that are written once and called in two ways: the answer itself, or something to await.

`@verb` takes a method that describes its steps. On a `Blocking` resource it is a function that returns the
result; on an `Awaiting` one, a coroutine function. `@listing` does the same for lists that come page by page.
Type checkers see both, with all parameters.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from gpuherd.client.asking import Asker
from gpuherd.client.errors import UnexpectedReply
from gpuherd.client.following import Following
from gpuherd.client.models.live import LiveEvent
from gpuherd.client.steps import Steps
from gpuherd.client.wire import Request, listed

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class Desk(Protocol):
    """Does steps in the calling thread."""

    def run(self, steps: Steps[R]) -> R: ...

    def follow(self, steps: Following) -> Iterator[LiveEvent]: ...


class AsyncDesk(Protocol):
    """Does steps in the running task."""

    async def run(self, steps: Steps[R]) -> R: ...

    def follow(self, steps: Following) -> AsyncIterator[LiveEvent]: ...


class Resource:
    """One subject of the API, with its verbs."""

    _asker: Asker


class Blocking(Resource):
    """A resource whose verbs return when they are done."""

    def __init__(self, asker: Asker, desk: Desk) -> None:
        self._asker = asker
        self._desk = desk


class Awaiting(Resource):
    """A resource whose verbs are awaited."""

    def __init__(self, asker: Asker, desk: AsyncDesk) -> None:
        self._asker = asker
        self._desk = desk


class verb(Generic[P, T]):
    """Makes a method of what describes its steps."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self._steps = steps
        update_wrapper(self, steps)  # type: ignore[arg-type]

    @overload
    def __get__(self, it: None, owner: type) -> Self: ...
    @overload
    def __get__(self, it: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, it: Awaiting, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, it: Blocking | Awaiting | None, owner: type) -> Any:
        if it is None:
            return self
        desk = it._desk

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return desk.run(self._steps(it, *args, **kwargs))

        return update_wrapper(call, self._steps)


class following(Generic[P]):
    """Makes an iterator without an end of what describes a stream; it is opened with the first `next`."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Following]) -> None:
        self._steps = steps
        update_wrapper(self, steps)  # type: ignore[arg-type]

    @overload
    def __get__(self, it: None, owner: type) -> Self: ...
    @overload
    def __get__(self, it: Blocking, owner: type) -> Callable[P, Iterator[LiveEvent]]: ...
    @overload
    def __get__(self, it: Awaiting, owner: type) -> Callable[P, AsyncIterator[LiveEvent]]: ...
    def __get__(self, it: Blocking | Awaiting | None, owner: type) -> Any:
        if it is None:
            return self
        desk = it._desk

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return desk.follow(self._steps(it, *args, **kwargs))

        return update_wrapper(call, self._steps)


@dataclass(frozen=True)
class Pages(Generic[T]):
    """A list that comes in pages: how to ask for one, and how to read its entries."""

    request: Request
    entries: str
    read: Callable[[object], T]

    def page(self, asker: Asker, cursor: str | None) -> Steps[tuple[tuple[T, ...], str | None]]:
        """Return the entries of one page, and where the next begins."""
        asked = (*self.request.query, *((("cursor", cursor),) if cursor else ()))
        answer = yield from asker.ask(replace(self.request, query=asked))
        found, following = listed(answer, self.entries), answer.get("nextCursor")
        if following is not None and following == cursor:
            raise UnexpectedReply("the server's list leads back to the same page for ever")
        return tuple(self.read(it) for it in found), following


class listing(Generic[P, T]):
    """Makes an iterator of what describes pages; a page is fetched when its first entry is wanted."""

    def __init__(self, pages: Callable[Concatenate[Any, P], Pages[T]]) -> None:
        self._pages = pages
        update_wrapper(self, pages)  # type: ignore[arg-type]

    @overload
    def __get__(self, it: None, owner: type) -> Self: ...
    @overload
    def __get__(self, it: Blocking, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, it: Awaiting, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, it: Blocking | Awaiting | None, owner: type) -> Any:
        if it is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            pages = self._pages(it, *args, **kwargs)
            return _each(it, pages) if isinstance(it, Blocking) else _each_async(it, pages)

        return update_wrapper(call, self._pages)


def _each(it: Blocking, pages: Pages[T]) -> Iterator[T]:
    entries, cursor = it._desk.run(pages.page(it._asker, None))
    yield from entries
    while cursor:
        entries, cursor = it._desk.run(pages.page(it._asker, cursor))
        yield from entries


async def _each_async(it: Awaiting, pages: Pages[T]) -> AsyncIterator[T]:
    entries, cursor = await it._desk.run(pages.page(it._asker, None))
    for entry in entries:
        yield entry
    while cursor:
        entries, cursor = await it._desk.run(pages.page(it._asker, cursor))
        for entry in entries:
            yield entry
