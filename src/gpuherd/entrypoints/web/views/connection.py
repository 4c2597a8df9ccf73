"""The ways into an instance: what to open, what to copy."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from gpuherd.domain.instance import Instance, Status


@dataclass(frozen=True)
class Way:
    """One way in: text to copy, and a link where a browser can follow it."""

    title: str
    text: str
    href: str = ""


def ways_into(it: Instance) -> list[Way]:
    """Return how to reach it, as far as the cloud says."""
    found = []
    if it.connection.ssh:
        found.append(Way("SSH", it.connection.ssh))
    if it.connection.jupyter:
        found.append(Way("Jupyter", it.connection.jupyter, link(it.connection.jupyter)))
    if it.connection.web_terminal:
        found.append(Way("Terminal", it.connection.web_terminal, link(it.connection.web_terminal)))
    return found


def commands_for(it: Instance) -> list[Way]:
    """Return what to type to go on from a shell."""
    if it.usable:
        return [Way("Shell", f"gpuherd ssh {it.id}"), Way("Details", f"gpuherd show {it.id}")]
    match it.status:
        case Status.EXITED:
            return [Way("Start", f"gpuherd start {it.id}"), Way("Delete", f"gpuherd rm {it.id}")]
        case Status.FAILED:
            return [Way("Why", f"gpuherd why {it.id}"), Way("Delete", f"gpuherd rm {it.id}")]
        case Status.DELETED:
            return [Way("Why", f"gpuherd why {it.id}")]
        case _:
            return [Way("Wait", f"gpuherd wait {it.id}"), Way("Why", f"gpuherd why {it.id}")]


def link(address: str) -> str:
    """Return an address that is safe to follow, or nothing: the cloud could send us `javascript:`."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return address if parts.scheme in ("http", "https") and parts.netloc else ""
