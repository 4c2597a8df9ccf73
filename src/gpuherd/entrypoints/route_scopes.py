"""Which scope each route needs, and which declared route answers a request."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute

from gpuherd.domain.api_key import Scope

OPEN = None
READ, WRITE, ADMIN = Scope.READ, Scope.WRITE, Scope.ADMIN


# Method and path, as they are declared.
RouteKey = tuple[str, str]


ROUTE_SCOPES: dict[RouteKey, Scope | None] = {
    ("GET", "/livez"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/health"): OPEN,
    ("GET", "/metrics"): READ,
    ("POST", "/api/instances"): WRITE,
    ("GET", "/api/instances"): READ,
    ("GET", "/api/instances/comprehensive"): READ,
    ("GET", "/api/instances/{id_or_name}"): READ,
    ("GET", "/api/instances/{id_or_name}/events"): READ,
    ("GET", "/api/instances/{id_or_name}/attempts"): READ,
    ("GET", "/api/instances/{id_or_name}/logs"): READ,
    ("POST", "/api/instances/start"): WRITE,
    ("POST", "/api/instances/stop"): WRITE,
    ("POST", "/api/instances/delete"): WRITE,
    ("POST", "/api/instances/{id_or_name}/start"): WRITE,
    ("POST", "/api/instances/{id_or_name}/restart"): WRITE,
    ("POST", "/api/instances/{id_or_name}/replace"): WRITE,
    ("POST", "/api/instances/{id_or_name}/stop"): WRITE,
    ("POST", "/api/instances/{id_or_name}/lease"): WRITE,
    ("DELETE", "/api/instances/{id_or_name}/lease"): WRITE,
    ("POST", "/api/instances/{id_or_name}/heartbeat"): WRITE,
    ("DELETE", "/api/instances/{id_or_name}"): WRITE,
    ("GET", "/api/events"): READ,
    ("GET", "/api/events/history"): READ,
    ("GET", "/api/operations/{operation_id}"): READ,
    ("GET", "/api/jobs"): READ,
    ("GET", "/api/jobs/stats"): READ,
    ("GET", "/api/jobs/{job_id}"): READ,
    ("POST", "/api/jobs/{job_id}/retry"): WRITE,
    # It asks with a body, but changes nothing; what the key may not do, the plan says.
    ("POST", "/api/plans"): READ,
    ("GET", "/api/plans/{plan_id}"): READ,
    ("GET", "/api/products"): READ,
    ("GET", "/api/templates"): READ,
    ("GET", "/api/templates/{template_id}"): READ,
    ("GET", "/api/regions"): READ,
    ("GET", "/api/cache/stats"): READ,
    ("POST", "/api/cache/clear"): ADMIN,
    ("POST", "/api/cache/cleanup"): ADMIN,
    ("GET", "/api/cloud"): READ,
    ("POST", "/api/cloud/confirm-account"): ADMIN,
    ("POST", "/api/cloud/confirm-loss"): ADMIN,
    ("GET", "/api/creates"): READ,
    ("POST", "/api/creates/resume"): ADMIN,
    ("POST", "/api/sync"): WRITE,
    # Orphans belong to nobody, and may be anybody's: not even their names are for everybody.
    ("GET", "/api/orphans"): ADMIN,
    ("GET", "/api/orphans/{cloud_id}"): ADMIN,
    ("POST", "/api/orphans/resume"): ADMIN,
    ("POST", "/api/orphans/{cloud_id}/adopt"): ADMIN,
    ("POST", "/api/orphans/{cloud_id}/stop"): ADMIN,
    ("POST", "/api/orphans/{cloud_id}/delete"): ADMIN,
    # An endpoint hears of everybody's instances.
    ("GET", "/api/webhooks/endpoints"): ADMIN,
    ("POST", "/api/webhooks/endpoints"): ADMIN,
    ("GET", "/api/webhooks/endpoints/{endpoint_id}"): ADMIN,
    ("DELETE", "/api/webhooks/endpoints/{endpoint_id}"): ADMIN,
    ("POST", "/api/webhooks/endpoints/{endpoint_id}/rotate"): ADMIN,
    ("POST", "/api/webhooks/endpoints/{endpoint_id}/enable"): ADMIN,
    ("GET", "/api/webhooks/deliveries"): READ,
    ("GET", "/api/webhooks/deliveries/{delivery_id}"): READ,
    ("POST", "/api/webhooks/deliveries/{delivery_id}/replay"): WRITE,
    ("POST", "/api/webhooks/replay"): ADMIN,
    ("POST", "/api/webhooks/test"): WRITE,
    ("POST", "/api/keys"): ADMIN,
    ("GET", "/api/keys"): ADMIN,
    # Every key may know what it may.
    ("GET", "/api/keys/self"): READ,
    ("GET", "/api/keys/{key_id}"): ADMIN,
    ("DELETE", "/api/keys/{key_id}"): ADMIN,
    ("GET", "/api/keys/{key_id}/webhook-secret"): WRITE,
    ("POST", "/api/keys/{key_id}/webhook-secret/rotate"): WRITE,
    # Each key has its own; only an admin changes what all may use.
    ("GET", "/api/secrets"): READ,
    ("GET", "/api/secrets/{name}"): READ,
    ("POST", "/api/secrets/rotate"): ADMIN,
    ("PUT", "/api/secrets/{name}"): WRITE,
    ("DELETE", "/api/secrets/{name}"): WRITE,
    ("GET", "/api/audit"): ADMIN,
    # Of a key that is not admin they tell what that key pays for.
    ("GET", "/api/costs"): READ,
    ("GET", "/api/leftovers"): READ,
    # The bill and the balance are the whole account's.
    ("GET", "/api/costs/bill"): ADMIN,
    ("POST", "/api/costs/reconcile"): ADMIN,
    ("GET", "/api/balance"): ADMIN,
    ("GET", "/api/volumes"): READ,
    ("POST", "/api/volumes"): WRITE,
    ("DELETE", "/api/volumes/{volume_id}"): WRITE,
    ("GET", "/api/prewarms"): READ,
    ("POST", "/api/prewarms"): WRITE,
    ("DELETE", "/api/prewarms/{prewarm_id}"): WRITE,
    # Every key rents with these, so only an admin changes them.
    ("GET", "/api/registry-auths"): READ,
    ("GET", "/api/budgets"): ADMIN,
    ("POST", "/api/budgets"): ADMIN,
    ("GET", "/api/budgets/{id_or_name}"): ADMIN,
    ("PATCH", "/api/budgets/{id_or_name}"): ADMIN,
    ("DELETE", "/api/budgets/{id_or_name}"): ADMIN,
}


# These keep the claim of an `Idempotency-Key` in the transaction that accepts them; for all others that write
# something, the middleware keeps it.
NATIVE_CLAIMS = frozenset(
    {
        ("POST", "/api/instances"),
        ("POST", "/api/instances/start"),
        ("POST", "/api/instances/stop"),
        ("POST", "/api/instances/delete"),
        ("POST", "/api/instances/{id_or_name}/start"),
        ("POST", "/api/instances/{id_or_name}/restart"),
        ("POST", "/api/instances/{id_or_name}/replace"),
        ("POST", "/api/instances/{id_or_name}/stop"),
        ("DELETE", "/api/instances/{id_or_name}"),
    }
)


# The dashboard: what a session may open, by the key that it stands for.
PAGE_SCOPES: dict[RouteKey, Scope | None] = {
    ("GET", "/login"): OPEN,
    ("POST", "/login"): OPEN,
    ("GET", "/static/{digest}/{name}"): OPEN,
    ("GET", "/docs"): OPEN,
    ("POST", "/logout"): READ,
    ("GET", "/"): READ,
    ("GET", "/instances"): READ,
    ("GET", "/instances/new"): WRITE,
    ("POST", "/instances/new"): WRITE,
    ("POST", "/instances/plan"): WRITE,
    ("GET", "/instances/{instance_id}"): READ,
    ("GET", "/instances/{instance_id}/log"): READ,
    ("POST", "/instances/{instance_id}/start"): WRITE,
    ("POST", "/instances/{instance_id}/restart"): WRITE,
    ("POST", "/instances/{instance_id}/replace"): WRITE,
    ("POST", "/instances/{instance_id}/lease"): WRITE,
    ("POST", "/instances/{instance_id}/keep"): WRITE,
    ("POST", "/instances/{instance_id}/stop"): WRITE,
    ("POST", "/instances/{instance_id}/delete"): WRITE,
    ("GET", "/offers"): READ,
    ("GET", "/images"): READ,
    ("GET", "/volumes"): READ,
    ("POST", "/volumes"): WRITE,
    ("POST", "/volumes/{volume_id}/delete"): WRITE,
    ("GET", "/secrets"): READ,
    ("POST", "/secrets"): WRITE,
    ("POST", "/secrets/{name}/remove"): WRITE,
    ("GET", "/money"): READ,
    ("GET", "/jobs"): READ,
    ("POST", "/jobs/{job_id}/retry"): WRITE,
    ("GET", "/webhooks"): READ,
    ("POST", "/webhooks/replay"): ADMIN,
    ("GET", "/webhooks/{delivery_id}"): READ,
    ("POST", "/webhooks/{delivery_id}/replay"): WRITE,
    ("GET", "/endpoints"): ADMIN,
    ("POST", "/endpoints"): ADMIN,
    ("POST", "/endpoints/{endpoint_id}/enable"): ADMIN,
    ("POST", "/endpoints/{endpoint_id}/test"): ADMIN,
    ("POST", "/endpoints/{endpoint_id}/rotate"): ADMIN,
    ("POST", "/endpoints/{endpoint_id}/remove"): ADMIN,
    ("GET", "/orphans"): ADMIN,
    ("POST", "/orphans/resume"): ADMIN,
    ("POST", "/orphans/{cloud_id}/adopt"): ADMIN,
    ("POST", "/orphans/{cloud_id}/stop"): ADMIN,
    ("POST", "/orphans/{cloud_id}/delete"): ADMIN,
    ("GET", "/keys"): ADMIN,
    ("POST", "/keys"): ADMIN,
    ("POST", "/keys/{key_id}/revoke"): ADMIN,
    ("POST", "/keys/{key_id}/rotate"): ADMIN,
    ("POST", "/cloud/confirm-account"): ADMIN,
    ("POST", "/cloud/confirm-loss"): ADMIN,
    ("POST", "/creates/resume"): ADMIN,
    ("GET", "/settings"): ADMIN,
    ("GET", "/audit"): ADMIN,
}


# By the first part of their path.
_PAGE_ROOTS = frozenset(path.split("/")[1] for _, path in PAGE_SCOPES)


STATIC_PREFIX = "/static/"


# The one route of the API that a session may read: browsers cannot send a header with an event stream.
SESSION_STREAM = "/api/events"


# What the framework answers by itself.
FRAMEWORK_PATHS = frozenset({"/openapi.json"})


PUBLIC_PATHS = FRAMEWORK_PATHS | {path for (_, path), scope in ROUTE_SCOPES.items() if scope is OPEN}
_NON_PAGE_PATHS = PUBLIC_PATHS | {path for _, path in ROUTE_SCOPES if not path.startswith("/api/")}
SCHEME = "apiKey"


class UndeclaredRoute(Exception):
    """A route of which nobody has said who may use it, or the other way round."""


class RouteTable:
    """Tells which declared route answers a request: the one that the framework will find.

    It compares in the framework's order and with its patterns, so that nothing can be answered by another
    route than the one that was checked.
    """

    def __init__(self, routers: Iterable[APIRouter]):
        routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
        found = {(method, route.path) for route in routes for method in route.methods or ()}
        if found != set(ROUTE_SCOPES):
            raise UndeclaredRoute(
                f"routes and their declarations differ: {sorted(found ^ set(ROUTE_SCOPES))}"
            )
        self._patterns: dict[str, list[tuple[re.Pattern[str], RouteKey]]] = {}
        for route in routes:
            for method in route.methods or ():
                pattern = (route.path_regex, (method, route.path))
                self._patterns.setdefault(method, []).append(pattern)

    def find(self, method: str, path: str) -> RouteKey | None:
        """Return method and path of a route as they are declared, None if there is none."""
        if "{" not in path and (method, path) in ROUTE_SCOPES:
            return method, path
        for pattern, key in self._patterns.get(method, ()):
            if pattern.match(path):
                return key
        return None

    def methods(self, path: str) -> set[str]:
        """Return the methods that a path has; the framework would tell those of its first route only."""
        return {method for method in self._patterns if self.find(method, path)}


def is_page(path: str, wants_html: bool) -> bool:
    """Return True if a path is the dashboard's to answer: its own, and for browsers whatever is nobody's."""
    if path.startswith("/api/") or path in _NON_PAGE_PATHS:
        return False
    return wants_html or path.lstrip("/").split("/", 1)[0] in _PAGE_ROOTS


def is_public_page(method: str, path: str) -> bool:
    """Return True if a page is for everybody."""
    method = "GET" if method == "HEAD" else method
    if path.startswith(STATIC_PREFIX):
        return method == "GET"
    return PAGE_SCOPES.get((method, path), READ) is OPEN


def with_security(document: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI document with what each route needs."""
    schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes[SCHEME] = {
        "type": "http",
        "scheme": "bearer",
        "description": "`Authorization: Bearer ghk_…`; admin includes write, write includes read.",
    }
    for (method, path), scope in ROUTE_SCOPES.items():
        operation = document["paths"][path][method.lower()]
        operation["security"] = [] if scope is OPEN else [{SCHEME: [scope.value]}]
    return document
