"""The instance endpoints of Novita's v1 API."""

from __future__ import annotations

from dataclasses import replace

from gpuherd.simulator.catalogue import DISK_GB_MAX
from gpuherd.simulator.create_request import (
    PORTS_AND_TOOLS_MAX,
    PROTOCOLS,
    CreateRequest,
    Port,
    read_create_request,
    read_envs,
)
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.front_desk import FrontDesk
from gpuherd.simulator.listing import Snapshot, read_list_query
from gpuherd.simulator.routes import Route, Values
from gpuherd.simulator.shapes import Json, instance_shape


async def create(desk: FrontDesk, body: Values) -> Json:
    return {"id": await desk.create(read_create_request(body))}


async def list_instances(desk: FrontDesk, query: Values) -> Json:
    page = await desk.list_machines(read_list_query(query))
    return {"instances": [_shape(desk, row, with_secrets=False) for row in page.rows], "total": page.total}


async def get(desk: FrontDesk, query: Values) -> Json:
    return _shape(desk, await desk.get(_instance_id(query)), with_secrets=True)


async def start(desk: FrontDesk, body: Values) -> Json:
    instance_id = _instance_id(body)
    return {"instanceId": instance_id, "state": await desk.start(instance_id)}


async def stop(desk: FrontDesk, body: Values) -> Json:
    instance_id = _instance_id(body)
    return {"instanceId": instance_id, "state": await desk.stop(instance_id)}


async def restart(desk: FrontDesk, body: Values) -> Json:
    instance_id = _instance_id(body)
    return {"instanceId": instance_id, "state": await desk.restart(instance_id)}


async def delete(desk: FrontDesk, body: Values) -> Json:
    await desk.delete(_instance_id(body))
    return {}


async def edit(desk: FrontDesk, body: Values) -> Json:
    fields = Fields(body)
    # A string on create, objects here.
    ports = [
        Port(port.whole("port", low=1, high=65535), port.one_of("type", PROTOCOLS, ""))
        for port in fields.items("ports", most=PORTS_AND_TOOLS_MAX)
    ]
    add_disk_gb = fields.whole("expandRootDisk", low=0, high=DISK_GB_MAX, default=0)
    await desk.edit(_instance_id(body), ports if fields.has("ports") else None, add_disk_gb)
    return {}


async def upgrade(desk: FrontDesk, body: Values) -> Json:
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

    await desk.upgrade(_instance_id(body), change)
    return {}


async def migrate(desk: FrontDesk, body: Values) -> Json:
    return {"jobId": await desk.migrate(_instance_id(body))}


async def set_auto_migrate(desk: FrontDesk, body: Values) -> Json:
    await desk.set_auto_migrate(_instance_id(body), is_open=Fields(body).flag("autoMigrateOpen"))
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


def _instance_id(values: Values) -> str:
    return Fields(values).text("instanceId", shortest=1)


def _shape(desk: FrontDesk, snapshot: Snapshot, *, with_secrets: bool) -> Json:
    return instance_shape(snapshot, desk.world.catalogue, desk.world.addresses, with_secrets=with_secrets)
