"""`/api/products`, `/api/templates`, `/api/regions`: what can be rented, and what can run on it."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.instance.offer_ranking import offers_named
from gpuherd.entrypoints.query import Query, choice, described, text
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.usecases.describe.catalogue import (
    describe_products,
    describe_regions,
    describe_template,
    describe_templates,
)

router = APIRouter(prefix="/api", tags=["catalogue"])

PRODUCT_NAME, BILLING_MODE = text("productName"), choice("billingMode", BillingMode)


@router.get("/products", openapi_extra=described((PRODUCT_NAME, BILLING_MODE)))
async def products(request: Request) -> Response:
    """List products with their price in each region. Filters: `productName`, `billingMode` (spot)."""
    query = Query(request)
    name = query(PRODUCT_NAME)
    mode = query(BILLING_MODE) or BillingMode.SPOT
    query.done()
    offers = await plane_of(request).catalogue.offers(mode)
    found = offers if name is None else offers_named(offers, name)
    return json_reply(describe_products(found, mode))


@router.get("/templates")
async def templates(request: Request) -> Response:
    """List the templates that the Novita key may use."""
    return json_reply(describe_templates(await plane_of(request).catalogue.templates()))


@router.get("/templates/{template_id}")
async def template(template_id: str, request: Request) -> Response:
    """Return one template; `problem` says why no machine can be started from it, if so."""
    return json_reply(describe_template(await plane_of(request).catalogue.find_template(template_id)))


@router.get("/regions")
async def regions(request: Request) -> Response:
    """List the regions with code, label and cluster id."""
    return json_reply(describe_regions(await plane_of(request).catalogue.regions()))
