"""Novita's v1 API, over HTTP and in this process: checks the key, reads the call, and words each outcome."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from gpuherd.simulator.api.account import ACCOUNT_ROUTES
from gpuherd.simulator.api.billing import BILLING_ROUTES, HOST_PATH
from gpuherd.simulator.api.instances import INSTANCE_ROUTES
from gpuherd.simulator.api.prewarms import PREWARM_ROUTES
from gpuherd.simulator.api.replies import (
    WireReply,
    error_reply,
    garbage_reply,
    json_reply,
    page_reply,
)
from gpuherd.simulator.api.routes import Route, Values
from gpuherd.simulator.api.shapes import Json, cluster_shape, cpu_product_shape, product_shape
from gpuherd.simulator.api.volumes import VOLUME_ROUTES
from gpuherd.simulator.calls import ApiEndpoint
from gpuherd.simulator.errors import ConnectionCut, GarbageReply, SimulatedError
from gpuherd.simulator.fault_injection import ask
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.views.product_list import gpu_names, products_on_sale, read_product_query
from gpuherd.simulator.world.world import World

BASE_PATH = "/gpu-instance/openapi/v1"
KEY_PREFIX = "sk_"


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

API_ROUTES: Mapping[str, tuple[Route, ...]] = {
    BASE_PATH: (*CATALOGUE_ROUTES, *INSTANCE_ROUTES, *ACCOUNT_ROUTES, *VOLUME_ROUTES, *PREWARM_ROUTES),
    HOST_PATH: BILLING_ROUTES,
}


ROUTES = {(it.method, base + it.path): it for base, routes in API_ROUTES.items() for it in routes}

Exchange = Callable[[str, str, str, "Mapping[str, object] | bytes"], Awaitable[WireReply]]


def exchange(world: World) -> Exchange:
    """Return the API of `world` without a socket: method, path, authorization, query or body in, a reply out.

    A lost reply raises `ConnectionCut`. A call that hangs takes its time on the world's clock.
    """

    async def call(
        method: str, path: str, authorization: str, content: Mapping[str, object] | bytes
    ) -> WireReply:
        route = ROUTES.get((method, path))
        if route is None:
            return page_reply(404, "Not Found")
        try:
            _check_key(authorization)
            values = _read_body(content) if isinstance(content, bytes) else content
            return json_reply(await route.answer(world, values))
        except SimulatedError as error:
            return error_reply(error)
        except GarbageReply as garbage:
            return garbage_reply(garbage)

    return call


def add_api(app: web.Application, world: World) -> None:
    """Let `app` answer Novita's paths."""
    call = exchange(world)

    async def handle(request: web.Request) -> web.StreamResponse:
        content = dict(request.query) if request.method == "GET" else await request.read()
        try:
            reply = await call(
                request.method, request.path, request.headers.get("Authorization", ""), content
            )
        except ConnectionCut:
            return cut(request)
        return await send_reply(request, reply)

    for method, path in ROUTES:
        app.router.add_route(method, path, handle)


def cut(request: web.Request) -> web.Response:
    """Drop the connection without a word; what is returned goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def send_reply(request: web.Request, reply: WireReply) -> web.StreamResponse:
    """Write a reply, or the first half of one that breaks off."""
    if not reply.breaks_off:
        return web_response(reply)
    sent = web.StreamResponse(headers={"Content-Type": reply.content_type})
    sent.content_length = len(reply.body)
    await sent.prepare(request)
    await sent.write(reply.body[: len(reply.body) // 2])
    # Closed and not aborted, so that the first half still gets through.
    if request.transport is not None:
        request.transport.close()
    return sent


def web_response(reply: WireReply) -> web.Response:
    """Return a whole reply as aiohttp sends it."""
    response = web.Response(
        status=reply.status, body=reply.body, content_type=reply.content_type, charset="utf-8"
    )
    response.headers.update(reply.headers)
    return response


def _check_key(authorization: str) -> None:
    scheme, _, key = authorization.partition(" ")
    if scheme.casefold() != "bearer" or not key.strip().startswith(KEY_PREFIX):
        raise SimulatedError(401, "UNAUTHORIZED", "invalid api key")


def _read_body(raw: bytes) -> Values:
    try:
        body = json.loads(raw or b"{}")
    except ValueError:
        raise SimulatedError(400, "REQUEST", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise SimulatedError(400, "REQUEST", "the body is not a JSON object")
    return body
