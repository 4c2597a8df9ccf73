"""What a caller sees of the machines: one of them, or a page of the list, true unless a fault lies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from gpuherd.simulator.calls import ApiEndpoint, Call
from gpuherd.simulator.faults.fault import FaultKind
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.world.machine import SimulatedMachine
from gpuherd.simulator.world.state import WorldState

T = TypeVar("T")

PAGE_SIZE = 10
PAGE_SIZE_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Paging:
    """Which page is wanted; 0 and 1 both mean the first."""

    size: int = PAGE_SIZE
    number: int = 0

    @property
    def offset(self) -> int:
        return max(0, self.number - 1) * self.size

    def cut(self, rows: Sequence[T]) -> Sequence[T]:
        return rows[self.offset : self.offset + self.size]


FIRST_PAGE = Paging()


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Which machines are wanted; the name filters are fuzzy, as upstream."""

    paging: Paging = FIRST_PAGE
    name: str = ""
    product_name: str = ""
    status: str = ""

    @property
    def wants_all(self) -> bool:
        return not (self.name or self.product_name or self.status)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One machine as it was shown at one moment; `status` is what was shown, true or not."""

    machine: SimulatedMachine
    at: float
    status: str


@dataclass(frozen=True, slots=True)
class MachinePage:
    """One page of the list and how many rows all pages are said to have."""

    rows: tuple[Snapshot, ...]
    total: int


def read_paging(query: Mapping[str, object], number: str = "pageNum") -> Paging:
    """Read which page is wanted; some calls spell its `number` in their own way."""
    fields = Fields(query)
    return Paging(
        size=fields.whole("pageSize", low=0, high=PAGE_SIZE_MAX, default=PAGE_SIZE) or PAGE_SIZE,
        number=fields.whole(number, low=0, high=10**9, default=0),
    )


def read_list_query(query: Mapping[str, object]) -> ListQuery:
    """Read the filters; names that Novita does not know (`page`, `pageNumber`) have no effect, as there."""
    fields = Fields(query)
    return ListQuery(
        read_paging(query), fields.text("name"), fields.text("productName"), fields.text("status")
    )


def show_machine(state: WorldState, machine_id: str) -> Snapshot:
    """Return one machine as a get shows it."""
    machine = state.find(machine_id)
    return _snapshot(state, machine, ApiEndpoint.GET)


def list_machines(state: WorldState, query: ListQuery) -> MachinePage:
    """Return a page, newest first; only the rows of this page are looked at closely."""
    call = Call(ApiEndpoint.LIST, name=query.name)
    if state.faults.draw(FaultKind.EMPTY_LIST, call):
        return MachinePage((), 0)
    paging = query.paging
    if state.page_size_max is not None:
        paging = replace(paging, size=min(paging.size, state.page_size_max))
    offset, size = paging.offset, paging.size
    fault = state.faults.draw(FaultKind.PARTIAL_LIST, call)
    style = fault.chosen_style if fault else ""
    if style == "duplicated_page":
        offset = max(0, offset - size)
    matching, total = _matching(state, query)
    rows = list(islice(matching, offset, offset + size))
    match style:
        case "missing_page":
            rows = []
        case "wrong_total":
            total += 1
        case "short_page":
            rows = rows[: len(rows) // 2]
    return MachinePage(tuple(_snapshot(state, machine, ApiEndpoint.LIST) for machine in rows), total)


def _matching(state: WorldState, query: ListQuery) -> tuple[Iterable[SimulatedMachine], int]:
    """Return what the query wants, newest first, and how many that are."""
    everything, now = state.newest_first(), state.now()
    if query.wants_all and state.all_listed_at <= now:
        # The usual case, and with ten thousand machines it matters: nothing needs to be looked at.
        return everything, len(state.listed)
    name, product_name = query.name.casefold(), query.product_name.casefold()
    matching = [
        machine
        for machine in everything
        if machine.unlisted_until <= now
        and (not name or name in machine.name.casefold())
        and (not product_name or product_name in machine.product_name.casefold())
        and (not query.status or machine.status(now) == query.status)
    ]
    return matching, len(matching)


def _snapshot(state: WorldState, machine: SimulatedMachine, endpoint: ApiEndpoint) -> Snapshot:
    now = state.now()
    status = machine.status(now)
    if state.faults.armed:
        call = state.call_about(endpoint, machine)
        fault = state.faults.draw(FaultKind.UNKNOWN_STATUS, call)
        if fault is None and status == "running":
            fault = state.faults.draw(FaultKind.STATUS_FLAP, call)
        status = fault.chosen_style if fault else status
    return Snapshot(machine, now, status)
