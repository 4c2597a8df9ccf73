"""Templates, credentials, prewarm tasks, volumes and secrets in a real browser, with and without scripts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import Browser, Site, expect, visit

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]

HOSTILE = '"><img src=x onerror="window.owned = 1">'
PASSWORD = "canary-of-a-browser"


async def test_a_volume_and_a_secret_are_made_and_chosen_for_a_rental_without_any_script(
    chromium: Browser, site: Site, admin_state: Any
) -> None:
    context, visitor = await visit(chromium, site, java_script_enabled=False)
    await context.add_cookies(admin_state["cookies"])
    page = visitor.page
    await visitor.go("/volumes")
    await page.locator("[name=name]").fill("browsers-data")
    await page.locator("[name=region]").select_option("US-CA-06")
    await page.get_by_role("button", name="Make it").click()
    await expect(page.locator("tbody tr", has_text="browsers-data")).to_be_visible()
    await visitor.go("/secrets")
    await page.locator("[name=name]").fill("browsers-hf")
    await page.locator("[name=value]").fill(PASSWORD)
    await page.get_by_role("button", name="Set it").click()
    await expect(page.locator("tbody tr", has_text="browsers-hf")).to_be_visible()

    await visitor.go("/volumes")
    await page.locator("tr", has_text="browsers-data").get_by_role("link", name="Rent with it").click()
    await page.locator("[name=name]").fill("with-a-volume")
    await page.locator("[name=productName]").select_option("RTX 4090 24GB")
    await page.locator("[name=templateId]").select_option("101")
    await page.get_by_text("Image and environment").click()
    await page.locator('[name="secret.browsers-hf"]').fill("HF_TOKEN")
    await page.get_by_role("button", name="Rent", exact=True).click()
    await expect(page.get_by_role("heading", name="with-a-volume")).to_be_visible()
    _, made = await site.server.call("GET", "/api/instances/with-a-volume")
    assert [it["mountPath"] for it in made["volumes"]] == ["/data"]
    assert made["envs"] == {"HF_TOKEN": {"secret": "browsers-hf"}}
    assert PASSWORD not in await page.content()

    await site.server.call("DELETE", "/api/instances/with-a-volume")
    await site.server.call("GET", f"/api/instances/{made['id']}?wait=deleted&timeout=30")
    await visitor.go("/volumes")
    row = page.locator("tbody tr", has_text="browsers-data")
    await row.locator("summary", has_text="Delete…").click()
    await row.get_by_role("button", name="Delete it for good").click()
    await expect(row).to_have_count(0)
    await context.close()
    assert (visitor.errors, visitor.foreign) == ([], [])
