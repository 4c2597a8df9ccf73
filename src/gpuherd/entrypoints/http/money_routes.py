"""Routes of costs, bills, balance, leftovers and budgets."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.body_models import read_day
from gpuherd.contract.money_models import BudgetBody, BudgetChangeBody, ReconcileBody, ScopeBody
from gpuherd.domain.money.budget import AtLimit, BudgetScope, ScopeKind
from gpuherd.domain.money.period import BudgetPeriod
from gpuherd.domain.money.usage_span import nano_usd
from gpuherd.entrypoints.body_problems import validate_body
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.http.openapi_document import takes
from gpuherd.entrypoints.http_auth import acting_caller, append_audit_record, caller_of
from gpuherd.entrypoints.list_queries import (
    BILL_QUERY,
    COST_QUERY,
    Query,
    bill_day,
    cost_query,
    described,
)
from gpuherd.entrypoints.use_case_access import json_reply, plane_of
from gpuherd.usecases.money.compare_bill import compare_day, reconcile_day
from gpuherd.usecases.money.manage_budgets import (
    BudgetRequest,
    add_budget,
    change_budget,
    read_budget,
    read_budgets,
    remove_budget,
    show_budget,
)
from gpuherd.usecases.money.report_costs import list_leftovers, read_balance, report_costs
from gpuherd.usecases.views.money_view import (
    describe_balance,
    describe_bill,
    describe_costs,
    describe_leftovers,
)

cost_router = APIRouter(prefix="/api", tags=["costs"])


@cost_router.get("/costs", openapi_extra=described(COST_QUERY))
async def report(request: Request) -> Response:
    """Sum up what a period has cost so far. `from`, `to`: days or moments; `groupBy`: also `label:KEY`."""
    plane = plane_of(request)
    # The clock is read once: without `to` a period ends now, and by a later now it would have ended already.
    now = plane.clock.now()
    period, grouping = cost_query(Query(request), now)
    found = await report_costs(plane.services, period, grouping.by, grouping.label, caller_of(request), now)
    return json_reply(describe_costs(found.query, found.report, found.billed))


@cost_router.get("/costs/bill", openapi_extra=described(BILL_QUERY))
async def bill(request: Request) -> Response:
    """Show a `day` by our meter and by the provider's bill, as last read; else the day before."""
    plane = plane_of(request)
    day = bill_day(Query(request), plane.clock.now())
    return json_reply(describe_bill(await compare_day(plane.services, day)))


@cost_router.post("/costs/reconcile", openapi_extra=takes(ReconcileBody))
async def reconcile(request: Request) -> Response:
    """Read the provider's bill of a day now, and compare. The ledger stays as it is."""
    plane = plane_of(request)
    body = validate_body(ReconcileBody, await read_object(request), plane.clock.now())
    day = read_day(body.day)
    await append_audit_record(request, "costs.reconcile", day.isoformat())
    return json_reply(describe_bill(await reconcile_day(plane.services, day)))


@cost_router.get("/leftovers")
async def leftovers(request: Request) -> Response:
    """List everything that still costs money, the dearest first, with what could be done about it."""
    return json_reply(
        describe_leftovers(await list_leftovers(plane_of(request).services, caller_of(request)))
    )


@cost_router.get("/balance")
async def balance(request: Request) -> Response:
    """Return what is left on the account, and how long it lasts if nothing changes."""
    return json_reply(describe_balance(await read_balance(plane_of(request).services)))


budget_router = APIRouter(prefix="/api/budgets", tags=["budgets"])


@budget_router.get("")
async def list_budgets(request: Request) -> Response:
    """List the budgets by name, with what is spent of each."""
    return json_reply(await read_budgets(plane_of(request).services))


@budget_router.post("", status_code=201, openapi_extra=takes(BudgetBody))
async def add(request: Request) -> Response:
    """Make a budget. What its period has cost already counts."""
    services = plane_of(request).services
    body = validate_body(BudgetBody, await read_object(request))
    made = await add_budget(services, _budget_request(body), acting_caller(request))
    shown = await show_budget(services, made)
    return json_reply(shown, status=201, headers={"Location": f"/api/budgets/{made.id}"})


@budget_router.get("/{id_or_name}")
async def show(id_or_name: str, request: Request) -> Response:
    """Return one budget, by its id or name."""
    return json_reply(await read_budget(plane_of(request).services, id_or_name))


@budget_router.patch("/{id_or_name}", openapi_extra=takes(BudgetChangeBody))
async def change(id_or_name: str, request: Request) -> Response:
    """Change a budget. One that is used up is free again as soon as its amount is raised enough."""
    services = plane_of(request).services
    values = _budget_changes(validate_body(BudgetChangeBody, await read_object(request)))
    changed = await change_budget(services, id_or_name, values, acting_caller(request))
    return json_reply(await show_budget(services, changed))


@budget_router.delete("/{id_or_name}")
async def remove(id_or_name: str, request: Request) -> Response:
    """Remove a budget. What it has ended stays ended."""
    return json_reply(await remove_budget(plane_of(request).services, id_or_name, acting_caller(request)))


def _budget_request(body: BudgetBody) -> BudgetRequest:
    return BudgetRequest(
        name=body.name,
        scope=_scope(body.scope),
        amount=nano_usd(body.amount),
        period=BudgetPeriod(body.period),
        warn_percent=_percents(body.warn_percent),
        at_limit=AtLimit(body.at_limit),
        strict=body.strict,
    )


def _budget_changes(body: BudgetChangeBody) -> dict[str, Any]:
    """Return the fields of a budget that get another value."""
    changes = {
        "name": body.name,
        "scope": body.scope and _scope(body.scope),
        "amount": None if body.amount is None else nano_usd(body.amount),
        "period": body.period and BudgetPeriod(body.period),
        "warn_percent": None if body.warn_percent is None else _percents(body.warn_percent),
        "at_limit": body.at_limit and AtLimit(body.at_limit),
        "strict": body.strict,
    }
    return {name: value for name, value in changes.items() if value is not None}


def _scope(body: ScopeBody) -> BudgetScope:
    if body.key is not None:
        return BudgetScope(ScopeKind.KEY, body.key)
    if body.label is not None:
        ((key, value),) = body.label.items()
        return BudgetScope(ScopeKind.LABEL, key, value)
    return BudgetScope()


def _percents(numbers: list[int]) -> tuple[int, ...]:
    return tuple(sorted(set(numbers)))
