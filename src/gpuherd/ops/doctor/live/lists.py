"""The list of machines: its form, its pages, and what "not there" looks like.

Nothing of what the account's machines are is told, only how the list shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuherd.adapters.novita import novita_failures
from gpuherd.adapters.novita.novita_call import NovitaReply
from gpuherd.adapters.novita.novita_failures import ResourceKind
from gpuherd.adapters.novita.novita_json import text, whole
from gpuherd.domain.errors import MachineGone
from gpuherd.ops.doctor.live import assumptions
from gpuherd.ops.doctor.live.catalogue import rows_of, unread
from gpuherd.ops.doctor.results import LiveFinding


@dataclass(frozen=True)
class NumberedPages:
    """The first rows of pages of one row each, by their ids: without a number, and numbered."""

    of_what: str
    total: int
    by_number: Mapping[int, Sequence[str]]
    # The second page as some other clients ask for it.
    by_other_name: Mapping[str, Sequence[str]]


def judge_list(reply: NovitaReply) -> LiveFinding:
    rows = rows_of(reply, "instances")
    if rows is None or reply.body is None:
        return assumptions.LIST.differs(unread(reply))
    total = whole(reply.body, "total")
    readable = sum(bool(text(row, "id")) for row in rows)
    seen = f"{len(rows)} rows, total {'missing' if total is None else total}"
    return assumptions.LIST.judged(total is not None and readable == len(rows), seen)


def judge_long_pages(long: NovitaReply, ordinary: NovitaReply) -> LiveFinding:
    """Compare a page of 1,000 with one of 100."""
    rows, usual = rows_of(long, "instances"), rows_of(ordinary, "instances")
    if rows is None:
        return assumptions.LONG_PAGES.differs(unread(long))
    if usual is not None and len(rows) < len(usual):
        return assumptions.LONG_PAGES.differs(f"{len(rows)} rows where a page of 100 has {len(usual)}")
    return assumptions.LONG_PAGES.holds(f"HTTP {long.status}, {len(rows)} rows")


def judge_page_parameter(pages: NumberedPages) -> LiveFinding:
    """Tell from pages of one row which name moves on to the second."""
    if pages.total < 2:
        return assumptions.PAGE_PARAMETER.not_seen(f"the account has fewer than 2 {pages.of_what}")
    first, second, zeroth = (pages.by_number.get(number, ()) for number in (1, 2, 0))
    where = f"on {pages.of_what}"
    if first and second and first != second:
        base = "0 and 1 are the first" if zeroth == first else "1 is the first"
        if zeroth and zeroth not in (first, second):
            base = "0 is the first"
        return assumptions.PAGE_PARAMETER.holds(f"`pageNum` works {where}; {base}", base=base)
    if zeroth and first and zeroth != first:
        return assumptions.PAGE_PARAMETER.holds(f"`pageNum` works {where}; 0 is the first", base="0")
    other = next((name for name, ids in pages.by_other_name.items() if ids and ids != first), None)
    seen = f"`pageNum` has no effect {where}" + (f", but `{other}` has" if other else "")
    return assumptions.PAGE_PARAMETER.differs(seen, parameter=other)


def judge_unknown_machine(reply: NovitaReply) -> LiveFinding:
    error = novita_failures.failure_of_read(reply, ResourceKind.MACHINE)
    return assumptions.NO_MACHINE.judged(isinstance(error, MachineGone), unread(reply), status=reply.status)


def ids_of(reply: NovitaReply, key: str, name: str) -> tuple[str, ...]:
    """Return the ids on a page, to compare pages with."""
    return tuple(text(row, name) for row in rows_of(reply, key) or ())


def running_id(rows: Sequence[dict[str, Any]]) -> str | None:
    """Return some machine that runs, to read metrics of."""
    return next((text(row, "id") for row in rows if text(row, "status") == "running"), None)
