"""`/api/registry-auths` and `/api/templates`: listed for every key, without a secret."""

from __future__ import annotations

from dataclasses import replace

import httpx

from gpuherd.simulator.simulated_catalogue import TEAM_REGISTRY
from tests.support.herd import Herd

CANARY = "canary-of-a-template"


async def test_credentials_are_listed_by_name_without_their_passwords(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    account = herd.world.account
    first = account.save_registry_auth("a-first", "robot", CANARY)
    reply = await api.get("/api/registry-auths")
    assert reply.json()["registryAuths"][0] == {"id": first, "name": "a-first", "username": "robot"}
    assert TEAM_REGISTRY.id in {it["id"] for it in reply.json()["registryAuths"]}
    assert CANARY not in reply.text and TEAM_REGISTRY.password not in reply.text


async def test_a_template_shows_the_names_of_its_variables_only(api: httpx.AsyncClient, herd: Herd) -> None:
    templates = herd.world.account.templates
    templates["101"] = replace(templates["101"], envs=(("TOKEN", CANARY),), start_command=f"serve {CANARY}")
    one, all_of_them = await api.get("/api/templates/101"), await api.get("/api/templates")
    assert one.json()["envNames"] == ["TOKEN"] and one.json() in all_of_them.json()["templates"]
    assert CANARY not in one.text + all_of_them.text


async def test_gpuherd_changes_none_of_them(api: httpx.AsyncClient) -> None:
    for method, path in (
        ("POST", "/api/templates"),
        ("PATCH", "/api/templates/101"),
        ("DELETE", "/api/templates/101"),
        ("POST", "/api/registry-auths"),
    ):
        assert (await api.request(method, path, json={})).status_code == 405, (method, path)
