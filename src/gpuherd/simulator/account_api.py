"""Novita's API for the account: catalogue, templates, registry, jobs, volumes, prewarms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuherd.simulator.fault_effects import ask, carry_out
from gpuherd.simulator.faults import ApiEndpoint, Call
from gpuherd.simulator.instance_api import Route, Values, read_paging
from gpuherd.simulator.novita_shapes import (
    Json,
    cluster_shape,
    cpu_product_shape,
    job_shape,
    prewarm_shape,
    product_shape,
    registry_auth_shape,
    template_shape,
    volume_shape,
)
from gpuherd.simulator.simulated_account import SIZE_GB_MAX, STATES, PrewarmRequest
from gpuherd.simulator.simulated_catalogue import (
    DISK_GB_MAX,
    Cluster,
    Product,
    ProductOnSale,
)
from gpuherd.simulator.simulated_request import BILLING_MODES, Fields, invalid
from gpuherd.simulator.world import World
from gpuherd.simulator.world_state import WorldState


@dataclass(frozen=True, slots=True)
class ProductQuery:
    """The requested products; empty means any."""

    cluster_id: str = ""
    product_name: str = ""
    gpu_num: int = 0
    min_cpu_per_gpu: int = 0
    min_memory_gb_per_gpu: int = 0
    min_disk_gb: int = 0
    billing_method: str = "onDemand"


def read_product_query(query: Mapping[str, object]) -> ProductQuery:
    fields = Fields(query)
    return ProductQuery(
        cluster_id=fields.text("clusterId"),
        product_name=fields.text("productName"),
        gpu_num=fields.whole("gpuNum", low=0, high=8, default=0),
        min_cpu_per_gpu=fields.whole("minCpuPerGpu", low=0, high=10_000, default=0),
        min_memory_gb_per_gpu=fields.whole("minMemoryPerGpu", low=0, high=100_000, default=0),
        min_disk_gb=fields.whole("minRootFSSize", low=0, high=10**9, default=0),
        billing_method=fields.one_of("billingMethod", BILLING_MODES, "onDemand"),
    )


def products_on_sale(state: WorldState, query: ProductQuery) -> list[ProductOnSale]:
    """Return the matching products, also sold-out ones."""
    return [_on_sale(state, product, query) for product in state.catalogue.products if _fits(product, query)]


def gpu_names(state: WorldState, cluster: Cluster) -> list[str]:
    """Return the names of the GPUs of a cluster."""
    return sorted({product.name for product in state.catalogue.products if cluster.id in product.cluster_ids})


def _on_sale(state: WorldState, product: Product, query: ProductQuery) -> ProductOnSale:
    clusters = (query.cluster_id,) if query.cluster_id else product.cluster_ids
    free = [state.free_units(product.id, cluster_id) for cluster_id in clusters]
    enough = any(units >= max(1, query.gpu_num) for units in free)
    return ProductOnSale(product, sum(free), enough)


def _fits(product: Product, query: ProductQuery) -> bool:
    return (
        (not query.cluster_id or query.cluster_id in product.cluster_ids)
        and query.product_name.casefold() in product.name.casefold()
        and product.cpu_per_gpu >= query.min_cpu_per_gpu
        and product.memory_gb_per_gpu >= query.min_memory_gb_per_gpu
        and query.min_disk_gb <= DISK_GB_MAX
        and query.billing_method in product.billing_methods
    )


async def list_clusters(world: World, _: Values) -> Json:
    clusters = world.catalogue.clusters
    shown = await ask(
        world, ApiEndpoint.CLUSTERS, lambda: [(each, gpu_names(world, each)) for each in clusters]
    )
    return {"data": [cluster_shape(cluster, names) for cluster, names in shown]}


async def list_products(world: World, query: Values) -> Json:
    wanted = read_product_query(query)
    on_sale = await ask(world, ApiEndpoint.PRODUCTS, lambda: products_on_sale(world, wanted))
    return {"data": [product_shape(each, world.catalogue) for each in on_sale]}


async def list_cpu_products(world: World, query: Values) -> Json:
    fields = Fields(query)
    cluster_id, name = fields.text("clusterId"), fields.text("productName").casefold()
    products = await ask(world, ApiEndpoint.CPU_PRODUCTS, lambda: world.catalogue.cpu_products)
    return {
        "data": [
            cpu_product_shape(product)
            for product in products
            if (not cluster_id or cluster_id in product.cluster_ids) and name in product.name.casefold()
        ]
    }


CATALOGUE_ROUTES = (
    Route("GET", "/clusters", list_clusters),
    Route("GET", "/products", list_products),
    Route("GET", "/cpu/products", list_cpu_products),
)


async def list_templates(world: World, query: Values) -> Json:
    """Return one page of templates, newest first."""
    fields, paging = Fields(query), read_paging(query)
    name = fields.text("name").casefold()
    # Some clients send several channels joined by commas, some send none.
    channels = tuple(filter(None, fields.text("channel").split(",")))
    templates = await ask(world, ApiEndpoint.TEMPLATES, lambda: [*reversed(world.account.templates.values())])
    matching = [
        template
        for template in templates
        if name in template.name.casefold() and (not channels or template.channel in channels)
    ]
    return {
        "template": [template_shape(template) for template in paging.cut(matching)],
        "pageSize": paging.size,
        "pageNum": paging.number,
        "total": len(matching),
    }


async def get_template(world: World, query: Values) -> Json:
    template_id = Fields(query).known_id("templateId")
    template = await ask(world, ApiEndpoint.TEMPLATE, lambda: world.account.template(template_id))
    return {"template": template_shape(template)}


async def create_template(world: World, body: Values) -> Json:
    template, now = Fields(body).item("template"), world.now()
    made = await ask(world, ApiEndpoint.TEMPLATE_CREATE, lambda: world.account.add_template(template, now))
    return {"templateId": made}


async def update_template(world: World, body: Values) -> Json:
    template = Fields(body).item("template")
    changed = await ask(world, ApiEndpoint.TEMPLATE_UPDATE, lambda: world.account.change_template(template))
    return {"templateId": changed}


async def delete_template(world: World, body: Values) -> Json:
    template_id = Fields(body).text("templateId")
    gone = await ask(world, ApiEndpoint.TEMPLATE_DELETE, lambda: world.account.remove_template(template_id))
    return {"templateId": gone}


async def list_registry_auths(world: World, _: Values) -> Json:
    auths = await ask(world, ApiEndpoint.REGISTRY_AUTHS, lambda: [*world.account.registry_auths.values()])
    return {"data": [registry_auth_shape(auth) for auth in auths]}


async def save_registry_auth(world: World, body: Values) -> Json:
    fields = Fields(body)
    name = fields.text("name", shortest=1)
    username = fields.text("username", shortest=1, longest=511)
    password = fields.text("password", shortest=1, longest=1024)
    account = world.account
    return {
        "id": await ask(
            world, ApiEndpoint.REGISTRY_SAVE, lambda: account.save_registry_auth(name, username, password)
        )
    }


async def delete_registry_auth(world: World, body: Values) -> Json:
    auth_id = Fields(body).text("id", shortest=1)
    in_use = any(machine.request.image_auth_id == auth_id for machine in world.alive())
    account = world.account
    await ask(
        world, ApiEndpoint.REGISTRY_DELETE, lambda: account.remove_registry_auth(auth_id, in_use=in_use)
    )
    return {}


async def list_jobs(world: World, query: Values) -> Json:
    fields, paging = Fields(query), read_paging(query)
    job_id, state, kind = fields.text("jobId"), fields.text("state"), fields.text("type")
    now = world.now()
    jobs = [
        job
        for job in await ask(world, ApiEndpoint.JOBS, lambda: [*reversed(world.account.jobs)])
        if (not job_id or job.id == job_id)
        and (not state or job.state(now) == state)
        and (not kind or job.kind == kind)
    ]
    return {"jobs": [job_shape(job, now) for job in paging.cut(jobs)], "total": len(jobs)}


async def list_networks(world: World, _: Values) -> Json:
    """Return an empty list: the account has no networks."""
    await ask(world, ApiEndpoint.NETWORKS, lambda: None)
    return {"networks": [], "total": 0}


ACCOUNT_ROUTES = (
    Route("GET", "/templates", list_templates),
    Route("GET", "/template", get_template),
    Route("POST", "/template/create", create_template),
    Route("POST", "/template/update", update_template),
    Route("POST", "/template/delete", delete_template),
    Route("GET", "/repository/auths", list_registry_auths),
    Route("POST", "/repository/auth/save", save_registry_auth),
    Route("POST", "/repository/auth/delete", delete_registry_auth),
    Route("GET", "/jobs", list_jobs),
    Route("GET", "/networks", list_networks),
)


async def list_volumes(world: World, query: Values) -> Json:
    fields = Fields(query)
    paging = read_paging(query, "pageNo")
    name, volume_id = fields.text("storageName").casefold(), fields.text("storageId")
    matching = [
        volume
        for volume in await ask(world, ApiEndpoint.NETWORK_STORAGES, world.volumes.listed)
        if name in volume.name.casefold() and volume_id in ("", volume.id)
    ]
    shown = [volume_shape(volume, world.catalogue) for volume in paging.cut(matching)]
    return {"data": shown, "total": len(matching)}


async def create_volume(world: World, body: Values) -> Json:
    fields = Fields(body)
    name, cluster_id = fields.text("storageName", shortest=1), fields.text("clusterId", shortest=1)
    size_gb = fields.whole("storageSize", low=0, high=10 * SIZE_GB_MAX)
    volume = await ask(
        world,
        ApiEndpoint.NETWORK_STORAGE_CREATE,
        lambda: world.volumes.create(name, cluster_id, size_gb, world.now()),
    )
    return volume_shape(volume, world.catalogue)


async def update_volume(world: World, body: Values) -> Json:
    fields = Fields(body)
    volume_id, name = fields.text("storageId", shortest=1), fields.text("storageName")
    size_gb = fields.whole("storageSize", low=0, high=10 * SIZE_GB_MAX)
    await ask(
        world,
        ApiEndpoint.NETWORK_STORAGE_UPDATE,
        lambda: world.volumes.change(volume_id, name, size_gb, world.now()),
    )
    return {}


async def delete_volume(world: World, body: Values) -> Json:
    volume_id = Fields(body).text("storageId", shortest=1)
    await ask(
        world,
        ApiEndpoint.NETWORK_STORAGE_DELETE,
        lambda: world.volumes.delete(volume_id, world.now(), world.mounted_volumes()),
    )
    return {}


VOLUME_ROUTES = (
    Route("GET", "/networkstorages/list", list_volumes),
    Route("POST", "/networkstorage/create", create_volume),
    Route("POST", "/networkstorage/update", update_volume),
    Route("POST", "/networkstorage/delete", delete_volume),
)


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
    # Faults select it by its image, as they select machines by name.
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


PREWARM_ROUTES = (
    Route("GET", "/image/prewarm", list_prewarms),
    Route("GET", "/image/prewarm/quota", prewarm_quota),
    Route("POST", "/image/prewarm", create_prewarm),
    Route("POST", "/image/prewarm/edit", edit_prewarm),
    Route("POST", "/image/prewarm/delete", delete_prewarms),
)
