"""Routes of the catalogue: products, templates, regions, volumes, prewarms."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.catalogue_models import PrewarmBody, VolumeBody
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.cloud.template import PrewarmState
from gpuherd.domain.instance.offer_ranking import offers_named
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.http.openapi_document import takes
from gpuherd.entrypoints.http_auth import acting_caller
from gpuherd.entrypoints.list_queries import (
    Query,
    choice,
    described,
    text,
)
from gpuherd.entrypoints.problem_response import parsed
from gpuherd.entrypoints.use_case_access import json_reply, plane_of
from gpuherd.usecases.cloud import manage_volumes, prewarm_images
from gpuherd.usecases.views.money_view import describe_volume, describe_volumes
from gpuherd.usecases.views.service_view import (
    describe_prewarm,
    describe_prewarms,
    describe_products,
    describe_regions,
    describe_registry_auths,
    describe_template,
    describe_templates,
)

catalogue_router = APIRouter(prefix="/api", tags=["catalogue"])
PRODUCT_NAME, BILLING_MODE = text("productName"), choice("billingMode", BillingMode)


@catalogue_router.get("/products", openapi_extra=described((PRODUCT_NAME, BILLING_MODE)))
async def products(request: Request) -> Response:
    """List products with their price in each region. Filters: `productName`, `billingMode` (spot)."""
    query = Query(request)
    name = query(PRODUCT_NAME)
    mode = query(BILLING_MODE) or BillingMode.SPOT
    query.done()
    offers = await plane_of(request).catalogue.offers(mode)
    found = offers if name is None else offers_named(offers, name)
    return json_reply(describe_products(found, mode))


@catalogue_router.get("/templates")
async def templates(request: Request) -> Response:
    """List the templates that the Novita key may use."""
    return json_reply(describe_templates(await plane_of(request).catalogue.templates()))


@catalogue_router.get("/templates/{template_id}")
async def template(template_id: str, request: Request) -> Response:
    """Return one template; `problem` says why no machine can be started from it, if so."""
    return json_reply(describe_template(await plane_of(request).catalogue.find_template(template_id)))


@catalogue_router.get("/regions")
async def regions(request: Request) -> Response:
    """List the regions with code, label and cluster id."""
    return json_reply(describe_regions(await plane_of(request).catalogue.regions()))


registry_router = APIRouter(prefix="/api/registry-auths", tags=["registry"])


@registry_router.get("")
async def list_registry_auths(request: Request) -> Response:
    """List the account's registry credentials by name, without their passwords."""
    return json_reply(
        describe_registry_auths(await plane_of(request).services.credentials.list_credentials())
    )


prewarm_router = APIRouter(prefix="/api/prewarms", tags=["prewarms"])
STATE, REGION = choice("state", PrewarmState), text("region")


@prewarm_router.get("", openapi_extra=described((STATE, REGION)))
async def list_prewarms(request: Request) -> Response:
    """List the account's prewarm tasks, newest first, with the quota. Filters: `state`, `region`."""
    query = Query(request)
    state, region = query(STATE), query(REGION)
    query.only((STATE, REGION))
    query.done()
    found = await prewarm_images.list_prewarms(plane_of(request).services, state, region)
    return json_reply(describe_prewarms(found.tasks, found.quota))


@prewarm_router.post("", status_code=201, openapi_extra=takes(PrewarmBody))
async def create_prewarms(request: Request) -> Response:
    """Pull an image into a region ahead of time. Machines there, and with these products, start sooner."""
    plane, caller = plane_of(request), acting_caller(request)
    body = await parsed(PrewarmBody, await read_object(request), plane, caller)
    wanted = prewarm_images.PrewarmSpec(
        body.image_url, body.region, body.registry_auth_id or "", body.products or (), body.note or ""
    )
    made = await prewarm_images.create_prewarm(plane.services, wanted, caller)
    return json_reply(describe_prewarm(made), status=201)


@prewarm_router.delete("/{prewarm_id}")
async def delete_prewarms(prewarm_id: str, request: Request) -> Response:
    """Delete a prewarm task, which makes room for another; machines that run are not touched."""
    services, caller = plane_of(request).services, acting_caller(request)
    return json_reply(await prewarm_images.delete_prewarm(services, prewarm_id, caller))


volume_router = APIRouter(prefix="/api/volumes", tags=["volumes"])


@volume_router.get("")
async def list_volumes(request: Request) -> Response:
    """List the account's network volumes by name, with region and price."""
    return json_reply(describe_volumes(await manage_volumes.list_volumes(plane_of(request).services)))


@volume_router.post("", status_code=201, openapi_extra=takes(VolumeBody))
async def create_volumes(request: Request) -> Response:
    """Make a network volume. It costs money until it is deleted, mounted or not; its name must be free."""
    plane, caller = plane_of(request), acting_caller(request)
    body = await parsed(VolumeBody, await read_object(request), plane, caller)
    made = await manage_volumes.create_volume(
        plane.services, manage_volumes.VolumeRequest(body.name, body.region, body.size_gb), caller
    )
    return json_reply(describe_volume(made), status=201)


@volume_router.delete("/{volume_id}")
async def delete_volumes(volume_id: str, request: Request) -> Response:
    """Delete a network volume with all its data; not while a machine has it."""
    services, caller = plane_of(request).services, acting_caller(request)
    return json_reply(await manage_volumes.delete_volume(services, volume_id, caller))
