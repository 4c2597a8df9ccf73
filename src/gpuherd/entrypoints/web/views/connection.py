"""The ways into an instance: what to open, what to copy."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from gpuherd.domain.instance.instance import Instance, Status


@dataclass(frozen=True)
class ConnectionOption:
    """One way in: text to copy, and a link where a browser can follow it."""

    title: str
    text: str
    href: str = ""


def connection_options(it: Instance) -> list[ConnectionOption]:
    """Return how to reach it, as far as the cloud says."""
    found = []
    if it.connection.ssh:
        found.append(ConnectionOption("SSH", it.connection.ssh))
    if it.connection.jupyter:
        found.append(ConnectionOption("Jupyter", it.connection.jupyter, link(it.connection.jupyter)))
    if it.connection.web_terminal:
        found.append(
            ConnectionOption("Terminal", it.connection.web_terminal, link(it.connection.web_terminal))
        )
    return found


def commands_for(it: Instance) -> list[ConnectionOption]:
    """Return what to type to go on from a shell."""
    if it.usable:
        return [
            ConnectionOption("Shell", f"gpuherd ssh {it.id}"),
            ConnectionOption("Details", f"gpuherd show {it.id}"),
        ]
    match it.status:
        case Status.EXITED:
            return [
                ConnectionOption("Start", f"gpuherd start {it.id}"),
                ConnectionOption("Delete", f"gpuherd rm {it.id}"),
            ]
        case Status.FAILED:
            return [
                ConnectionOption("Why", f"gpuherd why {it.id}"),
                ConnectionOption("Delete", f"gpuherd rm {it.id}"),
            ]
        case Status.DELETED:
            return [ConnectionOption("Why", f"gpuherd why {it.id}")]
        case _:
            return [
                ConnectionOption("Wait", f"gpuherd wait {it.id}"),
                ConnectionOption("Why", f"gpuherd why {it.id}"),
            ]


def link(address: str) -> str:
    """Return an address that is safe to follow, or nothing: the cloud could send us `javascript:`."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return address if parts.scheme in ("http", "https") and parts.netloc else ""
