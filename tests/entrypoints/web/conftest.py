"""The dashboard in process: a browser's worth of headers, and sessions by signing in."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from gpuherd.bootstrap.service_lifecycle import build_application
from gpuherd.entrypoints.use_case_access import Plane
from tests.entrypoints.http.conftest import KEY, clock, herd, meter, plane
from tests.support.keys import make_key
from tests.support.sql.fresh_postgres import fresh_postgres, reusable_postgres
from tests.support.sql.postgres import postgres_server

__all__ = ["clock", "fresh_postgres", "herd", "meter", "plane", "postgres_server", "reusable_postgres"]

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Sec-Fetch-Site": "same-origin"}
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a\u202egnp.exe",
    "{{ 7*7 }}",
)
TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')


class Browser:
    """Somebody with a browser: follows nothing by itself, remembers cookies and the word for forms."""

    def __init__(self, client: httpx.AsyncClient):
        self.client = client

    async def open(self, path: str, **headers: str) -> httpx.Response:
        return await self.client.get(path, headers=headers)

    async def text(self, path: str) -> str:
        reply = await self.open(path)
        assert reply.status_code == 200, reply.text[:2000]
        return reply.text

    async def send(self, path: str, **fields: object) -> httpx.Response:
        """Send a form with the word that pages of this session have."""
        found = TOKEN.search((await self.open("/instances")).text)
        assert found is not None
        return await self.client.post(path, data={"form_token": found[1], **fields})

    async def sign_in(self, key: str, **headers: str) -> httpx.Response:
        return await self.client.post("/login", data={"api_key": key}, headers=headers)


async def once_of(browser: Browser, path: str) -> str:
    """Return the word of a fresh form on a page."""
    found = re.search(r'name="once" value="([0-9a-z]+)"', await browser.text(path))
    assert found is not None
    return found[1]


def hostile_parts(page: str) -> list[str]:
    """Return what of the hostile names is more than text on a page."""
    return [it for it in ("<script>alert", "<img src=x", "\u202e", ">49<") if it in page]


@pytest.fixture
async def signed_out(plane: Plane) -> AsyncIterator[Browser]:
    """A browser that has no session."""
    transport = httpx.ASGITransport(build_application(plane), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gpuherd", headers=BROWSER) as client:
        yield Browser(client)


@pytest.fixture
async def admin(signed_out: Browser) -> Browser:
    """A browser that is signed in with the admin key."""
    assert (await signed_out.sign_in(KEY)).status_code == 303
    return signed_out


@pytest.fixture
async def signed_in(plane: Plane, signed_out: Browser) -> AsyncIterator[Callable[[str], Awaitable[Browser]]]:
    """Return a browser that is signed in with a new key of some scope."""

    async def with_scope(scope: str) -> Browser:
        made = await make_key(plane, scope)
        assert (await signed_out.sign_in(made.secret.reveal())).status_code == 303
        return signed_out

    yield with_scope
