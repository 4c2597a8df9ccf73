"""The dashboard in a real browser, against a real server."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser.conftest import Browser, Site, Visitor, expect, visit

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]

PAGES = (
    "/",
    "/instances",
    "/instances/new",
    "/offers",
    "/images",
    "/volumes",
    "/secrets",
    "/money",
    "/jobs",
    "/webhooks",
    "/endpoints",
    "/orphans",
    "/keys",
    "/audit",
    "/settings",
    "/docs",
)
HOSTILE = (
    "<img src=x onerror='window.owned = 1'>",
    '"><img src=x onerror="window.owned = 1">',
    "red \u202etxt.exe",
)
LONG = "a-name-without-any-place-to-break-it-" + "x" * 60
SLOW = 20_000


async def test_signing_in_and_out(signed_out: Visitor) -> None:
    page = signed_out.page
    await signed_out.go("/jobs")
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    await page.get_by_label("API key").fill("ghk_wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("does not open anything")
    # The browser tells of the 401 itself.
    signed_out.errors.clear()
    await signed_out.sign_in()
    await signed_out.go("/jobs")
    await expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    await signed_out.go("/")
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


async def test_an_instance_from_the_form_to_its_end_without_a_reload(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/")
    await page.get_by_role("link", name="Rent an instance").first.click()
    await page.get_by_label("Name", exact=True).fill("through-the-form")
    await page.locator("[name=productName]").select_option("RTX 4090 24GB")
    await page.locator("[name=templateId]").select_option("101")
    await expect(page.locator("#plan .big")).to_have_text("$0.20/h")
    await page.get_by_role("button", name="Rent", exact=True).click()
    await expect(page.get_by_role("heading", name="through-the-form")).to_be_visible()
    # A reload would forget this.
    await page.evaluate("window.untouched = true")
    status = page.locator("#summary .status")
    await expect(status).to_have_text("running", timeout=SLOW)
    await expect(page.locator("#ways")).to_contain_text("ssh -p")
    assert await page.evaluate("window.untouched")

    for verb, button, end in (("Stop…", "Stop it", "exited"), ("", "Start", "running")):
        if verb:
            await page.locator("#actions summary", has_text=verb).click()
        await page.locator("#actions").get_by_role("button", name=button).click()
        await page.evaluate("window.untouched = true")
        await expect(status).to_have_text(end, timeout=SLOW)
        assert await page.evaluate("window.untouched")
    await page.locator("#actions summary", has_text="Delete…").click()
    await page.get_by_role("button", name="Delete it for good").click()
    await expect(status).to_have_text("deleted", timeout=SLOW)
    await expect(page.locator("#actions").get_by_role("button")).to_have_count(0)


async def test_a_double_click_rents_once(visitor: Visitor, site: Site) -> None:
    page = visitor.page
    await visitor.go("/instances/new?productName=RTX+4090+24GB&templateId=101")
    await page.get_by_label("Name", exact=True).fill("clicked-twice")
    await page.get_by_role("button", name="Rent", exact=True).dblclick()
    await expect(page.get_by_role("heading", name="clicked-twice")).to_be_visible()
    _, found = await site.server.call("GET", "/api/instances?name=clicked-twice")
    assert found["total"] == 1


async def test_the_overview_follows_what_others_do(visitor: Visitor, site: Site) -> None:
    page = visitor.page
    await visitor.go("/")
    await expect(page.locator("#live-state")).to_have_text("live")
    await page.evaluate("window.untouched = true")
    await site.rent("rented-elsewhere")
    await expect(page.locator("#events")).to_contain_text("rented-elsewhere", timeout=SLOW)
    await expect(page.locator("#running")).to_contain_text("rented-elsewhere", timeout=SLOW)
    assert await page.evaluate("window.untouched")


async def test_a_question_that_is_open_is_not_torn_away(visitor: Visitor, site: Site) -> None:
    instance_id = await site.rent("asked")
    await visitor.go(f"/instances/{instance_id}")
    page = visitor.page
    await page.locator("#actions summary", has_text="Delete…").click()
    await expect(page.locator("#summary .status")).to_have_text("running", timeout=SLOW)
    await expect(page.get_by_role("button", name="Delete it for good")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="Delete it for good")).to_be_hidden()
    await expect(page.locator("#actions summary", has_text="Stop…")).to_be_visible(timeout=SLOW)


async def test_without_the_stream_a_page_still_looks_now_and_then(visitor: Visitor) -> None:
    await visitor.page.route("**/api/events?*", lambda route: route.abort())
    await visitor.go("/")
    await expect(visitor.page.locator("#live-state")).to_have_text("polling")
    visitor.errors.clear()


async def test_a_webhook_is_sent_again(visitor: Visitor, site: Site) -> None:
    instance_id = await site.rent("told", webhookUrl=site.hook.url)
    await site.server.until_settled(instance_id)
    await visitor.go(f"/webhooks?instanceId={instance_id}&type=instance.ready")
    page = visitor.page
    await expect(page.locator("tbody .status")).to_have_text("delivered", timeout=SLOW)
    await page.locator("tbody a", has_text="ready").click()
    delivery_id = page.url.rsplit("/", 1)[1]
    await page.get_by_role("button", name="Send again").click()
    await expect(page.locator("#state")).to_contain_text("sent again 1 times")
    await expect(page.locator("#tries tbody tr")).to_have_count(2, timeout=SLOW)
    bodies = [body for id_, _, body in site.hook.got if id_ == delivery_id]
    assert len(bodies) == 2
    assert bodies[0] == bodies[1]


async def test_money_is_shown_without_any_script(chromium: Browser, site: Site, admin_state: Any) -> None:
    instance_id = await site.rent("a-cost", labels={"team": "nlp"})
    await site.server.until_settled(instance_id)
    context, visitor = await visit(chromium, site, java_script_enabled=False)
    await context.add_cookies(admin_state["cookies"])
    await visitor.go("/money")
    page = visitor.page
    await expect(page.get_by_role("heading", name="Money", exact=True)).to_be_visible()
    await expect(page.locator("#numbers")).to_contain_text("This month")
    await expect(page.get_by_role("navigation").get_by_role("link", name="Money")).to_be_visible()
    for section in ("days", "labels", "keys", "waste", "drift", "leftovers"):
        await expect(page.locator(f"#{section} h2")).to_be_visible()
    await context.close()
    assert (visitor.errors, visitor.foreign) == ([], [])


async def test_budgets_are_bars_as_long_as_what_is_spent(visitor: Visitor, site: Site) -> None:
    page, server = visitor.page, site.server
    await server.until_settled(await site.rent("in-a-budget", labels={"team": "bars"}))
    scope, made = {"label": {"team": "bars"}}, []
    # A simulated second costs several of these amounts, and none of the other.
    for name, amount in (("<i>small</i>", "0.000001"), ("large", "100000")):
        body = {"name": name, "scope": scope, "amount": amount, "period": "total", "atLimit": "warn"}
        status, told = await server.call("POST", "/api/budgets", body)
        assert status == 201, told
        made.append(told["id"])
    await visitor.go("/money")
    rows = page.locator("#budgets tbody tr")
    small, large = rows.filter(has_text="<i>small</i>"), rows.filter(has_text="large")
    whole = await small.locator(".chart svg").get_attribute("width")
    # Never longer than the whole, however much it is.
    await expect(small.locator(".chart rect.spot")).to_have_attribute("width", whole or "")
    await expect(large.locator(".chart rect.spot")).to_have_attribute("width", "0")
    await expect(large.locator(".chart svg")).to_have_attribute("aria-label", "0 % spent")
    await expect(small.locator(".chart svg")).to_have_attribute(
        "aria-label", re.compile(r"^[1-9]\d{2,} % spent$")
    )
    await expect(large).to_contain_text("$100,000")
    await expect(large).to_contain_text("within 0 %")
    for budget_id in made:
        assert (await server.call("DELETE", f"/api/budgets/{budget_id}"))[0] == 200


async def test_a_phone_shows_the_words_of_the_chart_and_all_of_a_budget(
    chromium: Browser, site: Site, admin_state: Any
) -> None:
    server = site.server
    await server.until_settled(await site.rent("on-a-phone"))
    body = {
        "name": "pocket money",
        "scope": {"all": True},
        "amount": "0.000001",
        "period": "total",
        "atLimit": "warn",
    }
    status, budget = await server.call("POST", "/api/budgets", body)
    assert status == 201, budget
    context, visitor = await visit(chromium, site, viewport={"width": 390, "height": 844}, is_mobile=True)
    await context.add_cookies(admin_state["cookies"])
    await visitor.go("/money")
    await expect(visitor.page.locator("#days .tick").first).to_be_visible()
    for tick in await visitor.page.locator("#days .tick").all():
        box = await tick.bounding_box()
        assert box is not None
        assert box["height"] >= 10
    table, state = (
        visitor.page.locator("#budgets .scroll"),
        visitor.page.locator("#budgets [data-label=State] .status"),
    )
    await expect(state).to_have_text("used up")
    assert await table.evaluate("it => it.scrollWidth <= it.clientWidth"), "nothing of it is cut off"
    assert (await server.call("DELETE", f"/api/budgets/{budget['id']}"))[0] == 200
    await context.close()


async def test_hostile_names_are_text(visitor: Visitor, site: Site) -> None:
    ids = [await site.rent(name) for name in HOSTILE]
    for path in ("/", "/instances", *(f"/instances/{it}" for it in ids)):
        await visitor.go(path)
        assert await visitor.page.evaluate("window.owned") is None
        assert await visitor.page.locator("main img, main script").count() == 0
    await visitor.go("/instances")
    await expect(visitor.page.get_by_role("link", name=HOSTILE[0])).to_be_visible()
    await expect(visitor.page.get_by_role("link", name="red \\u202etxt.exe")).to_be_visible()


# The pages whose parts are widest; `make chaos` opens the others too.
WIDE_PAGES = ("/", "/instances", "/instances/new", "/images", "/volumes", "/secrets", "/money", "/docs")


@pytest.mark.parametrize(
    "pages", [WIDE_PAGES, pytest.param(PAGES, marks=pytest.mark.long)], ids=["wide", "all"]
)
async def test_a_phone_shows_every_page_without_scrolling_sideways(
    chromium: Browser, site: Site, admin_state: Any, pages: tuple[str, ...]
) -> None:
    instance_id = await site.rent(LONG[:100], labels={"team": "x" * 60})
    context, visitor = await visit(chromium, site, viewport={"width": 360, "height": 740}, is_mobile=True)
    await context.add_cookies(admin_state["cookies"])
    for path in (*pages, f"/instances/{instance_id}", "/nothing/here"):
        await visitor.go(path)
        wide = await visitor.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, path
    await context.close()
    assert visitor.foreign == []
    # The page that is not there.
    assert [it for it in visitor.errors if "404" not in it] == []


async def test_dark_and_light_follow_the_reader(chromium: Browser, site: Site) -> None:
    found = {}
    for scheme in ("light", "dark"):
        context, visitor = await visit(chromium, site, color_scheme=scheme)
        await visitor.go("/login")
        colours = await visitor.page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        )
        found[scheme] = [sum(map(int, re.findall(r"\d+", it)[:3])) for it in colours]
        await context.close()
    assert found["light"][0] > 700 > 200 > found["light"][1]
    assert found["dark"][0] < 100 < 600 < found["dark"][1]


async def test_it_can_be_used_by_keyboard(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/instances")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "main"
    outline = await page.evaluate(
        "(() => { const a = document.querySelector('.button.main'); a.focus({focusVisible: true});"
        " return getComputedStyle(a).outlineStyle })()"
    )
    assert outline == "solid"


async def test_commands_are_copied(visitor: Visitor, site: Site) -> None:
    instance_id = await site.rent("copied")
    await visitor.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await visitor.go(f"/instances/{instance_id}")
    await visitor.page.locator("#facts [data-copy]").click()
    await expect(visitor.page.locator("#facts [data-copy]")).to_have_text("Copied")
    assert await visitor.page.evaluate("navigator.clipboard.readText()") == instance_id


async def test_a_refresh_does_not_take_back_that_it_was_copied(visitor: Visitor, site: Site) -> None:
    instance_id = await site.rent("copied-too")
    await visitor.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await visitor.go(f"/instances/{instance_id}")
    # In the browser itself, because what is looked at lasts for 1.5 s and this machine may be busy.
    seen = await visitor.page.evaluate(
        """async () => {
            const button = () => document.querySelector("#facts [data-copy]");
            const swapped = new Promise(done => addEventListener("htmx:oobAfterSwap", done, {once: true}));
            const before = button();
            before.click();
            while (button().textContent === "Copy") await new Promise(done => setTimeout(done, 5));
            htmx.trigger(document.querySelector("[data-refresh]"), "refresh");
            await swapped;
            return [button() !== before, button().textContent];
        }"""
    )
    assert seen == [True, "Copied"]


async def test_a_revoked_key_ends_an_open_page(signed_out: Visitor, site: Site) -> None:
    _, made = await site.server.call("POST", "/api/keys", {"label": "short", "scopes": ["write"]})
    await signed_out.sign_in(made["key"])
    await expect(signed_out.page.locator("#live-state")).to_have_text("live")
    await site.server.call("DELETE", f"/api/keys/{made['id']}")
    await signed_out.page.evaluate("htmx.trigger(document.querySelector('[data-refresh]'), 'refresh')")
    await expect(signed_out.page.get_by_role("heading", name="Sign in")).to_be_visible()
    # The stream and the refresh were refused, as they should be.
    signed_out.errors.clear()


async def test_the_end_of_an_instance_counts_down_and_can_be_moved_and_kept(
    visitor: Visitor, site: Site
) -> None:
    page = visitor.page
    ends = {"lease": {"seconds": 3600}, "autoStop": {"silenceSeconds": 7200}}
    await visitor.go(f"/instances/{await site.rent('with-an-end', **ends)}")
    end = page.locator("#end")
    await expect(end).to_contain_text("unless somebody says that it is in use", timeout=SLOW)
    lease, silence = end.locator("p.strong time").first, end.locator("p.strong time").last
    before = await lease.get_attribute("datetime")
    await end.locator("[name=hours]").select_option("4")
    await end.get_by_role("button", name="Set the end").click()
    await expect(lease).not_to_have_attribute("datetime", before or "")
    await expect(lease).to_contain_text(re.compile(r"in [34] h"))
    before = await silence.get_attribute("datetime")
    await end.get_by_role("button", name="Keep").click()
    await expect(silence).not_to_have_attribute("datetime", before or "")
