"""The instance endpoints of Novita's v1 API."""

from __future__ import annotations

from dataclasses import replace

from gpuherd.simulator.api.routes import Route, Values
from gpuherd.simulator.api.shapes import Json, instance_shape
from gpuherd.simulator.catalogue import DISK_GB_MAX
from gpuherd.simulator.create_request import (
    PORTS_AND_TOOLS_MAX,
    PROTOCOLS,
    CreateRequest,
    ExposedPort,
    read_create_request,
    read_envs,
)
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.operations import CloudOperations
from gpuherd.simulator.views.listing import Snapshot, read_list_query


async def create(operations: CloudOperations, body: Values) -> Json:
    return {"id": await operations.create(read_create_request(body))}


async def list_instances(operations: CloudOperations, query: Values) -> Json:
    page = await operations.list_machines(read_list_query(query))
    return {
        "instances": [_shape(operations, row, with_secrets=False) for row in page.rows],
        "total": page.total,
    }


async def get(operations: CloudOperations, query: Values) -> Json:
    return _shape(operations, await operations.get(_instance_id(query)), with_secrets=True)


async def start(operations: CloudOperations, body: Values) -> Json:
    instance_id = _instance_id(body)
    return {"instanceId": instance_id, "state": await operations.start(instance_id)}


async def stop(operations: CloudOperations, body: Values) -> Json:
    instance_id = _instance_id(body)
    return {"instanceId": instance_id, "state": await operations.stop(instance_id)}


async def restart(operations: CloudOperations, body: Values) -> Json:
    instance_id = _instance_id(body)
    return {"instanceId": instance_id, "state": await operations.restart(instance_id)}


async def delete(operations: CloudOperations, body: Values) -> Json:
    await operations.delete(_instance_id(body))
    return {}


async def edit(operations: CloudOperations, body: Values) -> Json:
    fields = Fields(body)
    # A string on create, objects here.
    ports = [
        ExposedPort(port.whole("port", low=1, high=65535), port.one_of("type", PROTOCOLS, ""))
        for port in fields.items("ports", most=PORTS_AND_TOOLS_MAX)
    ]
    add_disk_gb = fields.whole("expandRootDisk", low=0, high=DISK_GB_MAX, default=0)
    await operations.edit(_instance_id(body), ports if fields.has("ports") else None, add_disk_gb)
    return {}


async def upgrade(operations: CloudOperations, body: Values) -> Json:
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

    await operations.upgrade(_instance_id(body), change)
    return {}


async def migrate(operations: CloudOperations, body: Values) -> Json:
    return {"jobId": await operations.migrate(_instance_id(body))}


async def set_auto_migrate(operations: CloudOperations, body: Values) -> Json:
    await operations.set_auto_migrate(_instance_id(body), is_open=Fields(body).flag("autoMigrateOpen"))
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
    return Fields(values).known_id("instanceId")


def _shape(operations: CloudOperations, snapshot: Snapshot, *, with_secrets: bool) -> Json:
    return instance_shape(
        snapshot, operations.world.catalogue, operations.world.addresses, with_secrets=with_secrets
    )
