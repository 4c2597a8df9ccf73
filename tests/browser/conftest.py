"""One server, one simulated cloud and one real browser for all tests of the dashboard as people see it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from tests.support.processes.services import KEY, Novita, Receiver, Server, receiver

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
try:
    from playwright.async_api import (
        Browser,
        BrowserContext,
        Page,
        Request,
        Route,
        async_playwright,
        expect,
    )
except ImportError:
    CHROMIUM = Browser = Page = Request = Route = expect = None  # type: ignore[assignment,misc]

GOOD = {"productName": "RTX 4090 24GB", "templateId": "101"}
# Chromium tells of these by itself, and they are no fault of the page.
HARMLESS = ("favicon", "autocomplete attributes", "Password forms")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip everything here, with one clear reason, where there is no browser."""
    if CHROMIUM is None:
        reason = "browser tests need Chromium and the Python package playwright"
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


@dataclass
class Site:
    """The server, the cloud behind it, and somebody who gets webhooks."""

    server: Server
    novita: Novita
    hook: Receiver

    async def rent(self, name: str, **wish: Any) -> str:
        status, body = await self.server.call("POST", "/api/instances", {**GOOD, "name": name, **wish})
        assert status == 201, body
        return str(body["id"])


@dataclass
class Visitor:
    """A page in the browser, and everything that went wrong or went out while it was open."""

    page: Page
    site: Site
    base_url: str = ""
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def watch(self) -> None:
        self.base_url = self.base_url or self.site.server.url
        self.page.on("console", lambda it: self._heard(it.type, it.text))
        self.page.on("pageerror", lambda it: self.errors.append(str(it)))
        self.page.on(
            "request",
            lambda it: None if self._is_home(it.url) else self.foreign.append(it.url),
        )

    def _is_home(self, url: str) -> bool:
        return urlsplit(url).netloc in (urlsplit(self.base_url).netloc, "")

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(word in text for word in HARMLESS):
            self.errors.append(text)

    async def go(self, path: str) -> None:
        await self.page.goto(self.base_url + path)

    async def sign_in(self, key: str = KEY) -> None:
        await self.go("/login")
        await self.page.get_by_label("API key").fill(key)
        await self.page.get_by_role("button", name="Sign in").click()
        await self.page.wait_for_url(self.site.server.url + "/")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    novita = Novita(directory, speed=60)
    await novita.process.start()
    server = Server(directory, novita)
    try:
        await server.start()
        async with receiver() as hook:
            yield Site(server, novita, hook)
    finally:
        await server.process.end(signal.SIGKILL)
        await novita.process.end(signal.SIGKILL)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        found = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        await found.close()


async def visit(chromium: Browser, site: Site, **options: Any) -> tuple[BrowserContext, Visitor]:
    """Open a browser window of its own."""
    context = await chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    context.set_default_timeout(15_000)
    visitor = Visitor(await context.new_page(), site)
    visitor.watch()
    return context, visitor


@pytest_asyncio.fixture(loop_scope="session")
async def signed_out(chromium: Browser, site: Site) -> AsyncIterator[Visitor]:
    """Somebody without a session; whatever they do, no page may fail or call another host."""
    context, visitor = await visit(chromium, site)
    yield visitor
    await context.close()
    assert visitor.errors == []
    assert visitor.foreign == []


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def admin_state(chromium: Browser, site: Site) -> Any:
    """Sign in once: the cookies of an admin, for everybody who is to be one."""
    context, visitor = await visit(chromium, site)
    await visitor.sign_in()
    state = await context.storage_state()
    await context.close()
    return state


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(signed_out: Visitor, admin_state: Any) -> Visitor:
    """Somebody who has signed in as admin, before the first page."""
    await signed_out.page.context.add_cookies(admin_state["cookies"])
    return signed_out
