"""Signing out holds in every replica and for streams that are open; while nobody can tell, it is assumed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import httpx
import pytest

from gpuherd.bootstrap.build_services import build_services
from gpuherd.bootstrap.service_lifecycle import build_application
from gpuherd.domain.secret import Secret
from gpuherd.entrypoints.http.service_routes import SESSION_RECHECK_INTERVAL
from gpuherd.entrypoints.route_scopes import SESSION_STREAM
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.entrypoints.web.page_rendering import static_url
from gpuherd.ports.clock_port import Ids
from gpuherd.usecases.access.sign_in import SESSION_LIFETIME, Sessions
from tests.entrypoints.http.conftest import KEY
from tests.entrypoints.web.conftest import BROWSER, Browser
from tests.support.event_streams import asking
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.keys import make_key
from tests.support.memory.revoked_sessions import MemoryRevokedSessions


@pytest.fixture
def clock() -> FakeClock:
    # One that runs by itself would fill an idle stream with heartbeats.
    return FakeClock()


@pytest.fixture
def other_plane(plane: Plane, herd: Herd) -> Plane:
    """What another replica, or the next process, has: the same database, and nothing else in common."""
    return replace(plane, services=build_services(herd.ports, herd.values))


@pytest.fixture
def ended() -> MemoryRevokedSessions:
    return MemoryRevokedSessions()


@pytest.fixture
def fragile_plane(plane: Plane, herd: Herd, ended: MemoryRevokedSessions) -> Plane:
    """One whose memory of ended sessions can be away by itself."""
    sessions = Sessions(Secret(KEY), ended, herd.clock, Ids(herd.clock, herd.rng), rounds=1)
    return replace(plane, services=replace(plane.services, sessions=sessions))


@pytest.fixture
async def browsers() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def browser_at(plane: Plane, browsers: AsyncExitStack) -> Browser:
    transport = httpx.ASGITransport(build_application(plane), raise_app_exceptions=False)
    client = httpx.AsyncClient(transport=transport, base_url="http://gpuherd", headers=BROWSER)
    return Browser(await browsers.enter_async_context(client))


def cookies_of(browser: Browser) -> dict[str, str]:
    return {"Cookie": "; ".join(f"{name}={value}" for name, value in browser.client.cookies.items())}


class TestReplicas:
    async def test_a_session_is_good_everywhere_until_it_is_signed_out_of_anywhere(
        self, admin: Browser, other_plane: Plane, browsers: AsyncExitStack
    ) -> None:
        there = await browser_at(other_plane, browsers)
        there.client.cookies.update(admin.client.cookies)
        assert (await there.open("/")).status_code == 200
        assert (await admin.send("/logout")).status_code == 303
        assert (await there.open("/")).headers["location"] == "/login"
        assert (await there.open(SESSION_STREAM)).status_code == 401

    async def test_other_sessions_of_the_same_key_go_on(
        self, admin: Browser, other_plane: Plane, browsers: AsyncExitStack
    ) -> None:
        there = await browser_at(other_plane, browsers)
        assert (await there.sign_in(KEY)).status_code == 303
        await admin.send("/logout")
        assert (await there.open("/")).status_code == 200

    async def test_the_pages_that_need_no_session_ask_nobody(
        self, fragile_plane: Plane, ended: MemoryRevokedSessions, browsers: AsyncExitStack
    ) -> None:
        browser = await browser_at(fragile_plane, browsers)
        await browser.sign_in(KEY)
        assert (await browser.open("/jobs")).status_code == 200
        assert ended.reads == 1
        assert (await browser.open(static_url("herd.css"))).status_code == 200
        assert ended.reads == 1


class TestStreams:
    async def test_an_open_stream_ends_with_its_session(
        self, admin: Browser, plane: Plane, clock: FakeClock
    ) -> None:
        app, mine = build_application(plane), cookies_of(admin)
        by_key = {"Authorization": f"Bearer {KEY}"}
        async with asking(app, SESSION_STREAM, mine) as stream, asking(app, SESSION_STREAM, by_key) as other:
            await clock.settle()
            assert stream.status == 200
            await admin.send("/logout")
            await clock.settle()
            assert (stream.complete, other.complete) == (True, False)

    async def test_it_ends_after_twelve_hours_too(
        self, admin: Browser, plane: Plane, clock: FakeClock
    ) -> None:
        await clock.advance(SESSION_LIFETIME.total_seconds() - 10)
        async with asking(build_application(plane), SESSION_STREAM, cookies_of(admin)) as stream:
            await clock.advance(8)
            assert (stream.status, stream.complete) == (200, False)
            await clock.advance(4)
            assert stream.complete

    async def test_it_is_asked_again_now_and_then(
        self, admin: Browser, plane: Plane, clock: FakeClock
    ) -> None:
        app, mine = build_application(plane), cookies_of(admin)
        async with asking(app, SESSION_STREAM, mine) as stream:
            await clock.advance(SESSION_RECHECK_INTERVAL.total_seconds() - 1)
            assert not stream.complete
            await clock.advance(2)
            assert stream.complete
        async with asking(app, SESSION_STREAM, mine) as again:
            await clock.settle()
            assert (again.status, again.complete) == (200, False)

    async def test_when_news_may_have_been_missed_a_session_is_asked_again(
        self, admin: Browser, plane: Plane, herd: Herd, clock: FakeClock
    ) -> None:
        app, mine = build_application(plane), cookies_of(admin)
        by_key = {"Authorization": f"Bearer {KEY}"}
        async with asking(app, SESSION_STREAM, mine) as stream, asking(app, SESSION_STREAM, by_key) as other:
            await clock.settle()
            herd.hub.everything_changed()
            await clock.settle()
            assert (stream.complete, other.complete) == (True, False)
        async with asking(app, SESSION_STREAM, mine) as again:
            await clock.settle()
            assert again.status == 200


class TestWithoutTheStore:
    @pytest.fixture
    async def browser(
        self, fragile_plane: Plane, ended: MemoryRevokedSessions, browsers: AsyncExitStack
    ) -> Browser:
        browser = await browser_at(fragile_plane, browsers)
        assert (await browser.sign_in(KEY)).status_code == 303
        ended.is_away = True
        return browser

    async def test_a_page_says_so_as_a_page_and_lets_nobody_in(
        self, browser: Browser, ended: MemoryRevokedSessions
    ) -> None:
        for path in ("/", "/jobs", "/keys"):
            reply = await browser.open(path)
            assert reply.status_code == 503
            assert reply.headers["content-type"].startswith("text/html")
            assert "STORE_UNAVAILABLE" in reply.text
            assert 'href="/keys"' not in reply.text
        ended.is_away = False
        assert (await browser.open("/")).status_code == 200

    async def test_the_stream_of_events_does_not_open(self, browser: Browser) -> None:
        reply = await browser.open(SESSION_STREAM)
        assert (reply.status_code, reply.json()["code"]) == (503, "STORE_UNAVAILABLE")

    async def test_what_is_for_everybody_stays_so(self, browser: Browser) -> None:
        for path in ("/login", "/docs", static_url("herd.css")):
            assert (await browser.open(path)).status_code == 200, path

    async def test_nobody_is_told_that_he_is_out_when_he_is_not(
        self, browser: Browser, ended: MemoryRevokedSessions
    ) -> None:
        ended.is_away = False
        found = await browser.text("/instances")
        token = found.split('name="form_token" value="')[1].split('"')[0]
        ended.is_away = True
        reply = await browser.client.post("/logout", data={"form_token": token})
        assert reply.status_code == 503
        assert "set-cookie" not in reply.headers


async def test_a_key_past_its_limit_still_gets_a_page_that_says_so(signed_out: Browser, plane: Plane) -> None:
    made = await make_key(plane, "read", requests_per_minute=1)
    await signed_out.sign_in(made.secret.reveal())
    assert (await signed_out.open("/")).status_code == 200
    refused = await signed_out.open("/")
    assert refused.status_code == 429
    assert refused.headers["content-type"].startswith("text/html")
    assert "1 requests a minute" in refused.text
