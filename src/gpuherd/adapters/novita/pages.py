"""Walk over a paged list and tell whether what was gathered is the whole of it.

Novita counts pages from 1 in some of its documents and from 0 in others, and some deployments take both 0
and 1 for the first page. We begin at 1 and go on until everything that `total` promises has been seen; only
if something is still missing do we look at page 0, and if it helps, later walks begin there.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from gpuherd.domain.errors import CloudRefused

PAGE_SIZE = 100
PAGE_CONCURRENCY = 16
PAGES_MAX = 1_000

T = TypeVar("T")


@dataclass(frozen=True)
class NovitaPage:
    """The rows of one page, and how many rows the cloud says there are on all pages."""

    rows: list[Any]
    total: int | None


FetchPage = Callable[[int], Coroutine[Any, Any, NovitaPage]]
ReadRow = Callable[[Any], tuple[str, T] | None]
"""Returns what a row is about and under which id, or None when the row makes no sense."""


@dataclass
class PageScan(Generic[T]):
    """What a walk has seen so far."""

    total: int | None
    items: dict[str, T] = field(default_factory=dict)
    rows: int = 0
    # Something that a whole list would not have: a senseless row, a row twice, a total that changes.
    inconsistent: bool = False

    @property
    def complete(self) -> bool:
        return not self.inconsistent and self.rows == self.total

    @property
    def wants_more(self) -> bool:
        return self.total is not None and self.rows < self.total

    def add(self, page: NovitaPage, read: ReadRow[T]) -> bool:
        """Take in one page and tell whether it brought anything new."""
        before = len(self.items)
        for row in page.rows:
            entry = read(row)
            if entry is None or entry[0] in self.items:
                self.inconsistent = True
            else:
                self.items[entry[0]] = entry[1]
        self.rows += len(page.rows)
        self.inconsistent = self.inconsistent or page.total is None or page.total != self.total
        return len(self.items) > before


class PagedList(Generic[T]):
    """Walks one list again and again, and remembers where its pages begin."""

    def __init__(
        self, read: ReadRow[T], *, page_concurrency: int = PAGE_CONCURRENCY, pages_max: int = PAGES_MAX
    ) -> None:
        self._read = read
        self._page_concurrency = page_concurrency
        self._pages_max = pages_max
        self._first = 1

    async def gather(self, fetch: FetchPage) -> PageScan[T]:
        """Fetch pages, a few at once, until all is seen or a page brings nothing new."""
        first = await fetch(self._first)
        found = PageScan[T](first.total)
        found.add(first, self._read)
        await self._fetch_remaining(fetch, found, self._pages_needed(first))
        if self._first == 0 and not found.complete:
            # What once looked like a page before the first was perhaps only a bad day.
            self._first = 1
        elif found.wants_more:
            await self._try_page_zero(fetch, found)
        return found

    def _pages_needed(self, first: NovitaPage) -> int:
        # The cloud may give shorter pages than we ask for: the length of the first tells.
        return min(math.ceil((first.total or 0) / max(1, len(first.rows))), self._pages_max)

    async def _fetch_remaining(self, fetch: FetchPage, found: PageScan[T], pages: int) -> None:
        numbers = range(self._first + 1, self._first + pages)
        for begin in range(0, len(numbers), self._page_concurrency):
            if not found.wants_more:
                return
            batch = await _fetch_together(fetch, numbers[begin : begin + self._page_concurrency])
            grew = [found.add(page, self._read) for page in batch]
            if not all(grew):
                return

    async def _try_page_zero(self, fetch: FetchPage, found: PageScan[T]) -> None:
        try:
            page = await fetch(0)
        except CloudRefused:
            return
        entries = [self._read(row) for row in page.rows]
        if entries and all(entry is not None and entry[0] not in found.items for entry in entries):
            self._first = 0
            found.add(page, self._read)


async def _fetch_together(fetch: FetchPage, numbers: range) -> list[NovitaPage]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(fetch(number)) for number in numbers]
    except ExceptionGroup as errors:
        error = errors.exceptions[0]
    else:
        return [task.result() for task in tasks]
    # One lost page spoils the walk; the caller knows what to do about an error, not about a group of them.
    raise error
