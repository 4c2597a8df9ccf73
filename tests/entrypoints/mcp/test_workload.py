"""What an agent may have run: images, volumes, and secrets by their names alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from gpuherd.simulator.simulated_catalogue import TEAM_REGISTRY
from tests.entrypoints.http.routes.instances.test_plans import key_of
from tests.entrypoints.mcp.conftest import Agent
from tests.entrypoints.mcp.test_tools import CORPUS
from tests.support.herd import Herd

Agents = Callable[..., Agent]
CANARY = "hf_canaryOfAnAgent1234567890"
GPU = {"product_name": "RTX 4090 24GB"}


@pytest.fixture
async def secret(api: httpx.AsyncClient) -> str:
    assert (await api.put("/api/secrets/hf", json={"value": CANARY})).status_code == 200
    return "hf"


async def test_an_image_with_everything_is_planned_and_rented(
    an_agent: Agents, mode: str, api: httpx.AsyncClient, herd: Herd, secret: str
) -> None:
    volume = herd.world.volumes.create("data", "us-ca-6", 50, herd.world.now())
    agent = an_agent(mode=mode, answer="accept")
    plan = await agent(
        "plan_rental",
        **GPU,
        image_url="registry.example.com/team/trainer:1.4",
        command="serve --all",
        ports=["8000/http"],
        envs={"HF_TOKEN": {"secret": secret}},
        volumes=[{"id": volume.id, "mountPath": "/data"}],
        registry_auth_id=TEAM_REGISTRY.id,
        min_cuda_version="12.4",
    )
    assert plan.get("planId") and any("US-CA-06" in it for it in plan["warnings"]), plan
    made = await agent("rent", plan_id=plan["planId"])
    assert made["volumes"] == [{"id": volume.id, "mountPath": "/data"}]
    shown = (await api.get(f"/api/instances/{made['id']}")).json()
    assert (shown["imageUrl"], shown["command"]) == ("registry.example.com/team/trainer:1.4", "serve --all")
    assert (shown["envs"], shown["ports"]) == ({"HF_TOKEN": {"secret": "hf"}}, ["8000/http"])
    assert (shown["registryAuthId"], shown["minCudaVersion"]) == (TEAM_REGISTRY.id, "12.4")
    assert CANARY not in json.dumps([plan, made])


@pytest.mark.parametrize(
    "envs",
    [
        {"HF_TOKEN": CANARY},
        {"HF_TOKEN": {"secret": CANARY}},
        {"HF_TOKEN": {"value": CANARY}},
        {"HF_TOKEN": {"secret": "hf", "value": CANARY}},
        {"HF_TOKEN": {"secret": [CANARY]}},
        {CANARY + "=": {"secret": "hf"}},
        [CANARY],
        CANARY,
        {f"V{n}": {"secret": CANARY} for n in range(100)},
    ],
    ids=["value", "as-name", "field", "beside", "list", "name", "array", "text", "many"],
)
async def test_a_value_is_not_taken_not_sent_on_and_not_repeated(
    an_agent: Agents, herd: Herd, secret: str, envs: Any
) -> None:
    sent: list[bytes] = []
    agent = an_agent(answer="accept")
    agent.http.event_hooks["request"].append(_noting(sent))
    refused = await agent.plan(envs=envs)
    # What could be a name is looked for among those that there are; everything else is no reference at all.
    could_be_name = envs == {"HF_TOKEN": {"secret": CANARY}}
    assert refused["refused"] == ("SECRET_NOT_FOUND" if could_be_name else "INVALID_ENVS")
    assert "list_secrets" in refused["allowed"]
    assert CANARY not in json.dumps(refused)
    assert not [it for it in sent if CANARY.encode() in it]


def _noting(sent: list[bytes]) -> Callable[[httpx.Request], Any]:
    async def note(request: httpx.Request) -> None:
        sent.append(str(request.url).encode() + await request.aread())

    return note


async def test_only_names_of_secrets_are_told_and_only_of_this_key(
    an_agent: Agents, api: httpx.AsyncClient, secret: str
) -> None:
    assert await an_agent()("list_secrets") == {"secrets": [{"name": "hf", "shared": False}], "cut": False}
    other = an_agent(key=await key_of(api, "write"))
    assert (await other("list_secrets"))["secrets"] == []
    refused = await other.plan(envs={"HF_TOKEN": {"secret": secret}})
    assert refused["refused"] == "SECRET_NOT_FOUND"


async def test_credentials_are_told_by_id_and_name_alone(an_agent: Agents) -> None:
    assert (await an_agent()("list_registry_credentials"))["credentials"] == [
        {"id": TEAM_REGISTRY.id, "name": TEAM_REGISTRY.name}
    ]


async def test_volumes_are_listed_with_price_and_region_and_no_more_than_anybody_reads(
    an_agent: Agents, herd: Herd
) -> None:
    for n in range(51):
        herd.world.volumes.create(f"data-{n:02}", "us-ca-6", 100, herd.world.now())
    told = await an_agent(is_read_only=True)("list_volumes")
    assert (len(told["volumes"]), told["cut"]) == (50, True)
    first = told["volumes"][0]
    assert (first["name"], first["region"], first["sizeGb"], first["hourlyPrice"]) == (
        *("data-00", "US-CA-06", 100, "0.008333333"),
    )


@pytest.mark.parametrize("evil", CORPUS, ids=range(len(CORPUS)))
async def test_what_a_volume_is_called_stays_data(an_agent: Agents, herd: Herd, evil: str) -> None:
    herd.world.volumes.create(evil, "us-ca-6", 50, herd.world.now())
    (told,) = (await an_agent()("list_volumes"))["volumes"]
    assert len(told["name"]) <= 300 and told["name"].isprintable()


@pytest.mark.parametrize("twice", [True, False], ids=["twice", "unknown"])
async def test_volumes_that_cannot_be_mounted_are_refused(an_agent: Agents, twice: bool) -> None:
    wanted = [{"id": "gone", "mountPath": path} for path in ("/a", "/b")[: 1 + twice]]
    refused = await an_agent().plan(volumes=wanted)
    assert refused["refused"] == "INVALID_VOLUMES", refused
