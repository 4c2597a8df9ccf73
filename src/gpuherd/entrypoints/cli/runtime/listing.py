"""Lists: read by following their cursors, and printed as JSON, ids or a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.output import Mode, Output, safe
from gpuherd.entrypoints.cli.runtime.connection import ApiClient, Json


@dataclass(frozen=True)
class Listing:
    """One page, or all of them."""

    key: str
    rows: list[Json]
    total: Any
    next_cursor: str | None

    def as_json(self) -> Json:
        """Return the shape that the API itself has."""
        return {self.key: self.rows, "total": self.total, "nextCursor": self.next_cursor}


async def pages(
    api: ApiClient, path: str, key: str, query: Sequence[tuple[str, str]], *, everything: bool = False
) -> Listing:
    """Read one page, or with `everything` all of them."""
    rows: list[Json] = []
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        at = [("cursor", cursor)] if cursor else []
        body = (await api.get(path, [*query, *at])).body
        page = body.get(key)
        rows += [row for row in page if isinstance(row, dict)] if isinstance(page, list) else []
        following = body.get("nextCursor")
        cursor = str(following) if following else None
        # A cursor that comes again would lead us round in a circle for ever.
        if not everything or cursor is None or cursor in seen:
            return Listing(key, rows, body.get("total", len(rows)), cursor)
        seen.add(cursor)


def tell(output: Output, listing: Listing, draw: Callable[[Sequence[Details]], Table], nothing: str) -> None:
    """Give the list to a program, or draw it for people; `nothing` is what they read where it is empty."""
    rows = [Details(row) for row in listing.rows]
    if output.mode is Mode.JSON:
        output.json(listing.as_json())
    elif output.mode is Mode.IDS:
        output.ids([row.id for row in rows])
    elif not rows:
        output.note(nothing)
    else:
        output.show(draw(rows))
        if listing.next_cursor:
            output.note(f"{len(rows)} of {safe(listing.total)}; the rest with --all", "dim")
