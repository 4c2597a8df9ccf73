"""The instance endpoints of Novita's v1 API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpuherd.simulator.api.routes import Route, Values
from gpuherd.simulator.api.shapes import Json, instance_shape
from gpuherd.simulator.calls import ApiEndpoint, Call
from gpuherd.simulator.catalogue import DISK_GB_MAX
from gpuherd.simulator.create_request import (
    PORTS_AND_TOOLS_MAX,
    PROTOCOLS,
    CreateRequest,
    ExposedPort,
    read_create_request,
    read_envs,
)
from gpuherd.simulator.fault_injection import ask_about, carry_out
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.views.listing import Snapshot, list_machines, read_list_query, show_machine
from gpuherd.simulator.world.machine import SimulatedMachine
from gpuherd.simulator.world.world import World


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
