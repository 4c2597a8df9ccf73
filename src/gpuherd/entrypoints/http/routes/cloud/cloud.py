"""`/api/cloud`: what of the cloud is not believed, and the word of an admin who knows better."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.service import CloudTrust
from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.plane import Plane
from gpuherd.entrypoints.replies import json_reply, plane_of

router = APIRouter(prefix="/api/cloud", tags=["cloud"])


@router.get("")
async def show(request: Request) -> Response:
    """Tell whether the account is known to be ours, and whether too many machines are missing at once."""
    return json_reply(await _trust(plane_of(request)))


@router.post("/confirm-account")
async def confirm_account(request: Request) -> Response:
    """Say that the key is of the account on which the machines of this database are."""
    plane = plane_of(request)
    await plane.account.confirm(acting_caller(request))
    return json_reply(await _trust(plane))


@router.post("/confirm-loss")
async def confirm_loss(request: Request) -> Response:
    """Say that the machines which are missing now are gone; their owners are told with the next list."""
    plane = plane_of(request)
    await plane.vanishing.confirm(acting_caller(request))
    return json_reply(await _trust(plane))


async def _trust(plane: Plane) -> CloudTrust:
    return CloudTrust(
        account_unconfirmed=await plane.account.unconfirmed(), vanishing_held=await plane.vanishing.held()
    )
