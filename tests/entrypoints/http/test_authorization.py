"""Who may use which route: made from the OpenAPI document, so that a new route cannot be forgotten."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from fastapi import APIRouter
from starlette.routing import Match

from gpuherd.bootstrap.service_lifecycle import build_application
from gpuherd.domain.api_key import Scope
from gpuherd.entrypoints import route_scopes
from gpuherd.entrypoints.http import http_app, instance_routes
from gpuherd.entrypoints.route_scopes import (
    OPEN,
    ROUTE_SCOPES,
    RouteTable,
    UndeclaredRoute,
)
from gpuherd.entrypoints.use_case_access import Plane
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd
from tests.support.keys import bearer, make_key

MUTATES = {"post", "put", "patch", "delete"}
# A question that needs a body.
ONLY_ASKS = {("POST", "/api/plans")}
READS_WITH_ADMIN = {
    path for (method, path), scope in ROUTE_SCOPES.items() if method == "GET" and scope is Scope.ADMIN
}


async def routes_of(api: httpx.AsyncClient) -> list[tuple[str, str, dict[str, Any]]]:
    """Return every method and path of the document, with what it says about them."""
    document = (await api.get("/openapi.json")).json()
    return [
        (method.upper(), path, said)
        for path, methods in document["paths"].items()
        for method, said in methods.items()
    ]


def filled(path: str, word: str = "anything") -> str:
    """Return a path with a word in the place of each parameter."""
    if path == "/api/events":
        # A good answer would have no end.
        return f"{path}?lastEventId=none"
    parts = [word if part.startswith("{") else part for part in path.split("/")]
    return "/".join(parts)


class TestEveryRoute:
    async def test_every_route_of_the_document_is_declared_and_the_other_way_round(
        self, anonymous: httpx.AsyncClient
    ) -> None:
        found = {(method, path) for method, path, _ in await routes_of(anonymous)}
        assert found == set(ROUTE_SCOPES)

    async def test_without_a_key_every_closed_route_is_401(self, anonymous: httpx.AsyncClient) -> None:
        for method, path, _ in await routes_of(anonymous):
            reply = await anonymous.request(method, filled(path))
            wanted = ROUTE_SCOPES[method, path]
            assert (reply.status_code == 401) == (wanted is not OPEN), (method, path, reply.status_code)

    async def test_other_methods_of_a_closed_route_are_401_too(self, anonymous: httpx.AsyncClient) -> None:
        for method in ("HEAD", "OPTIONS", "PUT", "PATCH", "TRACE"):
            for path in {path for _, path in ROUTE_SCOPES if path.startswith("/api")}:
                assert (await anonymous.request(method, filled(path))).status_code == 401, (method, path)

    async def test_a_read_key_on_every_mutating_route_is_403(
        self, anonymous: httpx.AsyncClient, plane: Plane
    ) -> None:
        key = await make_key(plane, "read")
        seen = 0
        for method, path, _ in await routes_of(anonymous):
            if method.lower() in MUTATES and (method, path) not in ONLY_ASKS:
                reply = await anonymous.request(method, filled(path), headers=bearer(key), json={})
                assert (reply.status_code, reply.json()["code"]) == (403, "FORBIDDEN"), (method, path)
                seen += 1
        assert seen > 20

    async def test_a_write_key_on_every_admin_route_is_403(
        self, anonymous: httpx.AsyncClient, plane: Plane
    ) -> None:
        key = await make_key(plane, "write")
        for method, path in (it for it, scope in ROUTE_SCOPES.items() if scope is Scope.ADMIN):
            reply = await anonymous.request(method, filled(path), headers=bearer(key), json={})
            assert (reply.status_code, reply.json()["details"]["needed"]) == (403, "admin"), (method, path)

    async def test_an_admin_key_is_refused_nowhere(self, anonymous: httpx.AsyncClient, plane: Plane) -> None:
        for method, path in ROUTE_SCOPES:
            # A fresh one each, since one of the routes could revoke it.
            key = await make_key(plane, "admin")
            reply = await anonymous.request(method, filled(path), headers=bearer(key), json={})
            assert reply.status_code not in (401, 403), (method, path)

    async def test_reading_is_for_every_key_but_where_everybody_s_things_are_shown(self) -> None:
        assert {path.split("/")[2] for path in READS_WITH_ADMIN} == {
            *("orphans", "webhooks", "keys", "audit", "balance", "costs", "budgets")
        }
        assert all("/deliveries" not in path for path in READS_WITH_ADMIN)
        mutating = {it: scope for it, scope in ROUTE_SCOPES.items() if it[0].lower() in MUTATES}
        assert {scope for it, scope in mutating.items() if it not in ONLY_ASKS} == {Scope.WRITE, Scope.ADMIN}
        assert {mutating[it] for it in ONLY_ASKS} == {Scope.READ}

    async def test_the_document_says_what_each_route_needs(self, anonymous: httpx.AsyncClient) -> None:
        for method, path, said in await routes_of(anonymous):
            wanted = ROUTE_SCOPES[method, path]
            assert said["security"] == ([] if wanted is OPEN else [{route_scopes.SCHEME: [wanted.value]}])
        document = (await anonymous.get("/openapi.json")).json()
        assert document["components"]["securitySchemes"][route_scopes.SCHEME]["scheme"] == "bearer"

    def test_a_route_that_nobody_declared_fails_the_build(
        self, plane: Plane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stray = APIRouter()
        stray.get("/api/backdoor")(instance_routes.show)
        with pytest.raises(UndeclaredRoute, match="/api/backdoor"):
            RouteTable([stray, *http_app.ROUTERS])
        # A copy: to take one out and put it back would change the order of the document for others.
        fewer = {route: scope for route, scope in ROUTE_SCOPES.items() if route != ("POST", "/api/sync")}
        monkeypatch.setattr(route_scopes, "ROUTE_SCOPES", fewer)
        with pytest.raises(UndeclaredRoute, match="/api/sync"):
            build_application(plane)

    @pytest.mark.parametrize(
        "word", ["start", "stats", "anything", "a\n", "{id_or_name}", "a{b", "%2F", "", "a/b"]
    )
    @pytest.mark.parametrize("end", ["", "\n", "/", "?"])
    def test_the_route_that_is_checked_is_the_one_that_answers(self, word: str, end: str) -> None:
        table = RouteTable(http_app.ROUTERS)
        routes = [route for router in http_app.ROUTERS for route in router.routes]
        for method, declared in ROUTE_SCOPES:
            path = re.sub(r"\{\w+\}", lambda _: word, declared) + end
            scope = {"type": "http", "method": method, "path": path}
            answers = next((it for it in routes if it.matches(scope)[0] is Match.FULL), None)
            assert table.find(method, path) == (answers and (method, getattr(answers, "path", None))), path

    async def test_a_line_feed_behind_a_path_does_not_lead_around_the_scope(
        self, anonymous: httpx.AsyncClient, plane: Plane
    ) -> None:
        key = bearer(await make_key(plane, "read"))
        for method, path in (
            ("POST", "/api/sync%0A"),
            ("GET", "/api/keys%0A"),
            ("POST", "/api/instances%0A"),
        ):
            assert (await anonymous.request(method, path, json=GOOD, headers=key)).status_code == 403

    async def test_the_short_cut_of_a_create_looks_at_the_scope_too(
        self, anonymous: httpx.AsyncClient, plane: Plane, herd: Herd
    ) -> None:
        reply = await anonymous.post(
            "/api/instances", json=GOOD, headers=bearer(await make_key(plane, "read"))
        )
        assert reply.status_code == 403
        assert herd.rows(herd.tables.instance) == []

    async def test_a_read_key_cannot_sync_by_reading(
        self, anonymous: httpx.AsyncClient, plane: Plane
    ) -> None:
        path = "/api/instances/comprehensive?syncLocalState=true"
        for scope, status in (("read", 403), ("write", 200)):
            reply = await anonymous.get(path, headers=bearer(await make_key(plane, scope)))
            assert reply.status_code == status


BAD_HEADERS: list[Any] = [
    [],
    [("Authorization", "Bearer")],
    [("Authorization", "Bearer ")],
    [("Authorization", "bearer x")],
    [("Authorization", "Basic {key}")],
    [("Authorization", "{key}")],
    [("Authorization", "Bearer {key}x")],
    [("Authorization", "Bearer {prefix}")],
    [("Authorization", "Bearer {other_secret}")],
    [("Authorization", "Bearer {other_id}")],
    [("Authorization", "Bearer {upper}")],
    [("Authorization", "Bearer {key}"), ("Authorization", "Bearer {key}")],
    [("Authorization", "Bearer {key}"), ("Authorization", "Bearer x")],
    [("Authorization", "Bearer {key} {key}")],
    [("Authorization", "Bearer \u00e9{key}".encode("latin-1").decode("latin-1"))],
    [("Authorization", "Bearer \x00")],
    [("Authorization", "Bearer " + "k" * 1_000_000)],
    [("X-Api-Key", "{key}")],
    [("Cookie", "Authorization={key}")],
    [("X-Forwarded-For", "127.0.0.1"), ("X-Original-URL", "/livez"), ("X-HTTP-Method-Override", "GET")],
]


class TestBadKeys:
    @pytest.mark.parametrize("headers", BAD_HEADERS, ids=lambda it: str(it)[:60])
    async def test_a_bad_key_opens_nothing(
        self, anonymous: httpx.AsyncClient, plane: Plane, headers: list[tuple[str, str]]
    ) -> None:
        made = await make_key(plane, "admin")
        key = made.secret.reveal()
        words = {
            "{key}": key,
            "{prefix}": key[:-1],
            "{other_secret}": f"{key[:13]}{'A' * len(key[13:])}",
            "{other_id}": f"ghk_00000000{key[12:]}",
            "{upper}": key.upper(),
        }
        sent = []
        for name, value in headers:
            for word, meaning in words.items():
                value = value.replace(word, meaning)
            sent.append((name.encode(), value.encode("latin-1")))
        reply = await anonymous.get("/api/instances", headers=sent)
        assert reply.status_code in (401, 431)  # a key may be longer than a head
        if reply.status_code == 401:
            assert reply.headers["www-authenticate"] == "Bearer"
        assert key not in reply.text

    async def test_the_good_key_opens(self, anonymous: httpx.AsyncClient, plane: Plane) -> None:
        made = await make_key(plane, "read")
        for scheme in ("Bearer", "bearer"):
            headers = {"Authorization": f"{scheme} {made.secret.reveal()}"}
            assert (await anonymous.get("/api/instances", headers=headers)).status_code == 200

    @pytest.mark.parametrize("name", ["key", "api_key", "apikey", "API_KEY", "access_token", "token", "x"])
    async def test_a_key_in_the_address_is_refused_even_beside_a_good_one_and_told_to_nobody(
        self,
        api: httpx.AsyncClient,
        plane: Plane,
        name: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        key = (await make_key(plane, "admin")).secret.reveal()
        reply = await api.get(f"/api/instances?{name}={key}")
        assert reply.status_code == 401
        written = capsys.readouterr()
        assert key not in reply.text + written.out + written.err

    @pytest.mark.parametrize(
        "path",
        [
            "//api/instances",
            "/livez/../api/instances",
            "/livez/..%2fapi/instances",
            "/api/instances/",
            "/api/instances.",
            "/API/instances",
            "/livez/",
            "/LIVEZ",
            "/docs/",
            "/docs/oauth2-redirect",
            "/metrics",
        ],
    )
    async def test_no_spelling_of_a_path_gets_past(self, anonymous: httpx.AsyncClient, path: str) -> None:
        assert (await anonymous.get(f"http://gpuherd{path}")).status_code == 401
