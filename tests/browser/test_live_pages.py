"""An open page shows the truth whatever happened to its stream: late, cut, silent, or slept through."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio

from tests.browser.conftest import Page, Request, Route, Site, Visitor, expect
from tests.browser.line import Line, open_line

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]

STREAM = re.compile(r"/api/events(\?|$)")
SLOW = 20_000
# Longer than the server may be silent, in milliseconds.
LONG_SILENCE = 60_000
# Shorter than a request may take before the page gives it up.
STEP = 5_000
# Lets a test put an event into the stream of the page.
KEEP_STREAM = """window.EventSource = class extends EventSource {
    constructor(url) { super(url); window.liveStream = this; }
};"""

# Longer than a page takes for a pause between two ticks of its timer.
HALTED_S = 6.0


@pytest_asyncio.fixture(loop_scope="session")
async def line(site: Site) -> AsyncIterator[Line]:
    async with open_line(site.server.port) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def far(visitor: Visitor, line: Line) -> AsyncIterator[Visitor]:
    """Somebody at the other end of a line that may fail."""
    visitor.base_url = f"http://127.0.0.1:{line.port}"
    yield visitor
    await visitor.page.close()
    # Of connections that were lost, and requests that were given up.
    visitor.errors[:] = [it for it in visitor.errors if not it.startswith("htmx:") and "net::ERR" not in it]


class HeldStream:
    """Keeps the browser's stream from reaching the server until it is let through."""

    def __init__(self, rewritten: str = "") -> None:
        self.asked = asyncio.Event()
        self.urls: list[str] = []
        self._rewritten = rewritten
        self._go = asyncio.Event()

    async def __call__(self, route: Route) -> None:
        self.urls.append(route.request.url)
        self.asked.set()
        await self._go.wait()
        await route.continue_(url=self._rewritten or None)

    def let_through(self) -> None:
        self._go.set()


def is_refresh(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"


async def rent_unseen(site: Site, name: str) -> str:
    instance_id = await site.rent(name)
    assert (await site.server.until_settled(instance_id))["usable"]
    return instance_id


async def is_live(page: Page) -> None:
    await expect(page.locator("#live-state")).to_have_text("live", timeout=SLOW)


@asynccontextmanager
async def halted(page: Page) -> AsyncIterator[None]:
    """Stop the processes that run pages: the browser's own way to freeze them needs a window."""
    browser = page.context.browser
    assert browser is not None
    session = await browser.new_browser_cdp_session()
    running = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
    renderers = [it["id"] for it in running if it["type"] == "renderer"]
    assert renderers
    for pid in renderers:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in renderers:
            os.kill(pid, signal.SIGCONT)
        await session.detach()


async def pass_time(page: Page, ms: int) -> None:
    """Let time pass for a page whose requests are answered.

    Its clock runs faster than the server: a request on the way would seem to hang as long as the clock runs.
    """
    for _ in range(0, ms, STEP):
        await expect(page.locator(".htmx-request")).to_have_count(0, timeout=SLOW)
        await page.clock.run_for(STEP)


@pytest.mark.parametrize("path", ["/", "/instances"])
async def test_what_happens_before_the_stream_opens_is_shown(visitor: Visitor, site: Site, path: str) -> None:
    held = HeldStream()
    await visitor.page.route(STREAM, held)
    await visitor.go(path)
    await held.asked.wait()
    name = f"before-the-stream-{len(path)}"
    await rent_unseen(site, name)
    held.let_through()
    row = visitor.page.locator("tbody tr", has=visitor.page.get_by_role("link", name=name, exact=True))
    await expect(row.first).to_contain_text("running", timeout=SLOW)


async def test_an_instance_that_starts_before_the_stream_opens_is_not_starting_for_ever(
    visitor: Visitor, site: Site
) -> None:
    held = HeldStream()
    await visitor.page.route(STREAM, held)
    instance_id = await site.rent("started-early")
    await visitor.go(f"/instances/{instance_id}")
    await held.asked.wait()
    await site.server.until_settled(instance_id)
    held.let_through()
    await expect(visitor.page.locator("#summary .status")).to_have_text("running", timeout=SLOW)


async def test_the_stream_begins_where_the_page_ends(visitor: Visitor, site: Site) -> None:
    held = HeldStream()
    await visitor.page.route(STREAM, held)
    _, before = await site.server.call("GET", "/api/events/history?limit=1")
    await visitor.go("/instances")
    await held.asked.wait()
    asked = parse_qs(urlsplit(held.urls[0]).query)
    assert int(asked["lastEventId"][0]) >= int(before["lastEventId"])
    held.let_through()
    await is_live(visitor.page)


async def test_every_live_page_is_fetched_again_when_its_stream_opens(visitor: Visitor, site: Site) -> None:
    instance_id = await site.rent("looked-at", webhookUrl=site.hook.url)
    await site.server.until_settled(instance_id)
    _, found = await site.server.call("GET", f"/api/webhooks/deliveries?instanceId={instance_id}")
    delivery = f"/webhooks/{found['deliveries'][0]['id']}"
    for path in ("/", "/instances", f"/instances/{instance_id}", "/jobs", "/webhooks", delivery, "/orphans"):
        # A stream that tells of nothing: jobs, deliveries and alerts change without an event.
        silent = HeldStream(f"{site.server.url}/api/events?type=nothing&keepAlive=event")
        await visitor.page.route(STREAM, silent)
        await visitor.go(path)
        await silent.asked.wait()
        async with visitor.page.expect_request(is_refresh) as refreshed:
            silent.let_through()
        assert urlsplit((await refreshed.value).url).path == path
        await visitor.page.unroute(STREAM)


async def test_what_happens_while_the_line_is_cut_is_shown(far: Visitor, line: Line, site: Site) -> None:
    await far.go("/instances")
    await is_live(far.page)
    line.cut()
    await expect(far.page.locator("#live-state")).to_have_text("polling")
    await rent_unseen(site, "while-cut")
    line.mend()
    await is_live(far.page)
    await expect(far.page.locator("#list")).to_contain_text("while-cut")


async def test_a_stream_that_falls_silent_is_opened_anew(far: Visitor, line: Line, site: Site) -> None:
    await far.page.clock.install()
    await far.go("/instances")
    await is_live(far.page)
    line.fall_silent()
    line.end_idle()
    await rent_unseen(site, "told-to-nobody")
    # Second by second, as on a machine that was awake all the time.
    await far.page.clock.run_for(LONG_SILENCE)
    await expect(far.page.locator("#list")).to_contain_text("told-to-nobody", timeout=SLOW)
    await is_live(far.page)


async def test_a_quiet_stream_is_not_taken_for_a_silent_one(visitor: Visitor, site: Site) -> None:
    opened: list[str] = []
    visitor.page.on("request", lambda it: opened.append(it.url) if "/api/events" in it.url else None)
    await visitor.page.add_init_script(KEEP_STREAM)
    await visitor.page.clock.install()
    await visitor.go("/orphans")
    await is_live(visitor.page)
    for _ in range(4):
        # What the server would send in this time.
        await visitor.page.evaluate("liveStream.dispatchEvent(new MessageEvent('keep-alive', {data: '{}'}))")
        await pass_time(visitor.page, 15_000)
    assert len(opened) == 1


async def test_a_laptop_that_slept_shows_the_truth_at_once(far: Visitor, line: Line, site: Site) -> None:
    await far.page.clock.install()
    await far.go("/instances")
    await is_live(far.page)
    line.fall_silent()
    line.end_idle()
    await rent_unseen(site, "while-asleep")
    # The clock has jumped: each timer that was due fires once, as after a sleep.
    await far.page.clock.fast_forward(LONG_SILENCE * 60)
    await expect(far.page.locator("#list")).to_contain_text("while-asleep", timeout=SLOW)


async def test_a_request_that_died_in_the_sleep_does_not_hold_up_the_next(
    far: Visitor, line: Line, site: Site
) -> None:
    await far.page.add_init_script(KEEP_STREAM)
    await far.page.clock.install()
    # The opened stream makes the page fetch itself; if that died in the silence, the next would wait for it.
    async with far.page.expect_request_finished(is_refresh):
        await far.go("/instances")
    await is_live(far.page)
    line.fall_silent()
    async with far.page.expect_request(is_refresh):
        await far.page.evaluate("liveStream.dispatchEvent(new MessageEvent('message', {data: '{}'}))")
    line.end_idle()
    await rent_unseen(site, "after-a-dead-request")
    await far.page.clock.fast_forward(LONG_SILENCE * 60)
    await expect(far.page.locator("#list")).to_contain_text("after-a-dead-request", timeout=SLOW)


@pytest.mark.parametrize(
    "event",
    [
        "document.dispatchEvent(new Event('resume'))",
        "document.dispatchEvent(new Event('visibilitychange'))",
        "window.dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))",
    ],
    ids=["unfrozen", "visible again", "from the back-forward cache"],
)
async def test_a_page_that_comes_back_does_not_trust_its_old_stream(
    far: Visitor, line: Line, site: Site, event: str
) -> None:
    await far.go("/instances")
    await is_live(far.page)
    line.fall_silent()
    line.end_idle()
    name = f"while-away-{len(event)}"
    await rent_unseen(site, name)
    # Browsers without a window never hide or freeze a page, so its events are made here.
    await far.page.evaluate(event)
    await expect(far.page.locator("#list")).to_contain_text(name, timeout=SLOW)


async def test_a_page_that_was_really_halted_shows_the_truth_when_it_goes_on(
    far: Visitor, line: Line, site: Site
) -> None:
    """As by a host that sleeps: no script runs, no timer fires, and nobody says so afterwards."""
    await far.go("/instances")
    await is_live(far.page)
    async with halted(far.page):
        line.fall_silent()
        line.end_idle()
        await rent_unseen(site, "while-halted")
        # By the real clock: only a gap in that tells the page.
        await asyncio.sleep(HALTED_S)
    await expect(far.page.locator("#list")).to_contain_text("while-halted", timeout=SLOW)


async def test_a_network_that_comes_back_is_used_at_once(far: Visitor, line: Line, site: Site) -> None:
    await far.go("/instances")
    await is_live(far.page)
    line.fall_silent()
    line.end_idle()
    await far.page.context.set_offline(True)
    await rent_unseen(site, "while-offline")
    await far.page.context.set_offline(False)
    await expect(far.page.locator("#list")).to_contain_text("while-offline", timeout=SLOW)


async def test_a_refresh_that_failed_is_repeated(visitor: Visitor, site: Site) -> None:
    page, answered = visitor.page, visitor.page.locator("main:not(.htmx-request)")
    silent = HeldStream(f"{site.server.url}/api/events?type=nothing&keepAlive=event")
    silent.let_through()
    await page.route(STREAM, silent)
    await page.add_init_script(KEEP_STREAM)
    await page.clock.install()
    await visitor.go("/instances")
    await is_live(page)
    await expect(answered).to_be_attached()
    await rent_unseen(site, "refused-at-first")
    await page.route("**/instances", lambda route: route.fulfill(status=503, body=""))
    await page.evaluate("liveStream.dispatchEvent(new MessageEvent('message', {data: '{}'}))")
    # An event is followed by one look at once, and another one later. Both are refused.
    for wait in (500, 2500):
        async with page.expect_response(lambda it: it.status == 503):
            await page.clock.run_for(wait)
        await expect(answered).to_be_attached()
    await page.unroute("**/instances")
    await page.clock.run_for(30_000)
    await expect(page.locator("#list")).to_contain_text("refused-at-first", timeout=SLOW)
    visitor.errors.clear()
