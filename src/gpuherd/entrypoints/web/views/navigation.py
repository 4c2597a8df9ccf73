"""Where one can go, for this key, and which events make pages look again."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.domain import events
from gpuherd.domain.api_key import Scope
from gpuherd.entrypoints.http.access import PAGES

PLACES = (
    ("/", "Overview"),
    ("/instances", "Instances"),
    ("/offers", "Offers"),
    ("/jobs", "Jobs"),
    ("/webhooks", "Webhooks"),
    ("/endpoints", "Endpoints"),
    ("/orphans", "Orphans"),
    ("/keys", "Keys"),
    ("/audit", "Audit"),
    ("/settings", "Settings"),
)


@dataclass(frozen=True)
class Place:
    """One entry of the navigation."""

    path: str
    title: str
    is_here: bool


def navigation(scope: Scope | None, path: str) -> list[Place]:
    """Return the pages that a key may open."""
    if scope is None:
        return []
    return [
        Place(where, title, _is_here(where, path))
        for where, title in PLACES
        if (needed := PAGES["GET", where]) is None or scope.includes(needed)
    ]


def _is_here(where: str, path: str) -> bool:
    return path == where or (where != "/" and path.startswith(f"{where}/"))


def event_types() -> str:
    """Return the names of all events: a browser hears only of those that it asks for by name."""
    named = {value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}
    told = {it for it in named if "." in it} | events.WEBHOOK_TYPES
    return " ".join(sorted(told | set(events.STATUS_EVENTS.values())))
