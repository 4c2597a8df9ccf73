"""Where to look: from what the cloud says about a port to a URL, or to a host and a port.

Nothing is checked here; the SSRF-safe client does that with what comes out.
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


class UnusableAddress(Exception):
    """The cloud's words for this port name no place that could be asked."""


def url_of(endpoint: str, path: str) -> str:
    """Return the URL of `path` below `endpoint`, which may itself have a path and a query."""
    if "://" not in endpoint:
        raise UnusableAddress
    try:
        base = urlsplit(endpoint)
    except ValueError:
        raise UnusableAddress from None
    below, _, query = path.partition("?")
    queries = "&".join(filter(None, (base.query, query)))
    return urlunsplit((base.scheme, base.netloc, base.path.rstrip("/") + below, queries, ""))


def host_of(endpoint: str) -> str:
    """Return something that is equal for endpoints on one host; any text will do as an endpoint."""
    authority = (endpoint.partition("://")[2] or endpoint).partition("/")[0]
    return authority.rpartition(":")[0] or authority


def host_and_port(endpoint: str) -> tuple[str, int]:
    """Return both parts of "host:port", where an IPv6 address may stand in brackets."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isascii() or not port.isdigit() or len(port) > 5:
        raise UnusableAddress
    return host, int(port)
