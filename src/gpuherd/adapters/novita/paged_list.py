"""Walks a paged list, and reports whether the result is complete.

Novita counts pages from 1 in some documents and from 0 in others, and some deployments accept both for the
first page. A walk begins at 1 and continues until it has seen as many rows as `total` promises. Only if rows
are missing, it reads page 0. If that helps, later walks begin there.

Novita does not document the maximum page length. A walk requests long pages, because each page is a call, and
accepts shorter ones. If long pages are refused, or shorter than ordinary ones, it requests ordinary pages.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from gpuherd.domain.errors import CloudError, CloudRefused, KeyRefused

PAGE_SIZE = 100
LONG_PAGE_SIZE = 1_000


# After a walk over long pages failed, this many walks use ordinary pages.
ORDINARY_WALKS = 20


PAGE_CONCURRENCY = 16


# Fewer long pages are fetched at once: all that arrive together are in memory until each is read.
ROWS_AT_ONCE = 3_000


PAGES_MAX = 1_000
T = TypeVar("T")


@dataclass(frozen=True)
class NovitaPage:
    """The rows of one page, and the number of rows on all pages, as reported."""

    rows: list[Any]
    total: int | None


@dataclass(frozen=True)
class ReadPage(Generic[T]):
    """The same, with the content and id of each row; None for an invalid row."""

    entries: list[tuple[str, T] | None]
    total: int | None


FetchPage = Callable[[int, int], Coroutine[Any, Any, NovitaPage]]


"""Fetches the page of that number, given how long the pages are to be."""


FetchNumber = Callable[[int], Coroutine[Any, Any, ReadPage[T]]]
ReadRow = Callable[[Any], tuple[str, T] | None]


"""Returns what a row is about and under which id, or None when the row makes no sense."""


@dataclass
class PageScan(Generic[T]):
    """What a walk has seen so far."""

    total: int | None
    items: dict[str, T] = field(default_factory=dict)
    rows: int = 0
    # True after an invalid row, a repeated row, or a changed total: a complete list has none.
    inconsistent: bool = False

    @property
    def complete(self) -> bool:
        # guard: a total that does not fit makes a list incomplete
        return not self.inconsistent and self.rows == self.total

    @property
    def wants_more(self) -> bool:
        return self.total is not None and self.rows < self.total

    def add(self, page: ReadPage[T]) -> bool:
        """Add a page. Return True if it brought new rows."""
        before = len(self.items)
        for entry in page.entries:
            if entry is None or entry[0] in self.items:
                self.inconsistent = True
            else:
                self.items[entry[0]] = entry[1]
        self.rows += len(page.entries)
        self.inconsistent = self.inconsistent or page.total is None or page.total != self.total
        return len(self.items) > before


class PagedList(Generic[T]):
    """Walks one list repeatedly, and remembers where its pages begin and how long they may be."""

    def __init__(
        self,
        read: ReadRow[T],
        *,
        page_size: int = LONG_PAGE_SIZE,
        page_concurrency: int = PAGE_CONCURRENCY,
        pages_max: int = PAGES_MAX,
    ) -> None:
        self._read = read
        self._page_size = page_size
        # How many walks over ordinary pages are left.
        self._ordinary_walks = 0
        self._page_concurrency = page_concurrency
        self._pages_max = pages_max
        self._first = 1

    async def gather(self, fetch: FetchPage) -> PageScan[T]:
        """Fetch pages, a few at once, until all rows are seen or a page brings nothing new."""
        try:
            return await self._walk(fetch)
        except CloudError:
            if not self._ordinary_walks:
                # Long pages may be too much for Novita or for gpuherd; at worst they time out.
                self._ordinary_walks = ORDINARY_WALKS
            raise
        finally:
            self._ordinary_walks = max(0, self._ordinary_walks - 1)

    async def _walk(self, fetch: FetchPage) -> PageScan[T]:
        first, size = await self._first_page(fetch)
        found = PageScan[T](first.total)
        found.add(first)
        # Novita may return shorter pages than requested. The first page shows the length.
        length = max(1, len(first.entries))
        pages = min(math.ceil((first.total or 0) / length), self._pages_max)
        sized = partial(self._fetch_read, fetch, size)
        numbers = range(self._first + 1, self._first + pages)
        at_once = max(1, min(self._page_concurrency, ROWS_AT_ONCE // length))
        await self._fetch_remaining(sized, found, numbers, at_once)
        if self._first == 0 and not found.complete:
            # The page 0 of an earlier walk may have been an accident.
            self._first = 1
        elif found.wants_more:
            await self._try_page_zero(sized, found)
        return found

    async def _first_page(self, fetch: FetchPage) -> tuple[ReadPage[T], int]:
        """Return the first page and the requested length."""
        if self._page_size > PAGE_SIZE and not self._ordinary_walks:
            page = await self._long_page(fetch)
            if page is not None and len(page.entries) >= min(page.total or 0, PAGE_SIZE):
                return page, self._page_size
            self._ordinary_walks = ORDINARY_WALKS
        return await self._fetch_read(fetch, PAGE_SIZE, self._first), PAGE_SIZE

    async def _long_page(self, fetch: FetchPage) -> ReadPage[T] | None:
        """Return the first page as a long one; None if Novita rejects it."""
        try:
            return await self._fetch_read(fetch, self._page_size, self._first)
        except KeyRefused:
            raise
        except CloudRefused:
            return None

    async def _fetch_remaining(
        self, fetch: FetchNumber[T], found: PageScan[T], numbers: range, at_once: int
    ) -> None:
        for begin in range(0, len(numbers), at_once):
            if not found.wants_more:
                return
            batch = await _fetch_together(fetch, numbers[begin : begin + at_once])
            grew = [found.add(page) for page in batch]
            if not all(grew):
                return

    async def _try_page_zero(self, fetch: FetchNumber[T], found: PageScan[T]) -> None:
        try:
            page = await fetch(0)
        except CloudRefused:
            return
        is_new = [entry is not None and entry[0] not in found.items for entry in page.entries]
        if is_new and all(is_new):
            self._first = 0
            found.add(page)

    async def _fetch_read(self, fetch: FetchPage, size: int, number: int) -> ReadPage[T]:
        """Fetch a page and read its rows at once: unread rows take three times the memory."""
        page = await fetch(number, size)
        # A thousand rows take time; let other tasks run.
        await asyncio.sleep(0)
        return ReadPage([self._read(row) for row in page.rows], page.total)


async def _fetch_together(fetch: FetchNumber[T], numbers: range) -> list[ReadPage[T]]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(fetch(number)) for number in numbers]
    except ExceptionGroup as errors:
        error = errors.exceptions[0]
    else:
        return [task.result() for task in tasks]
    # One lost page spoils the walk. The caller handles a single error, not a group.
    raise error
