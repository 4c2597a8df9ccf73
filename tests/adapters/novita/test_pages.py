"""Walking over pages that move, repeat themselves, are missing, or are counted from somewhere else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.adapters.novita.paged_list import (
    LONG_PAGE_SIZE,
    ORDINARY_WALKS,
    PAGE_CONCURRENCY,
    PAGE_SIZE,
    ROWS_AT_ONCE,
    NovitaPage,
    PagedList,
)
from gpuherd.domain.errors import CloudRefused, CloudUnavailable, KeyRefused


def read(row: Any) -> tuple[str, str] | None:
    return (row, row.upper()) if isinstance(row, str) else None


class Book:
    """A list in pages of `size` at most. `first` is the number of its first page; `also_zero` gives that page
    for 0 as well. Pages of more than `long_from` get what `long` says."""

    def __init__(self, count: int, *, size: int = 100, first: int = 1, also_zero: bool = True) -> None:
        self.rows: list[Any] = [f"m{n}" for n in range(count)]
        self.size = size
        self.first = first
        self.also_zero = also_zero
        self.total: int | None = count
        self.long_from = 10**9
        # An error, or how long a page is that is asked for with a length that the server does not have.
        self.long: Exception | int = 10
        self.asked: list[int] = []
        self.sizes: list[int] = []
        self.at_once = self.most_at_once = 0
        self.pages: dict[int, NovitaPage | Exception] = {}

    async def fetch(self, number: int, size: int) -> NovitaPage:
        self.asked.append(number)
        self.sizes.append(size)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if (special := self.pages.get(number)) is not None:
            if isinstance(special, Exception):
                raise special
            return special
        size = min(size, self.size) if size <= self.long_from else self._length_of_long()
        index = number - self.first
        if index == -1 and self.also_zero:
            index = 0
        return NovitaPage(self.rows[index * size :][:size] if index >= 0 else [], self.total)

    def _length_of_long(self) -> int:
        if isinstance(self.long, Exception):
            raise self.long
        return self.long


async def gather(book: Book, **settings: int):
    return await PagedList(read, **settings).gather(book.fetch)


@given(
    count=st.integers(0, 60),
    size=st.integers(1, 12),
    first=st.integers(0, 1),
    also_zero=st.booleans(),
    walks=st.integers(1, 3),
)
async def test_every_way_of_counting_gives_the_whole_list(count, size, first, also_zero, walks):
    book = Book(count, size=size, first=first, also_zero=also_zero and first == 1)
    walk = PagedList(read)
    for _ in range(walks):
        found = await walk.gather(book.fetch)
        assert found.complete
        assert sorted(found.items) == sorted(book.rows)


async def test_one_page_costs_one_call():
    for count in (0, 1, 100):
        book = Book(count)
        assert (await gather(book)).complete
        assert book.asked == [1]


async def test_a_walk_costs_one_call_a_page_and_only_a_few_at_once():
    book = Book(2934)
    found = await gather(book)
    assert found.complete
    assert list(found.items) == book.rows
    assert sorted(book.asked) == list(range(1, 31))
    assert book.most_at_once == PAGE_CONCURRENCY


async def test_a_base_of_zero_is_learned_once():
    book = Book(250, first=0, also_zero=False)
    walk = PagedList(read)
    assert (await walk.gather(book.fetch)).complete
    book.asked.clear()
    assert (await walk.gather(book.fetch)).complete
    assert sorted(book.asked) == [0, 1, 2]


async def test_a_base_learned_on_a_bad_day_is_forgotten():
    book = Book(150)
    book.pages[1] = NovitaPage([], 150)
    walk = PagedList(read)
    await walk.gather(book.fetch)
    book.pages.clear()
    assert not (await walk.gather(book.fetch)).complete
    assert (await walk.gather(book.fetch)).complete


async def test_a_page_that_comes_twice_spoils_the_list_but_not_what_was_found():
    book = Book(300)
    book.pages[3] = NovitaPage(book.rows[100:200], 300)
    found = await gather(book)
    assert not found.complete
    assert list(found.items) == book.rows[:200]


@pytest.mark.proves("F13")
async def test_a_missing_page_spoils_the_list():
    book = Book(300)
    book.pages[2] = NovitaPage([], 300)
    assert not (await gather(book)).complete


@pytest.mark.parametrize("total", [None, 99, 101, 0, 10**9])
async def test_a_total_that_disagrees_with_the_rows_spoils_the_list(total):
    book = Book(100)
    book.total = total
    found = await gather(book)
    assert not found.complete
    assert len(found.items) == 100
    assert len(book.asked) <= 2 + PAGE_CONCURRENCY


async def test_a_total_that_changes_on_the_way_spoils_the_list():
    book = Book(200)
    book.pages[2] = NovitaPage(book.rows[100:], 201)
    assert not (await gather(book)).complete


async def test_a_row_that_makes_no_sense_spoils_the_list_but_not_the_others():
    book = Book(100)
    book.rows[50] = {"no": "id"}
    found = await gather(book)
    assert not found.complete
    assert len(found.items) == 99
    assert book.asked == [1]


async def test_a_row_twice_on_one_page_spoils_the_list():
    book = Book(100)
    book.rows[50] = book.rows[49]
    assert not (await gather(book)).complete


async def test_a_server_that_always_shows_the_first_page_is_seen_through():
    book = Book(1000)
    for number in range(20):
        book.pages[number] = NovitaPage(book.rows[:100], 1000)
    found = await gather(book)
    assert not found.complete
    assert len(found.items) == 100
    assert len(book.asked) <= 2 + PAGE_CONCURRENCY


async def test_shorter_pages_than_asked_for_are_walked_all_the_same():
    book = Book(35, size=10)
    assert (await gather(book)).complete


async def test_there_is_a_last_page_however_many_are_promised():
    book = Book(1000, size=10)
    found = await gather(book, pages_max=7)
    assert not found.complete
    assert len(found.items) == 70


async def test_one_lost_page_is_an_error_and_not_a_group_of_errors():
    book = Book(500)
    book.pages[3] = CloudUnavailable("lost")
    with pytest.raises(CloudUnavailable):
        await gather(book)


async def test_a_cloud_that_refuses_page_zero_is_not_asked_to_explain():
    book = Book(100)
    book.total = 150
    book.pages[0] = CloudRefused("pageNum must be 1 or more")
    assert len((await gather(book)).items) == 100


async def test_a_large_account_costs_a_call_for_each_long_page():
    book = Book(10_000, size=10**6)
    found = await gather(book)
    assert found.complete
    assert list(found.items) == book.rows
    assert book.sizes == [LONG_PAGE_SIZE] * 10
    assert book.most_at_once == ROWS_AT_ONCE // LONG_PAGE_SIZE


async def test_a_server_that_cuts_long_pages_is_walked_in_pages_of_its_own_length():
    book = Book(1_234, size=250)
    found = await gather(book)
    assert found.complete
    assert list(found.items) == book.rows
    assert book.sizes == [LONG_PAGE_SIZE] * 5


async def test_a_first_page_that_is_cut_short_once_spoils_the_list():
    book = Book(2_000, size=10**6)
    book.pages[1] = NovitaPage(book.rows[:500], 2_000)
    assert not (await gather(book)).complete


@pytest.mark.parametrize(
    "long", [CloudRefused("pageSize must be 100 or less"), 10], ids=["refuses", "ignores"]
)
async def test_a_server_without_long_pages_is_walked_in_ordinary_ones_and_asked_again_much_later(long):
    book = Book(950)
    book.long_from, book.long = PAGE_SIZE, long
    walk = PagedList(read)
    for _ in range(ORDINARY_WALKS):
        assert (await walk.gather(book.fetch)).complete
    assert book.sizes.count(LONG_PAGE_SIZE) == 1
    assert len(book.sizes) == 1 + 10 * ORDINARY_WALKS
    assert (await walk.gather(book.fetch)).complete
    assert book.sizes.count(LONG_PAGE_SIZE) == 2


async def test_a_list_that_fails_in_long_pages_is_made_in_ordinary_ones_next():
    book = Book(950, size=10**6)
    book.long_from, book.long = PAGE_SIZE, CloudUnavailable("the reply is too large")
    walk = PagedList(read)
    with pytest.raises(CloudUnavailable):
        await walk.gather(book.fetch)
    assert (await walk.gather(book.fetch)).complete


async def test_a_refused_key_is_no_question_of_length():
    book = Book(10)
    book.pages[1] = KeyRefused("no")
    with pytest.raises(KeyRefused):
        await gather(book)
    assert book.asked == [1]
