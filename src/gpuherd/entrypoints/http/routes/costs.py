"""`/api/costs`, `/api/leftovers`, `/api/balance`: what was spent, what still costs, and what is left."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.audit import append_audit_record
from gpuherd.entrypoints.auth.authorization import caller_of
from gpuherd.entrypoints.costs_query import BILL_QUERY, COST_QUERY, bill_day, cost_query
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.query import Query, described
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.entrypoints.schemas.costs import ReconcileBody
from gpuherd.entrypoints.schemas.openapi import takes
from gpuherd.usecases.describe.costs import (
    describe_balance,
    describe_bill,
    describe_costs,
    describe_leftovers,
)

router = APIRouter(prefix="/api", tags=["costs"])


@router.get("/costs", openapi_extra=described(COST_QUERY))
async def report(request: Request) -> Response:
    """Sum up what a period has cost so far. `from`, `to`: days or moments; `groupBy`: also `label:KEY`."""
    plane = plane_of(request)
    # The clock is read once: without `to` a period ends now, and by a later now it would have ended already.
    now = plane.clock.now()
    period, grouping = cost_query(Query(request), now)
    found = await plane.costs.report(period, grouping.by, grouping.label, caller_of(request), now)
    return json_reply(describe_costs(found.query, found.report, found.billed))


@router.get("/costs/bill", openapi_extra=described(BILL_QUERY))
async def bill(request: Request) -> Response:
    """Show a `day` by our meter and by the provider's bill, as last read; else the day before."""
    plane = plane_of(request)
    day = bill_day(Query(request), plane.clock.now())
    return json_reply(describe_bill(await plane.costs.reconcile.compared(day)))


@router.post("/costs/reconcile", openapi_extra=takes(ReconcileBody))
async def reconcile(request: Request) -> Response:
    """Read the provider's bill of a day now, and compare. The ledger stays as it is."""
    plane = plane_of(request)
    day = ReconcileBody.parse(await read_object(request), plane.clock.now()).to_day()
    await append_audit_record(request, "costs.reconcile", day.isoformat())
    return json_reply(describe_bill(await plane.costs.reconcile(day)))


@router.get("/leftovers")
async def leftovers(request: Request) -> Response:
    """List everything that still costs money, the dearest first, with what could be done about it."""
    return json_reply(describe_leftovers(await plane_of(request).costs.leftovers(caller_of(request))))


@router.get("/balance")
async def balance(request: Request) -> Response:
    """Return what is left on the account, and how long it lasts if nothing changes."""
    return json_reply(describe_balance(await plane_of(request).costs.balance()))
