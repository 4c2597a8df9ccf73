"""`/images`: the templates and the registry credentials of the account."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulated_catalogue import TEAM_REGISTRY
from tests.entrypoints.web.conftest import HOSTILE, Browser, hostile_parts
from tests.support.herd import Herd

CANARY = "canary-of-a-template"


async def test_templates_and_credentials_are_shown_without_their_secrets(admin: Browser, herd: Herd) -> None:
    templates = herd.world.account.templates
    mine = replace(templates["101"], id="700", name="mine", channel="private", envs=(("TOKEN", CANARY),))
    templates["700"] = replace(mine, start_command=f"serve {CANARY}", image_auth_id=TEAM_REGISTRY.id)
    page = await admin.text("/images")
    assert "mine" in page and "TOKEN" in page and TEAM_REGISTRY.name in page
    assert CANARY not in page and TEAM_REGISTRY.password not in page
    assert 'action="/images' not in page, "the cloud's console changes them"


async def test_a_cloud_that_does_not_answer_is_not_an_empty_list(admin: Browser, herd: Herd) -> None:
    ends = (ApiEndpoint.TEMPLATES, ApiEndpoint.REGISTRY_AUTHS)
    herd.world.faults.add(Fault(FaultKind.OUTAGE, endpoints=ends))
    page = await admin.text("/images")
    assert page.count("The cloud cannot be asked which") == 2
    assert "No templates" not in page and "No credentials" not in page


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_name_is_text(admin: Browser, herd: Herd, name: str) -> None:
    account = herd.world.account
    account.templates["101"] = replace(account.templates["101"], name=name)
    account.save_registry_auth(name, name, "password")
    for path in ("/images", "/instances/new"):
        assert hostile_parts(await admin.text(path)) == []
