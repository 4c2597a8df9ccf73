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
PAGES_AT_ONCE = 16
PAGES_MAX = 1_000

T = TypeVar("T")


@dataclass(frozen=True)
class Page:
    """The rows of one page, and how many rows the cloud says there are on all pages."""

    rows: list[Any]
    total: int | None


FetchPage = Callable[[int], Coroutine[Any, Any, Page]]
ReadRow = Callable[[Any], tuple[str, T] | None]
"""Returns what a row is about and under which id, or None when the row makes no sense."""


@dataclass
class Gathered(Generic[T]):
    """What a walk has seen so far."""

    total: int | None
    items: dict[str, T] = field(default_factory=dict)
    rows: int = 0
    # Something that a whole list would not have: a senseless row, a row twice, a total that changes.
    flawed: bool = False

    @property
    def complete(self) -> bool:
        return not self.flawed and self.rows == self.total

    @property
    def wants_more(self) -> bool:
        return self.total is not None and self.rows < self.total

    def add(self, page: Page, read: ReadRow[T]) -> bool:
        """Take in one page and tell whether it brought anything new."""
        before = len(self.items)
        for row in page.rows:
            entry = read(row)
            if entry is None or entry[0] in self.items:
                self.flawed = True
            else:
                self.items[entry[0]] = entry[1]
        self.rows += len(page.rows)
        self.flawed = self.flawed or page.total is None or page.total != self.total
        return len(self.items) > before


class PageWalk(Generic[T]):
    """Walks one list again and again, and remembers where its pages begin."""

    def __init__(
        self, read: ReadRow[T], *, pages_at_once: int = PAGES_AT_ONCE, pages_max: int = PAGES_MAX
    ) -> None:
        self._read = read
        self._pages_at_once = pages_at_once
        self._pages_max = pages_max
        self._first = 1

    async def gather(self, fetch: FetchPage) -> Gathered[T]:
        """Fetch pages, a few at once, until all is seen or a page brings nothing new."""
        first = await fetch(self._first)
        found = Gathered[T](first.total)
        found.add(first, self._read)
        await self._walk_on(fetch, found, self._pages_needed(first))
        if self._first == 0 and not found.complete:
            # What once looked like a page before the first was perhaps only a bad day.
            self._first = 1
        elif found.wants_more:
            await self._look_before(fetch, found)
        return found

    def _pages_needed(self, first: Page) -> int:
        # The cloud may give shorter pages than we ask for: the length of the first tells.
        return min(math.ceil((first.total or 0) / max(1, len(first.rows))), self._pages_max)

    async def _walk_on(self, fetch: FetchPage, found: Gathered[T], pages: int) -> None:
        numbers = range(self._first + 1, self._first + pages)
        for begin in range(0, len(numbers), self._pages_at_once):
            if not found.wants_more:
                return
            wave = await _fetch_together(fetch, numbers[begin : begin + self._pages_at_once])
            news = [found.add(page, self._read) for page in wave]
            if not all(news):
                return

    async def _look_before(self, fetch: FetchPage, found: Gathered[T]) -> None:
        try:
            page = await fetch(0)
        except CloudRefused:
            return
        entries = [self._read(row) for row in page.rows]
        if entries and all(entry is not None and entry[0] not in found.items for entry in entries):
            self._first = 0
            found.add(page, self._read)


async def _fetch_together(fetch: FetchPage, numbers: range) -> list[Page]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(fetch(number)) for number in numbers]
    except ExceptionGroup as errors:
        error = errors.exceptions[0]
    else:
        return [task.result() for task in tasks]
    # One lost page spoils the walk; the caller knows what to do about an error, not about a group of them.
    raise error
