"""Who gets in where: pages by a session, the API by a key, and nothing that another site has begun."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx
import pytest

from gpuherd.domain.api_key import Scope
from gpuherd.entrypoints.route_scopes import (
    OPEN,
    PAGE_SCOPES,
    ROUTE_SCOPES,
    SESSION_STREAM,
    UndeclaredRoute,
)
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.entrypoints.web import service_pages, web_app
from gpuherd.entrypoints.web.page_rendering import static_url
from tests.entrypoints.http.conftest import KEY
from tests.entrypoints.web.conftest import Browser
from tests.support.herd import Herd
from tests.support.keys import make_key

SignedIn = Callable[[str], Awaitable[Browser]]
CLOSED = [it for it, scope in PAGE_SCOPES.items() if scope is not OPEN]
FORMS = [path for method, path in PAGE_SCOPES if method == "POST" and path != "/login"]


def filled(path: str, word: str = "anything") -> str:
    return "/".join(word if part.startswith("{") else part for part in path.split("/"))


class TestWithoutASession:
    @pytest.mark.parametrize(("method", "path"), CLOSED)
    async def test_every_closed_page_leads_to_the_login(
        self, signed_out: Browser, method: str, path: str
    ) -> None:
        reply = await signed_out.client.request(method, filled(path))
        assert reply.status_code == 303
        assert reply.headers["location"].startswith("/login")

    async def test_the_way_back_is_kept(self, signed_out: Browser) -> None:
        reply = await signed_out.open("/jobs?status=FAILED&type=x")
        assert reply.headers["location"] == "/login?next=/jobs%3Fstatus%3DFAILED%26type%3Dx"

    async def test_a_program_gets_401_in_json(self, signed_out: Browser) -> None:
        reply = await signed_out.open("/jobs", Accept="*/*")
        assert (reply.status_code, reply.json()["code"]) == (401, "UNAUTHORIZED")

    @pytest.mark.parametrize("accept", ["*/*", "text/html"])
    async def test_the_front_door_leads_to_the_login(self, signed_out: Browser, accept: str) -> None:
        reply = await signed_out.open("/", Accept=accept)
        assert (reply.status_code, reply.headers["location"]) == (303, "/login")
        assert (await signed_out.open("/", Accept="application/json")).status_code == 401

    async def test_a_refresh_of_an_open_page_is_sent_to_the_login_as_a_whole(
        self, signed_out: Browser
    ) -> None:
        reply = await signed_out.client.get("/", headers={"HX-Request": "true", "Accept": "*/*"})
        assert (reply.status_code, reply.headers["hx-redirect"]) == (401, "/login")

    async def test_the_api_still_answers_401_in_json(self, signed_out: Browser) -> None:
        for method, path in ROUTE_SCOPES:
            if path.startswith("/api/"):
                reply = await signed_out.client.request(method, filled(path))
                assert (reply.status_code, reply.json()["code"]) == (401, "UNAUTHORIZED"), path

    async def test_open_pages_are_open(self, signed_out: Browser) -> None:
        for path in ("/login", "/docs", static_url("herd.css")):
            assert (await signed_out.open(path)).status_code == 200, path


class TestWithASession:
    async def test_of_the_api_it_opens_the_stream_of_events_alone(self, admin: Browser) -> None:
        for method, path in ROUTE_SCOPES:
            if path.startswith("/api/") and (method, path) != ("GET", SESSION_STREAM):
                assert (await admin.client.request(method, filled(path))).status_code == 401, (method, path)

    async def test_it_opens_the_stream_for_reading_only(self, admin: Browser) -> None:
        assert (await admin.client.post(SESSION_STREAM)).status_code == 401
        assert (await admin.open(f"{SESSION_STREAM}?lastEventId=nonsense")).status_code == 400

    async def test_a_wrong_key_is_not_made_good_by_a_session(self, admin: Browser) -> None:
        reply = await admin.open(SESSION_STREAM, Authorization="Bearer ghk_wrong")
        assert reply.status_code == 401

    async def test_an_unknown_page_is_a_404_that_looks_like_a_page(self, admin: Browser) -> None:
        for path in (
            "/nothing/here",
            "/instances/inst_00000000000000000000000000",
            "/webhooks/none",
            "/docs/",
        ):
            reply = await admin.open(path)
            assert reply.status_code == 404, path
            assert reply.headers["content-type"].startswith("text/html")
            assert "Overview</a>" in reply.text

    async def test_a_method_that_a_page_has_not_is_405(self, admin: Browser) -> None:
        assert (await admin.client.delete("/jobs")).status_code == 405

    async def test_a_head_is_answered_like_a_get(self, admin: Browser) -> None:
        assert (await admin.client.head("/")).status_code == 200

    async def test_a_key_with_a_limit_of_requests_has_it_here_too(
        self, signed_out: Browser, plane: Plane
    ) -> None:
        made = await make_key(plane, "read", requests_per_minute=2)
        await signed_out.sign_in(made.secret.reveal())
        assert (await signed_out.open(static_url("herd.css"))).status_code == 200, "files are not counted"
        replies = [await signed_out.open("/") for _ in range(3)]
        assert [it.status_code for it in replies] == [200, 200, 429]
        assert replies[2].headers["content-type"].startswith("text/html")


class TestScopes:
    async def test_a_read_key_sees_no_button_that_it_may_not_press(
        self, signed_in: SignedIn, herd: Herd
    ) -> None:
        browser = await signed_in("read")
        for path in ("/", "/instances", "/offers", "/images", "/volumes", "/secrets", "/jobs", "/webhooks"):
            page = await browser.text(path)
            forms = page.count('method="post"')
            assert forms == 1, (path, "only the one to sign out")
            assert "/instances/new" not in page
            for hidden in ("/orphans", "/keys", "/audit", "/settings", "/endpoints"):
                assert f'href="{hidden}"' not in page

    @pytest.mark.parametrize("scope", ["read", "write"])
    async def test_what_a_key_may_not_do_is_refused_all_the_same(
        self, signed_in: SignedIn, scope: str
    ) -> None:
        browser = await signed_in(scope)
        refused = 0
        for (method, path), needed in PAGE_SCOPES.items():
            if needed is not None and not Scope(scope).includes(needed):
                send = browser.send if method == "POST" else browser.open
                reply = await send(filled(path))
                assert reply.status_code == 403, (method, path)
                assert reply.headers["content-type"].startswith("text/html")
                refused += 1
        assert refused > 10

    async def test_a_write_key_sees_its_own_instances_only(
        self, signed_in: SignedIn, herd: Herd, plane: Plane
    ) -> None:
        theirs = await herd.launch("somebody-elses")
        browser = await signed_in("write")
        for path in ("/", "/instances", "/jobs"):
            page = await browser.text(path)
            assert "somebody-elses" not in page
            assert theirs.id not in page
        assert (await browser.open(f"/instances/{theirs.id}")).status_code == 404
        assert (await browser.send(f"/instances/{theirs.id}/delete")).status_code == 404


class TestForms:
    @pytest.mark.parametrize("path", FORMS)
    async def test_no_form_is_taken_without_the_word_of_the_session(self, admin: Browser, path: str) -> None:
        for token in ({"x": "y"}, {"form_token": ""}, {"form_token": "0" * 64}):
            reply = await admin.client.post(filled(path), data=token)
            assert reply.status_code == 403, path

    @pytest.mark.parametrize(
        "headers",
        [
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "", "Origin": "http://evil.example"},
            {"Sec-Fetch-Site": "", "Origin": "null"},
            {"Sec-Fetch-Site": "", "Origin": "http://gpuherd:81"},
        ],
    )
    async def test_what_another_site_has_begun_is_refused(
        self, admin: Browser, plane: Plane, headers: dict[str, str]
    ) -> None:
        session = plane.services.sessions.verified(admin.client.cookies["gpuherd_session"])
        assert session is not None
        data = {"form_token": session.form_token}
        assert (await admin.client.post("/logout", data=data, headers=headers)).status_code == 403
        assert (await admin.client.post("/login", data={"api_key": KEY}, headers=headers)).status_code == 403
        assert (await admin.open("/")).status_code == 200

    async def test_a_proxy_that_speaks_tls_for_us_is_no_other_site(self, admin: Browser) -> None:
        admin.client.headers["Sec-Fetch-Site"] = ""
        admin.client.headers["Origin"] = "https://gpuherd"
        assert (await admin.send("/logout")).status_code == 303

    async def test_only_forms_are_read(self, admin: Browser) -> None:
        reply = await admin.client.post("/logout", json={})
        assert reply.status_code == 400
        many = "&".join(f"a{n}=1" for n in range(300))
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        assert (await admin.client.post("/logout", content=many, headers=form)).status_code == 400
        assert (await admin.client.post("/logout", content=b"a=%ff", headers=form)).status_code == 400


class TestHeaders:
    async def test_every_page_says_what_browsers_may_load(self, admin: Browser) -> None:
        for method, path in PAGE_SCOPES:
            reply = await admin.client.request(method, filled(path))
            policy = reply.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert "unsafe" not in policy
            assert reply.headers["x-frame-options"] == "DENY"
            assert reply.headers["x-content-type-options"] == "nosniff"

    async def test_no_page_is_kept_by_anybody(self, admin: Browser) -> None:
        assert (await admin.open("/")).headers["cache-control"] == "no-store"

    async def test_no_page_has_a_script_or_a_style_in_it(self, admin: Browser, herd: Herd) -> None:
        it = await herd.settle(await herd.launch("alpha"))
        plain = [
            path for method, path in PAGE_SCOPES if method == "GET" and "{" not in path and path != "/login"
        ]
        for path in [*plain, f"/instances/{it.id}"]:
            page = await admin.text(path)
            assert "<style" not in page
            assert ' style="' not in page
            assert page.count("<script") == page.count('<script src="/static/')
            assert "http://" not in page.replace("http://127.0.0.1", "").replace("http://www.w3.org", "")


class TestStaticFiles:
    async def test_a_file_may_be_kept_for_ever_and_has_its_type(self, signed_out: Browser) -> None:
        for name, kind in (
            ("herd.css", "text/css"),
            ("live.js", "text/javascript"),
            ("icon.svg", "image/svg+xml"),
        ):
            reply = await signed_out.open(static_url(name))
            assert reply.headers["content-type"].startswith(kind)
            assert reply.headers["cache-control"] == "public, max-age=31536000, immutable"

    @pytest.mark.parametrize(
        "path",
        [
            "/static/0000000000000000/herd.css",
            "/static/x/../app.py",
            "/static/x/..%2f..%2fapp.py",
            "/static/x/README.md",
            "/static/x/%2e%2e",
            "/static/",
            "/static",
        ],
    )
    async def test_nothing_else_can_be_had(self, signed_out: Browser, path: str) -> None:
        assert (await signed_out.open(path)).status_code in (303, 404)
        assert (await signed_out.open(path, Accept="*/*")).status_code in (401, 404)


def test_a_page_that_nobody_declared_is_not_built(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_app, "PAGES", {**web_app.PAGES, ("GET", "/secret"): service_pages.show_jobs})
    with pytest.raises(UndeclaredRoute, match="/secret"):
        web_app.build_pages(plane, dict)


async def test_a_defect_is_a_page_that_tells_nothing(
    admin: Browser, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("canary of a defect")

    monkeypatch.setattr(plane.services.stores.jobs, "page", broken)
    reply: httpx.Response = await admin.open("/jobs")
    assert reply.status_code == 500
    assert "canary" not in reply.text
    assert "req_" in reply.text
