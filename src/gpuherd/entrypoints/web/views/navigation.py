"""Where one can go, for this key, and which events make pages look again."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.domain.access.api_key import Scope
from gpuherd.domain.instance import events
from gpuherd.entrypoints.auth.authorization import PAGE_SCOPES

NAV_ENTRIES = (
    ("/", "Overview"),
    ("/instances", "Instances"),
    ("/offers", "Offers"),
    ("/images", "Images"),
    ("/volumes", "Volumes"),
    ("/secrets", "Secrets"),
    ("/money", "Money"),
    ("/jobs", "Jobs"),
    ("/webhooks", "Webhooks"),
    ("/endpoints", "Endpoints"),
    ("/orphans", "Orphans"),
    ("/keys", "Keys"),
    ("/audit", "Audit"),
    ("/settings", "Settings"),
)


@dataclass(frozen=True)
class NavEntry:
    """One entry of the navigation."""

    path: str
    title: str
    is_here: bool


def navigation(scope: Scope | None, path: str) -> list[NavEntry]:
    """Return the pages that a key may open."""
    if scope is None:
        return []
    return [
        NavEntry(where, title, _is_here(where, path))
        for where, title in NAV_ENTRIES
        if (needed := PAGE_SCOPES["GET", where]) is None or scope.includes(needed)
    ]


def _is_here(where: str, path: str) -> bool:
    return path == where or (where != "/" and path.startswith(f"{where}/"))


def event_types() -> str:
    """Return the names of all events: a browser hears only of those that it asks for by name."""
    named = {value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}
    names = {it for it in named if "." in it} | events.ENDPOINT_WEBHOOK_TYPES
    return " ".join(sorted(names | set(events.STATUS_EVENTS.values())))
