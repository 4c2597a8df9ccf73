"""Novita's v1 API over HTTP: who may ask, how a question is read, and how each outcome goes out."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from gpuherd.simulator.api.account import ACCOUNT_ROUTES
from gpuherd.simulator.api.billing import BILLING_ROUTES, HOST_PATH
from gpuherd.simulator.api.instances import INSTANCE_ROUTES
from gpuherd.simulator.api.replies import cut, error_reply, garbage_reply, json_reply
from gpuherd.simulator.api.routes import Answer, Route, Values
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


def add_api(app: web.Application, operations: CloudOperations) -> None:
    """Let `app` answer Novita's paths from `operations`."""
    for method, path, answer in (*CATALOGUE_ROUTES, *INSTANCE_ROUTES, *ACCOUNT_ROUTES, *VOLUME_ROUTES):
        app.router.add_route(method, BASE_PATH + path, _handler(operations, answer))
    for method, path, answer in BILLING_ROUTES:
        app.router.add_route(method, HOST_PATH + path, _handler(operations, answer))


def _handler(operations: CloudOperations, answer: Answer) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            _check_key(request)
            return json_reply(await answer(operations, await _read_values(request)))
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
