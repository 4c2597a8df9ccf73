"""Lists as JSON, as ids, or as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from rich.table import Table

from gpuherd.client.blocking_calls import Paged
from gpuherd.client.client_connection import Items, Page
from gpuherd.entrypoints.cli.render.output import Mode, Output, safe


class Entry(Protocol):
    """One entry of a list."""

    @property
    def raw(self) -> Mapping[str, Any]: ...


T = TypeVar("T")
E = TypeVar("E", bound=Entry)


def page_of(paged: Paged[T], *, everything: bool) -> Page[T]:
    """Return the first page, or with `everything` all of them as one."""
    if not everything:
        return paged.page()
    pages = list(paged.pages())
    last = pages[-1]
    return Page(tuple(it for page in pages for it in page.entries), last.total, last.next_cursor, last.raw)


def whole(items: Items[T]) -> Page[T]:
    """Return a list that comes as a whole as its only page."""
    return Page(items, items.raw.get("total"), None, items.raw)


def print_page(
    output: Output,
    name: str,
    page: Page[E],
    draw: Callable[[Sequence[E]], Table],
    nothing: str,
    id_of: Callable[[E], str],
) -> None:
    """Give the list to a program, or draw it for people; `nothing` is what they read where it is empty."""
    rows = page.entries
    total = len(rows) if page.total is None else page.total
    if output.mode is Mode.JSON:
        # The shape that the API itself has; only of several pages the entries are put together.
        output.json({**page.raw, name: [it.raw for it in rows]})
    elif output.mode is Mode.IDS:
        output.ids([id_of(it) for it in rows])
    elif not rows:
        output.note(nothing)
    else:
        output.show(draw(rows))
        if page.next_cursor:
            output.note(f"{len(rows)} of {safe(total)}; the rest with --all", "dim")
