"""`/api/budgets`: how much may be spent, and what happens when that is used up."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.entrypoints.schemas.budgets import BudgetBody, BudgetChangeBody
from gpuherd.entrypoints.schemas.openapi import takes

router = APIRouter(prefix="/api/budgets", tags=["budgets"])


@router.get("")
async def list_budgets(request: Request) -> Response:
    """List the budgets by name, with what is spent of each."""
    return json_reply(await plane_of(request).budgets.read.all())


@router.post("", status_code=201, openapi_extra=takes(BudgetBody))
async def add(request: Request) -> Response:
    """Make a budget. What its period has cost already counts."""
    services = plane_of(request).budgets
    wanted = BudgetBody.parse(await read_object(request)).to_request()
    made = await services.add(wanted, acting_caller(request))
    body = await services.read.shown(made)
    return json_reply(body, status=201, headers={"Location": f"/api/budgets/{made.id}"})


@router.get("/{id_or_name}")
async def show(id_or_name: str, request: Request) -> Response:
    """Return one budget, by its id or name."""
    return json_reply(await plane_of(request).budgets.read.one(id_or_name))


@router.patch("/{id_or_name}", openapi_extra=takes(BudgetChangeBody))
async def change(id_or_name: str, request: Request) -> Response:
    """Change a budget. One that is used up is free again as soon as its amount is raised enough."""
    services = plane_of(request).budgets
    values = BudgetChangeBody.parse(await read_object(request)).to_values()
    return json_reply(
        await services.read.shown(await services.change(id_or_name, values, acting_caller(request)))
    )


@router.delete("/{id_or_name}")
async def remove(id_or_name: str, request: Request) -> Response:
    """Remove a budget. What it has ended stays ended."""
    return json_reply(await plane_of(request).budgets.remove(id_or_name, acting_caller(request)))
