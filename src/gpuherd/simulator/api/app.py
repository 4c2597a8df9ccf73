"""Novita's v1 API over HTTP: who may ask, how a question is read, and how each outcome goes out."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from gpuherd.simulator.api.account import ACCOUNT_ROUTES
from gpuherd.simulator.api.billing import BILLING_ROUTES, HOST_PATH
from gpuherd.simulator.api.deviations import answer_as, error_as, headers_as, question_as
from gpuherd.simulator.api.instances import INSTANCE_ROUTES
from gpuherd.simulator.api.prewarms import PREWARM_ROUTES
from gpuherd.simulator.api.replies import cut, error_reply, garbage_reply, json_reply
from gpuherd.simulator.api.routes import Route, Values
from gpuherd.simulator.api.shapes import Json, cluster_shape, cpu_product_shape, product_shape
from gpuherd.simulator.api.volumes import VOLUME_ROUTES
from gpuherd.simulator.errors import ConnectionCut, GarbageReply, SimulatedError
from gpuherd.simulator.operations import CloudOperations
from gpuherd.simulator.views.product_list import read_cpu_query, read_product_query

BASE_PATH = "/gpu-instance/openapi/v1"
KEY_PREFIX = "sk_"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def list_clusters(operations: CloudOperations, _: Values) -> Json:
    return {"data": [cluster_shape(cluster, gpu_names) for cluster, gpu_names in await operations.clusters()]}


async def list_products(operations: CloudOperations, query: Values) -> Json:
    on_sale = await operations.products(read_product_query(query))
    return {"data": [product_shape(each, operations.world.catalogue) for each in on_sale]}


async def list_cpu_products(operations: CloudOperations, query: Values) -> Json:
    products = await operations.cpu_products(read_cpu_query(query))
    return {"data": [cpu_product_shape(product) for product in products]}


CATALOGUE_ROUTES = (
    Route("GET", "/clusters", list_clusters),
    Route("GET", "/products", list_products),
    Route("GET", "/cpu/products", list_cpu_products),
)

API_ROUTES: Mapping[str, tuple[Route, ...]] = {
    BASE_PATH: (*CATALOGUE_ROUTES, *INSTANCE_ROUTES, *ACCOUNT_ROUTES, *VOLUME_ROUTES, *PREWARM_ROUTES),
    HOST_PATH: BILLING_ROUTES,
}


def add_api(app: web.Application, operations: CloudOperations) -> None:
    """Let `app` answer Novita's paths from `operations`."""
    for base, routes in API_ROUTES.items():
        for route in routes:
            app.router.add_route(route.method, base + route.path, _handler(operations, route))


async def answered(operations: CloudOperations, route: Route, values: Values) -> Json:
    """Return the answer of a route, as the Novita of today gives it."""
    deviations = operations.world.deviations
    try:
        body = await route.answer(operations, question_as(deviations, route.path, values))
    except SimulatedError as error:
        raise error_as(deviations, error) from None
    return answer_as(deviations, route.path, body)


def _handler(operations: CloudOperations, route: Route) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            _check_key(request)
            reply = json_reply(await answered(operations, route, await _read_values(request)))
            reply.headers.update(headers_as(operations.world.deviations))
            return reply
        except SimulatedError as error:
            return error_reply(error)
        except ConnectionCut:
            return cut(request)
        except GarbageReply as garbage:
            return await garbage_reply(request, garbage)

    return handle


def _check_key(request: web.Request) -> None:
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme.casefold() != "bearer" or not key.strip().startswith(KEY_PREFIX):
        raise SimulatedError(401, "UNAUTHORIZED", "invalid api key")


async def _read_values(request: web.Request) -> Values:
    if request.method == "GET":
        return dict(request.query)
    try:
        body = json.loads(await request.read() or b"{}")
    except ValueError:
        raise SimulatedError(400, "REQUEST", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise SimulatedError(400, "REQUEST", "the body is not a JSON object")
    return body
