"""`/api/budgets`: decide, read, change, remove; and what a create hears of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from gpuherd.entrypoints.use_case_access import Plane
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd
from tests.support.keys import bearer, make_key

BUDGETS = "/api/budgets"
NLP: dict[str, Any] = {
    "name": "nlp",
    "scope": {"label": {"team": "nlp"}},
    "amount": "200",
    "period": "month",
    "warnPercent": [80, 50],
    "atLimit": "stop",
}


async def made(api: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    reply = await api.post(BUDGETS, json={**NLP, **changes})
    assert reply.status_code == 201, reply.text
    body: dict[str, Any] = reply.json()
    assert reply.headers["Location"] == f"{BUDGETS}/{body['id']}"
    return body


async def test_a_budget_is_made_read_changed_and_removed(api: httpx.AsyncClient) -> None:
    body = await made(api)
    assert body["id"].startswith("bud_")
    assert {name: body[name] for name in (*NLP, "strict", "spent", "hourlyNow", "state")} == {
        **NLP,
        "warnPercent": [50, 80],
        "strict": False,
        "spent": "0",
        "hourlyNow": "0",
        "state": "ok",
    }
    assert body["resetsAt"] == "2026-02-01T00:00:00.000000Z"
    assert (await api.get(f"{BUDGETS}/{body['id']}")).json() == body
    assert (await api.get(f"{BUDGETS}/nlp")).json() == body
    assert (await api.get(BUDGETS)).json() == {"budgets": [body], "total": 1}
    changed = await api.patch(f"{BUDGETS}/{body['id']}", json={"amount": 300.5, "atLimit": "block"})
    assert changed.status_code == 200, changed.text
    assert changed.json() == {**body, "amount": "300.5", "atLimit": "block"}
    assert (await api.delete(f"{BUDGETS}/nlp")).json() == {"id": body["id"], "removed": True}
    gone = await api.get(f"{BUDGETS}/nlp")
    assert (gone.status_code, gone.json()["code"]) == (404, "BUDGET_NOT_FOUND")
    assert (await api.delete(f"{BUDGETS}/nlp")).status_code == 404
    actions = [it["action"] for it in (await api.get("/api/audit")).json()["entries"]]
    assert actions == ["budget.delete", "budget.change", "budget.create"]


async def test_a_total_never_resets_and_scopes_come_back_as_they_were_said(
    api: httpx.AsyncClient, plane: Plane
) -> None:
    key = await make_key(plane)
    total = await made(api, name="a", period="total", scope={"all": True})
    assert (total["resetsAt"], total["scope"]) == (None, {"all": True})
    assert (await made(api, name="b", scope={"key": key.key.id}))["scope"] == {"key": key.key.id}
    assert (await made(api, name="c", scope={"key": "admin"}))["scope"] == {"key": "admin"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"name": " "}, "INVALID_NAME"),
        ({"name": None}, "INVALID_NAME"),
        ({"scope": {}}, "INVALID_SCOPE"),
        ({"scope": {"all": True, "key": "admin"}}, "INVALID_SCOPE"),
        ({"scope": {"all": False}}, "INVALID_SCOPE"),
        ({"scope": {"label": {"a": "b", "c": "d"}}}, "INVALID_SCOPE"),
        ({"scope": {"key": "nobodys"}}, "INVALID_SCOPE"),
        ({"amount": -1}, "INVALID_AMOUNT"),
        ({"amount": "much"}, "INVALID_AMOUNT"),
        ({"amount": "NaN"}, "INVALID_AMOUNT"),
        ({"period": "year"}, "INVALID_PERIOD"),
        ({"warnPercent": [0]}, "INVALID_WARN_PERCENT"),
        ({"warnPercent": "50"}, "INVALID_WARN_PERCENT"),
        ({"atLimit": "explode"}, "INVALID_AT_LIMIT"),
        ({"strict": "yes"}, "INVALID_STRICT"),
        ({"amout": 1}, "UNKNOWN_FIELD"),
    ],
)
async def test_what_cannot_be_meant_is_refused(
    api: httpx.AsyncClient, changes: dict[str, Any], code: str
) -> None:
    refused = await api.post(BUDGETS, json={**NLP, **changes})
    assert (refused.status_code, refused.json()["code"]) == (400, code)
    body = await made(api)
    refused = await api.patch(f"{BUDGETS}/{body['id']}", json=changes)
    assert (refused.status_code, refused.json()["code"]) == (400, code)


async def test_all_that_is_wrong_is_said_at_once(api: httpx.AsyncClient) -> None:
    refused = (await api.post(BUDGETS, json={"name": "x", "amount": -1, "period": "year"})).json()
    assert {it["code"] for it in refused["errors"]} == {"INVALID_SCOPE", "INVALID_AMOUNT", "INVALID_PERIOD"}


async def test_names_are_unique(api: httpx.AsyncClient) -> None:
    await made(api)
    taken = await api.post(BUDGETS, json=NLP)
    assert (taken.status_code, taken.json()["code"]) == (409, "BUDGET_EXISTS")
    await made(api, name="other")
    renamed = await api.patch(f"{BUDGETS}/other", json={"name": "nlp"})
    assert (renamed.status_code, renamed.json()["code"]) == (409, "BUDGET_EXISTS")


async def test_only_admins_may(api: httpx.AsyncClient, plane: Plane) -> None:
    writer = bearer(await make_key(plane, "write"))
    assert (await api.get(BUDGETS, headers=writer)).status_code == 403
    assert (await api.post(BUDGETS, json=NLP, headers=writer)).status_code == 403


async def test_a_create_over_a_budget_is_refused_with_what_would_be_allowed(
    api: httpx.AsyncClient, plane: Plane
) -> None:
    labelled = {**GOOD, "labels": {"team": "nlp"}, "maxHourlyPrice": "0.40"}
    body = await made(api, amount="0.15", atLimit="block")
    assert (await api.post("/api/instances", json=labelled)).status_code == 201
    writer = bearer(await make_key(plane, "write"))
    refused = await api.post("/api/instances", json=labelled, headers=writer)
    assert (refused.status_code, refused.json()["code"]) == (429, "BUDGET_EXHAUSTED")
    details = refused.json()["details"]
    assert (details["budget"]["id"], details["budget"]["name"]) == (body["id"], "nlp")
    assert (details["spent"], details["reserved"], details["requested"]) == ("0", "0.1", "0.1")
    assert (details["allowed"], details["allowedHourlyPrice"]) == ("0.05", "0.2")
    plan = (await api.post("/api/plans", json=labelled)).json()
    assert [it["code"] for it in plan["reasons"]] == ["BUDGET_EXHAUSTED"]
    assert (await api.post("/api/instances", json=GOOD)).status_code == 201


async def test_a_strict_one_wants_a_lease(api: httpx.AsyncClient) -> None:
    await made(api, scope={"all": True}, strict=True)
    refused = await api.post("/api/instances", json=GOOD)
    assert (refused.status_code, refused.json()["code"]) == (400, "LEASE_REQUIRED")
    leased = await api.post("/api/instances", json={**GOOD, "lease": {"seconds": 3600}})
    assert leased.status_code == 201
    path = f"/api/instances/{leased.json()['id']}/lease"
    assert (await api.delete(path)).json()["code"] == "LEASE_REQUIRED"


async def test_what_was_spent_is_shown_and_what_was_ended_explained(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    body = await made(api, scope={"all": True}, amount="0.06")
    instance_id = (await api.post("/api/instances", json=GOOD)).json()["id"]
    await herd.run_for(timedelta(minutes=30))
    shown = (await api.get(f"{BUDGETS}/nlp")).json()
    assert (shown["state"], shown["hourlyNow"]) == ("exhausted", "0")
    assert 0.05 < float(shown["spent"]) <= 0.06
    assert shown["spent"] == (await api.get("/api/costs")).json()["total"]
    why = (await api.get(f"/api/instances/{instance_id}/attempts")).json()
    assert any("budget 'nlp' is used up" in it["text"] for it in why["story"])
    events = (await api.get(f"/api/instances/{instance_id}/events")).json()["events"]
    assert any(it["actor"] == f"budget:{body['id']}" for it in events)
    told = (await api.get("/api/events/history", params={"type": "budget.exhausted"})).json()["events"]
    assert len(told) == 1
