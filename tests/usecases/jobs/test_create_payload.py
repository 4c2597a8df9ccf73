"""The job of a create tells which credential its image is pulled with, wherever that was named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpuherd.adapters.sql.schema.tables import job
from gpuherd.simulator.catalogue import TEAM_REGISTRY
from tests.support.herd import Herd

# It names the credential of a private image.
PRIVATE = "105"
OWN = "registry.example.com/team/other:1"
ELSEWHERE = "ghcr.io/team/trainer:1"


async def payload_of(herd: Herd, **wish: Any) -> dict[str, Any]:
    made = await herd.launch(**wish)
    (row,) = [it for it in herd.rows(job) if it.instance_id == made.id]
    payload: dict[str, Any] = json.loads(row.payload)
    return payload


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize(
    ("wish", "auth_id"),
    [
        ({"template_id": PRIVATE}, TEAM_REGISTRY.id),
        ({"template_id": PRIVATE, "image_url": OWN}, TEAM_REGISTRY.id),
        ({"template_id": "101", "registry_auth_id": TEAM_REGISTRY.id}, TEAM_REGISTRY.id),
        # What the template names is for no other registry than its own.
        ({"template_id": PRIVATE, "image_url": ELSEWHERE}, None),
        ({"template_id": "101"}, None),
    ],
    ids=str,
)
async def test_a_create_job_has_the_id_of_the_credential_and_no_more(
    herd: Herd, wish: dict[str, Any], auth_id: str | None, is_known: bool
) -> None:
    if is_known:
        await herd.launch(**wish)
    payload = await payload_of(herd, **wish)
    assert payload.get("registryAuthId") == auth_id
    assert ("registryAuthId" in payload) == (auth_id is not None)
    assert TEAM_REGISTRY.password not in json.dumps(payload)


async def test_what_is_not_known_in_time_is_left_to_the_job(herd: Herd) -> None:
    herd.launch_instance = replace(herd.launch_instance, lookup_budget_s=0.0)
    assert "registryAuthId" not in await payload_of(herd, template_id=PRIVATE)
