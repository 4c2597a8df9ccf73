"""Lists: whole ones, and those that come page by page, each with the answer that it was read from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from gpuherd.client.effects import Effects
from gpuherd.client.errors import UnexpectedReply
from gpuherd.client.retrying import RetryingCaller
from gpuherd.client.transport.wire import Json, Request, listed

T = TypeVar("T")


class Items(tuple[T, ...]):
    """A whole list; `raw` is the answer that it was read from."""

    raw: Mapping[str, Any]

    @classmethod
    def of(cls, items: Iterable[T], raw: Mapping[str, Any]) -> Items[T]:
        made = cls(items)
        made.raw = raw
        return made


def items_of(answer: Json, name: str, read: Callable[[object], T]) -> Items[T]:
    """Read the list called `name` out of an answer."""
    return Items.of((read(it) for it in listed(answer, name)), answer)


@dataclass(frozen=True)
class Page(Generic[T]):
    """A part of a list. `next_cursor` is where the next begins, None at the end; `total` counts them all."""

    entries: tuple[T, ...]
    total: int | None
    next_cursor: str | None
    raw: Mapping[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class PageReader(Generic[T]):
    """How to ask for a page, and how to read its entries."""

    request: Request
    name: str
    read: Callable[[object], T]

    def page(self, caller: RetryingCaller, cursor: str | None) -> Effects[Page[T]]:
        """Return one page."""
        asked = (*self.request.query, *((("cursor", cursor),) if cursor else ()))
        answer = yield from caller.call(replace(self.request, query=asked))
        following, total = answer.get("nextCursor"), answer.get("total")
        if following is not None and following == cursor:
            raise UnexpectedReply("the server's list leads back to the same page for ever")
        return Page(
            tuple(self.read(it) for it in listed(answer, self.name)),
            total if isinstance(total, int) else None,
            following,
            answer,
        )


class Paged(Iterator[T]):
    """Goes through all entries; a page is fetched when its first entry is wanted."""

    def __init__(self, fetch: Callable[[str | None], Page[T]]) -> None:
        self._fetch = fetch
        self._entries = self._each()

    def page(self, cursor: str | None = None) -> Page[T]:
        """Return the first page, or the one that begins at `cursor`."""
        return self._fetch(cursor)

    def pages(self) -> Iterator[Page[T]]:
        """Go through the pages, from the first."""
        page = self._fetch(None)
        yield page
        while page.next_cursor:
            page = self._fetch(page.next_cursor)
            yield page

    def __next__(self) -> T:
        return next(self._entries)

    def _each(self) -> Iterator[T]:
        for page in self.pages():
            yield from page.entries


class AsyncPaged(AsyncIterator[T]):
    """The same, awaited."""

    def __init__(self, fetch: Callable[[str | None], Awaitable[Page[T]]]) -> None:
        self._fetch = fetch
        self._entries = self._each()

    async def page(self, cursor: str | None = None) -> Page[T]:
        """Return the first page, or the one that begins at `cursor`."""
        return await self._fetch(cursor)

    async def pages(self) -> AsyncIterator[Page[T]]:
        """Go through the pages, from the first."""
        page = await self._fetch(None)
        yield page
        while page.next_cursor:
            page = await self._fetch(page.next_cursor)
            yield page

    async def __anext__(self) -> T:
        return await anext(self._entries)

    async def _each(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for entry in page.entries:
                yield entry
