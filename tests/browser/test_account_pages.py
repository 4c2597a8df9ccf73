"""Templates, credentials, prewarm tasks, volumes and secrets in a real browser, with and without scripts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import Browser, Site, Visitor, expect, visit

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]

HOSTILE = '"><img src=x onerror="window.owned = 1">'
PASSWORD = "canary-of-a-browser"


async def test_a_template_and_its_credential_from_the_form_to_the_end(visitor: Visitor, site: Site) -> None:
    page = visitor.page
    await visitor.go("/")
    await page.get_by_role("navigation").get_by_role("link", name="Images").click()
    login = page.locator("#new-credential")
    for field, value in (("name", HOSTILE), ("username", "robot"), ("password", PASSWORD)):
        await login.locator(f"[name={field}]").fill(value)
    await login.get_by_role("button", name="Add it").click()
    await expect(page.get_by_role("status")).to_contain_text("The cloud keeps the credential")
    row = page.locator("#credentials tr", has_text="robot").filter(has_text=HOSTILE)
    await expect(row).to_be_visible()

    form = page.locator("#new-template")
    await form.locator("[name=name]").fill("browsers-own")
    await form.locator("[name=imageUrl]").fill("ghcr.io/team/trainer:1")
    await form.locator("[name=registryAuthId]").select_option(label=f"{HOSTILE} (robot)")
    await form.get_by_role("button", name="Make it").dblclick()
    await expect(page.get_by_role("status")).to_contain_text("The template is made.")
    await page.locator("#templates").get_by_role("link", name="browsers-own", exact=True).click()
    await page.locator("[name=imageUrl]").fill("ghcr.io/team/trainer:2")
    await page.get_by_role("button", name="Change it").click()
    await expect(page.get_by_role("status")).to_contain_text("The template is changed.")
    await expect(page.locator(".facts")).to_contain_text("ghcr.io/team/trainer:2")
    await page.get_by_role("link", name="Rent with it").click()
    await expect(page.locator("[name=templateId] option:checked")).to_contain_text("browsers-own")

    await visitor.go("/images")
    for place, words in (("#templates", "browsers-own"), ("#credentials", HOSTILE)):
        row = page.locator(f"{place} tr", has_text=words)
        await row.locator("summary", has_text="Delete…").click()
        await row.get_by_role("button", name="Delete it").click()
        await expect(row).to_have_count(0)
    assert await page.evaluate("window.owned") is None
    assert await page.locator("main img, main script").count() == 0


async def test_a_password_is_gone_from_a_form_that_was_refused(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/images")
    login = page.locator("#new-credential")
    # A name that the simulated account has already.
    for field, value in (("name", "registry.example.com"), ("username", "robot"), ("password", PASSWORD)):
        await login.locator(f"[name={field}]").fill(value)
    await login.get_by_role("button", name="Add it").click()
    await expect(page.get_by_role("alert")).to_contain_text("choose another name")
    await expect(login.locator("[name=username]")).to_have_value("robot")
    await expect(login.locator("[name=password]")).to_have_value("")
    assert PASSWORD not in await page.content()
    # The browser tells of the 409 itself.
    visitor.errors.clear()


async def test_an_image_is_prewarmed_with_a_hostile_note_and_deleted(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/images")
    form = page.locator("#new-prewarm")
    for field, value in (
        ("imageUrl", "docker.io/team/browsers:1"),
        ("note", HOSTILE),
        ("products", "abacus"),
    ):
        await form.locator(f"[name={field}]").fill(value)
    await form.locator("[name=region]").select_option("US-CA-06")
    await form.get_by_role("button", name="Prewarm it").click()
    await expect(form.get_by_role("alert")).to_contain_text("1 field needs another look")
    await expect(form.locator("#products-problem")).to_contain_text("abacus")
    # The browser tells of the 400 itself.
    visitor.errors.clear()

    await form.locator("[name=products]").fill("")
    await form.get_by_role("button", name="Prewarm it").dblclick()
    await expect(page.get_by_role("status")).to_contain_text("The order is with the cloud")
    row = page.locator("#prewarms tbody tr", has_text="docker.io/team/browsers:1")
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text(HOSTILE)
    await expect(page.locator("#prewarm-quota")).to_contain_text("1 of 5 tasks are used")
    await row.locator("summary", has_text="Delete…").click()
    await row.get_by_role("button", name="Delete it").click()
    await expect(row).to_have_count(0)
    await expect(page.locator("#prewarms")).to_contain_text("Nothing is prewarmed")
    assert await page.evaluate("window.owned") is None
    assert await page.locator("main img, main script").count() == 0


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
