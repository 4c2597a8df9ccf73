"""The endpoints of Novita's v1 API for image prewarm tasks."""

from __future__ import annotations

from gpuherd.simulator.api.routes import Route, Values
from gpuherd.simulator.api.shapes import Json
from gpuherd.simulator.calls import ApiEndpoint, Call
from gpuherd.simulator.catalogue import CloudCatalogue
from gpuherd.simulator.errors import invalid
from gpuherd.simulator.fault_injection import ask, carry_out
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.views.listing import read_paging
from gpuherd.simulator.world.prewarms import STATES, PrewarmRequest, PrewarmTask
from gpuherd.simulator.world.world import World

IDS_MAX = 100


async def list_prewarms(world: World, query: Values) -> Json:
    fields, now = Fields(query), world.now()
    paging = read_paging(query, "page")
    state, cluster_id = fields.one_of("state", ("", *STATES), ""), fields.text("clusterId")
    name = fields.text("name").casefold()
    matching = [
        task
        for task in await ask(world, ApiEndpoint.PREWARMS, world.prewarms.listed)
        if (not state or task.state(now) == state)
        and cluster_id in ("", task.cluster_id)
        and (name in task.image_name.casefold() or name in task.note.casefold())
    ]
    shown = [prewarm_shape(task, now, world.catalogue) for task in paging.cut(matching)]
    return {"data": shown, "total": len(matching)}


async def prewarm_quota(world: World, _: Values) -> Json:
    kept = world.prewarms
    used = len(await ask(world, ApiEndpoint.PREWARM_QUOTA, kept.listed))
    return {"total": used, "limit": kept.tasks_max, "perImageSize": kept.image_gb_max}


async def create_prewarm(world: World, body: Values) -> Json:
    fields = Fields(body)
    request = PrewarmRequest(
        image_url=fields.text("imageUrl", shortest=1, longest=500),
        cluster_id=fields.text("clusterId", shortest=1),
        auth_id=fields.text("repositoryAuth"),
        product_ids=tuple(fields.texts("productIds", most=IDS_MAX)),
        note=fields.text("note"),
    )
    # Faults choose it by its image, as they choose machines by their name.
    call = Call(ApiEndpoint.PREWARM_CREATE, request.image_url, cluster_id=request.cluster_id)
    return {"id": await carry_out(world, call, lambda: world.prewarm(request, call))}


async def edit_prewarm(world: World, body: Values) -> Json:
    fields = Fields(body)
    task_id, note = fields.text("id", shortest=1), fields.text("note")
    await ask(world, ApiEndpoint.PREWARM_EDIT, lambda: world.prewarms.change_note(task_id, note))
    return {}


async def delete_prewarms(world: World, body: Values) -> Json:
    task_ids = Fields(body).texts("ids", most=IDS_MAX)
    if not task_ids:
        raise invalid("ids", "must not be empty")
    await ask(world, ApiEndpoint.PREWARM_DELETE, lambda: world.prewarms.delete(task_ids))
    return {}


def prewarm_shape(task: PrewarmTask, now: float, catalogue: CloudCatalogue) -> Json:
    cluster = catalogue.cluster(task.cluster_id)
    products = [(each, catalogue.product(each)) for each in task.product_ids]
    done_at = task.done_at if task.is_done(now) else None
    return {
        "id": task.id,
        "imageName": task.image_name,
        "imageUrl": task.image_url,
        "repositoryAuth": task.auth_id,
        "clusterId": task.cluster_id,
        "clusterName": cluster.label if cluster else "",
        "products": [
            {"productId": product_id, "productName": product.name if product else ""}
            for product_id, product in products
        ],
        # In bytes; nobody knows it before the image is there.
        "imageSize": str(task.size_bytes) if done_at is not None and not task.failure else "0",
        "createTime": str(int(task.created_at)),
        "state": task.state(now),
        "completeTime": "0" if done_at is None else str(int(done_at)),
        "note": task.note,
        "reason": task.reasons(now),
    }


PREWARM_ROUTES = (
    Route("GET", "/image/prewarm", list_prewarms),
    Route("GET", "/image/prewarm/quota", prewarm_quota),
    Route("POST", "/image/prewarm", create_prewarm),
    Route("POST", "/image/prewarm/edit", edit_prewarm),
    Route("POST", "/image/prewarm/delete", delete_prewarms),
)
