"""Every page opens, for everybody who may open it, and says what it should."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpuherd.entrypoints.route_scopes import PAGE_SCOPES
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.entrypoints.web import overview_pages
from gpuherd.ports.instance_port import LiveInstance
from tests.entrypoints.web.conftest import Browser
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd

PLAIN = [path for method, path in PAGE_SCOPES if method == "GET" and "{" not in path]


@pytest.mark.parametrize("path", PLAIN)
async def test_every_page_opens_while_there_is_nothing_yet(admin: Browser, path: str) -> None:
    reply = await admin.open(path)
    assert reply.status_code == (303 if path == "/login" else 200), reply.text[:3000]


@pytest.mark.parametrize("path", PLAIN)
async def test_every_page_opens_with_a_herd(admin: Browser, herd: Herd, path: str) -> None:
    await herd.settle(await herd.launch("alpha", webhook_url="http://127.0.0.1:1/x"))
    await herd.launch("beta")
    reply = await admin.open(path)
    assert reply.status_code == (303 if path == "/login" else 200), reply.text[:3000]


async def test_an_instance_has_a_page(admin: Browser, herd: Herd) -> None:
    it = await herd.settle(await herd.launch("alpha"))
    page = await admin.text(f"/instances/{it.id}")
    assert "alpha" in page and "$0.20/h" in page


async def test_a_large_fleet_is_counted_once_for_all_who_look(
    admin: Browser, herd: Herd, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview_pages, "SUMMARY_CACHED_ABOVE", 2)
    for n in range(3):
        await herd.launch(f"job-{n}")
    first = await admin.text("/")
    await herd.launch("one-more")
    again = await admin.text("/")
    assert "of 3<" in first
    assert "data-busy" not in first
    assert "of 3<" in again
    assert "data-busy" in again, "the page looks again by itself"
    await clock.sleep(overview_pages.SUMMARY_TTL_S)
    assert "of 4<" in await admin.text("/")


async def test_a_page_carries_the_position_that_was_read_before_anything_that_it_shows(
    admin: Browser, herd: Herd, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await herd.launch(name="before")
    known, live = await plane.services.stores.events.newest(), herd.instances.all_live

    async def live_while_something_happens(owner: str | None = None) -> Sequence[LiveInstance]:
        seen = await live(owner)
        await herd.launch(name="meanwhile")
        return seen

    monkeypatch.setattr(herd.instances, "all_live", live_while_something_happens)
    reply = await admin.open("/")
    assert f'data-position="{known}"' in reply.text
    assert reply.headers["gpuherd-event-position"] == str(known)
    assert await plane.services.stores.events.newest() > known
