"""How the command line reaches its server: as configured, else the one of this user on this machine."""

from __future__ import annotations

from gpuherd.bootstrap.data_dir import stored_admin_key
from gpuherd.entrypoints.cli.runtime.connection import Connection
from gpuherd.settings import Settings


def connection_of(settings: Settings) -> Connection:
    """Return where the server is, and the key that opens it, if one is known."""
    key = settings.api_key or settings.admin_key
    if key is None and settings.url is None:
        key = stored_admin_key(settings.data_dir)
    return Connection(settings.server_url, None if key is None else key.reveal())
