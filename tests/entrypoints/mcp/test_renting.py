"""What an agent can rent: what was planned, once, with an end, and with a person's word where it is dear."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import httpx
import pytest

from tests.entrypoints.http.routes.instances.test_plans import key_of
from tests.entrypoints.mcp.conftest import Agent, answer_of
from tests.support.herd import Herd

Agents = Callable[..., Agent]


def rented(herd: Herd) -> int:
    return len(herd.rows(herd.tables.instance))


async def test_what_is_dear_is_rented_after_a_person_said_yes(
    an_agent: Agents, mode: str, herd: Herd, api: httpx.AsyncClient
) -> None:
    agent = an_agent(mode=mode, answer="accept")
    plan = await agent.plan(name="agents")
    assert (plan["fits"], plan["leaseSeconds"], plan["silenceSeconds"]) == (True, 7200, 3600)
    made = await agent("rent", plan_id=plan["planId"])
    price = plan["heldHourlyPrice"]
    most = Decimal(price) * 2
    assert agent.asked == [
        f"Rent 1 x RTX 4090 24GB (spot) for at most ${price} an hour, for 2 h, at most ${most:.2f} in all?"
    ]
    shown = (await api.get(f"/api/instances/{made['id']}")).json()
    assert (shown["name"], shown["maxHourlyPrice"], shown["lease"]["seconds"]) == ("agents", price, 7200)
    assert shown["autoStop"]["silenceSeconds"] == 3600


@pytest.mark.proves("A3")
@pytest.mark.parametrize("answer", ["no", "decline", "cancel"])
async def test_nothing_is_rented_unless_the_person_said_yes(
    an_agent: Agents, mode: str, herd: Herd, answer: str
) -> None:
    agent = an_agent(mode=mode, answer=answer)
    refused = await agent("rent", plan_id=(await agent.plan())["planId"])
    assert refused["refused"] == "NOT_CONFIRMED" and refused["allowed"]
    assert (len(agent.asked), rented(herd)) == (1, 0)


@pytest.mark.proves("A3")
async def test_a_client_that_cannot_ask_is_refused_unless_a_strict_budget_holds(
    an_agent: Agents, mode: str, herd: Herd, api: httpx.AsyncClient
) -> None:
    agent = an_agent(mode=mode)
    plan_id = (await agent.plan())["planId"]
    refused = await agent("rent", plan_id=plan_id)
    assert refused["refused"] == "CONFIRMATION_NEEDED" and "strict budget" in refused["allowed"]
    assert rented(herd) == 0
    budget = {"name": "b", "scope": {"all": True}, "amount": "5", "period": "day", "strict": True}
    assert (await api.post("/api/budgets", json=budget)).status_code == 201
    assert (await agent("rent", plan_id=plan_id))["status"] == "creating"


async def test_what_is_cheap_is_rented_without_a_question(an_agent: Agents, herd: Herd) -> None:
    agent = an_agent(answer="decline", ask_above=Decimal(1))
    assert (await agent("rent", plan_id=(await agent.plan())["planId"]))["status"] == "creating"
    assert (agent.asked, rented(herd)) == ([], 1)


@pytest.mark.proves("A3")
async def test_twenty_rents_of_one_plan_at_once_are_one_machine(an_agent: Agents, herd: Herd) -> None:
    agent = an_agent(answer="accept")
    plan_id = (await agent.plan())["planId"]
    made = await asyncio.gather(*(agent("rent", plan_id=plan_id) for _ in range(20)))
    assert len({it["id"] for it in made}) == 1
    assert rented(herd) == 1


@pytest.mark.proves("A2")
async def test_a_plan_without_a_lease_is_not_rented(
    an_agent: Agents, herd: Herd, api: httpx.AsyncClient
) -> None:
    wish = {"name": "x", "productName": "RTX 4090 24GB", "templateId": "101", "hold": True}
    plan_id = (await api.post("/api/plans", json=wish)).json()["planId"]
    refused = await an_agent(answer="accept")("rent", plan_id=plan_id)
    assert (refused["refused"], rented(herd)) == ("LEASE_REQUIRED", 0)


async def test_an_expired_plan_and_one_that_is_none_say_what_to_do(an_agent: Agents, herd: Herd) -> None:
    agent = an_agent(answer="accept")
    plan_id = (await agent.plan())["planId"]
    await herd.clock.sleep(601)
    for wrong, code in ((plan_id, "PLAN_EXPIRED"), ("plan_x", "PLAN_NOT_FOUND")):
        refused = await agent("rent", plan_id=wrong)
        assert refused["refused"] == code and "plan_rental" in refused["allowed"]
    assert rented(herd) == 0


async def test_a_lease_is_no_longer_than_the_key_may_have_one(
    an_agent: Agents, api: httpx.AsyncClient
) -> None:
    agent = an_agent(key=await key_of(api, "write", maxLeaseSeconds=600))
    assert (await agent.plan())["leaseSeconds"] == 600


async def test_a_read_key_can_plan_and_not_rent(an_agent: Agents, api: httpx.AsyncClient, herd: Herd) -> None:
    agent = an_agent(key=await key_of(api, "read"))
    plan = await agent.plan()
    assert (plan["fits"], plan.get("planId")) == (True, None) and "only look" in plan["note"]
    assert (await agent("stop_instance", instance="x"))["refused"] == "FORBIDDEN"
    assert rented(herd) == 0


@pytest.mark.proves("A3")
async def test_to_go_on_for_longer_is_asked_for_as_well(an_agent: Agents, herd: Herd) -> None:
    agent = an_agent(answer="accept")
    made = await agent("rent", plan_id=(await agent.plan())["planId"])
    await herd.run_for(timedelta(minutes=3))
    agent.asked.clear()
    assert (await agent("extend_lease", instance=made["id"], seconds=36_000))["endsAt"]
    (question,) = agent.asked
    assert question.startswith(f"Keep {made['id']} for 10 h, at most $")
    stubborn = an_agent(answer="decline")
    refused = await stubborn("extend_lease", instance=made["id"], seconds=72_000)
    assert refused["refused"] == "NOT_CONFIRMED"


@pytest.mark.proves("A2")
async def test_a_call_about_an_instance_is_a_heartbeat_and_silence_frees_it(
    an_agent: Agents, herd: Herd, api: httpx.AsyncClient
) -> None:
    agent = an_agent(answer="accept")
    made = await agent("rent", plan_id=(await agent.plan(silence_seconds=600, lease_seconds=6000))["planId"])
    await herd.run_for(timedelta(minutes=9))
    assert (await agent("show_instance", instance=made["id"]))["usable"]
    await herd.run_for(timedelta(minutes=9))
    assert (await agent("wait_for_instance", instance=made["id"], timeout_seconds=1))["reached"]
    looks = an_agent(is_read_only=True)
    await herd.run_for(timedelta(minutes=9))
    assert (await looks("show_instance", instance=made["id"]))["usable"]
    # The one who only looks is no use; the agent has died.
    await herd.run_for(timedelta(minutes=4))
    assert (await looks("show_instance", instance=made["id"]))["status"] == "exited"


async def test_one_connection_serves_the_whole_story(an_agent: Agents, mode: str, herd: Herd) -> None:
    agent = an_agent(mode=mode, answer="accept")
    async with agent.client() as client:
        plan = answer_of(
            await client.call_tool("plan_rental", {"product_name": "RTX 4090 24GB", "template_id": "101"})
        )
        made = answer_of(await client.call_tool("rent", {"plan_id": plan["planId"]}))
        await herd.run_for(timedelta(minutes=3))
        waited = answer_of(await client.call_tool("wait_for_instance", {"instance": made["id"]}))
        assert waited["reached"]
        for tool in ("keep_alive", "explain_instance", "stop_instance", "delete_instance"):
            assert answer_of(await client.call_tool(tool, {"instance": made["id"]}))
        for tool in (
            "find_offers",
            "list_templates",
            "list_volumes",
            "list_secrets",
            "list_registry_credentials",
            "list_instances",
            "recent_events",
            "costs",
            "leftovers",
        ):
            assert answer_of(await client.call_tool(tool, {}))
    await herd.run_for(timedelta(minutes=3))
    assert (await agent("show_instance", instance=made["id"]))["status"] == "deleted"
