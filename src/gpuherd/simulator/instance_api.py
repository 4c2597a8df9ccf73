"""The instance endpoints of Novita's v1 API."""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple, TypeVar

from gpuherd.simulator.fault_effects import ask_about, carry_out
from gpuherd.simulator.faults import ApiEndpoint, Call, FaultKind
from gpuherd.simulator.novita_shapes import Json, instance_shape
from gpuherd.simulator.simulated_catalogue import DISK_GB_MAX
from gpuherd.simulator.simulated_machine import SimulatedMachine, Snapshot
from gpuherd.simulator.simulated_request import (
    PORTS_AND_TOOLS_MAX,
    PROTOCOLS,
    CreateRequest,
    ExposedPort,
    Fields,
    read_create_request,
    read_envs,
)
from gpuherd.simulator.world import World
from gpuherd.simulator.world_state import WorldState

Values = Mapping[str, object]


"""The query of a GET or the JSON object of a POST."""


Answer = Callable[[World, Values], Awaitable[Json]]


class Route(NamedTuple):
    """One endpoint."""

    method: str
    path: str
    answer: Answer


T = TypeVar("T")
PAGE_SIZE = 10
PAGE_SIZE_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Paging:
    """The requested page; 0 and 1 both mean the first."""

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
    """The requested machines; name filters are fuzzy, like Novita's."""

    paging: Paging = FIRST_PAGE
    name: str = ""
    product_name: str = ""
    status: str = ""

    @property
    def wants_all(self) -> bool:
        return not (self.name or self.product_name or self.status)


@dataclass(frozen=True, slots=True)
class MachinePage:
    """One page of the list, and the reported number of all rows."""

    rows: tuple[Snapshot, ...]
    total: int


def read_paging(query: Mapping[str, object], number: str = "pageNum") -> Paging:
    """Parse the requested page; some calls use another name for `number`."""
    fields = Fields(query)
    return Paging(
        size=fields.whole("pageSize", low=0, high=PAGE_SIZE_MAX, default=PAGE_SIZE) or PAGE_SIZE,
        number=fields.whole(number, low=0, high=10**9, default=0),
    )


def read_list_query(query: Mapping[str, object]) -> ListQuery:
    """Parse the filters. Unknown names (`page`, `pageNumber`) have no effect, like at Novita."""
    fields = Fields(query)
    return ListQuery(
        read_paging(query), fields.text("name"), fields.text("productName"), fields.text("status")
    )


def show_machine(state: WorldState, machine_id: str) -> Snapshot:
    """Return one machine as a get shows it."""
    machine = state.find(machine_id)
    return _snapshot(state, machine, ApiEndpoint.GET)


def list_machines(state: WorldState, query: ListQuery) -> MachinePage:
    """Return a page, newest first. Only the rows of this page are built."""
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
    """Return the matching machines, newest first, and their number."""
    everything, now = state.newest_first(), state.now()
    if query.wants_all and state.all_listed_at <= now:
        # The common case. With ten thousand machines it matters that none is examined.
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


async def create(world: World, body: Values) -> Json:
    request = read_create_request(body)
    call = Call(ApiEndpoint.CREATE, request.name, request.product_id, request.cluster_id, request=request)
    return {"id": await carry_out(world, call, lambda: world.create(request))}


async def list_instances(world: World, query: Values) -> Json:
    wanted = read_list_query(query)
    call = Call(ApiEndpoint.LIST, name=wanted.name)
    page = await carry_out(world, call, lambda: list_machines(world, wanted))
    return {"instances": [_shape(world, row, with_secrets=False) for row in page.rows], "total": page.total}


async def get(world: World, query: Values) -> Json:
    machine_id = _instance_id(query)
    shown = await ask_about(world, ApiEndpoint.GET, machine_id, lambda: show_machine(world, machine_id))
    return _shape(world, shown, with_secrets=True)


async def start(world: World, body: Values) -> Json:
    return await _command(world, ApiEndpoint.START, world.start, body)


async def stop(world: World, body: Values) -> Json:
    return await _command(world, ApiEndpoint.STOP, world.stop, body)


async def restart(world: World, body: Values) -> Json:
    return await _command(world, ApiEndpoint.RESTART, world.restart, body)


async def delete(world: World, body: Values) -> Json:
    await _command(world, ApiEndpoint.DELETE, world.delete, body)
    return {}


async def edit(world: World, body: Values) -> Json:
    fields = Fields(body)
    # A string on create, objects here.
    ports = [
        ExposedPort(port.whole("port", low=1, high=65535), port.one_of("type", PROTOCOLS, ""))
        for port in fields.items("ports", most=PORTS_AND_TOOLS_MAX)
    ]
    add_disk_gb = fields.whole("expandRootDisk", low=0, high=DISK_GB_MAX, default=0)
    machine_id = _instance_id(body)
    changed = ports if fields.has("ports") else None
    await ask_about(world, ApiEndpoint.EDIT, machine_id, lambda: world.edit(machine_id, changed, add_disk_gb))
    return {}


async def upgrade(world: World, body: Values) -> Json:
    fields = Fields(body)
    image_url = fields.text("imageUrl", shortest=1, longest=500)
    image_auth_id = fields.text("imageAuthId")
    envs = read_envs(fields)
    command = fields.text("command", longest=2047)
    entrypoint = fields.text("entrypoint", longest=2047)

    def change(request: CreateRequest) -> CreateRequest:
        return replace(
            request,
            image_url=image_url,
            image_auth_id=image_auth_id,
            envs=envs,
            command=command,
            entrypoint=entrypoint,
        )

    machine_id = _instance_id(body)
    await ask_about(world, ApiEndpoint.UPGRADE, machine_id, lambda: world.upgrade(machine_id, change))
    return {}


async def migrate(world: World, body: Values) -> Json:
    machine_id = _instance_id(body)
    return {
        "jobId": await ask_about(world, ApiEndpoint.MIGRATE, machine_id, lambda: world.migrate(machine_id))
    }


async def set_auto_migrate(world: World, body: Values) -> Json:
    machine_id, is_open = _instance_id(body), Fields(body).flag("autoMigrateOpen")
    await ask_about(
        world,
        ApiEndpoint.SET_AUTO_MIGRATE,
        machine_id,
        lambda: world.set_auto_migrate(machine_id, is_open=is_open),
    )
    return {}


INSTANCE_ROUTES = (
    Route("POST", "/gpu/instance/create", create),
    Route("GET", "/gpu/instances", list_instances),
    Route("GET", "/gpu/instance", get),
    Route("POST", "/gpu/instance/start", start),
    Route("POST", "/gpu/instance/stop", stop),
    Route("POST", "/gpu/instance/restart", restart),
    Route("POST", "/gpu/instance/delete", delete),
    Route("POST", "/gpu/instance/edit", edit),
    Route("POST", "/gpu/instance/upgrade", upgrade),
    Route("POST", "/gpu/instance/migrate", migrate),
    Route("POST", "/gpu/instance/setAutoMigrate", set_auto_migrate),
)


async def _command(
    world: World, endpoint: ApiEndpoint, command: Callable[[str], SimulatedMachine], body: Values
) -> Json:
    machine_id = _instance_id(body)
    machine = await ask_about(world, endpoint, machine_id, lambda: command(machine_id))
    return {"instanceId": machine_id, "state": machine.status(world.now())}


def _instance_id(values: Values) -> str:
    return Fields(values).known_id("instanceId")


def _shape(world: World, snapshot: Snapshot, *, with_secrets: bool) -> Json:
    return instance_shape(snapshot, world.catalogue, world.addresses, with_secrets=with_secrets)
