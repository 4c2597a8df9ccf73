"""How the command line reaches its server: as configured, else the one of this user on this machine."""

from __future__ import annotations

from gpuherd.bootstrap.key_files import stored_admin_key
from gpuherd.client.server_address import Address, address_of
from gpuherd.settings import Settings


def server_address(settings: Settings) -> Address:
    """Return where the server is, and the key that opens it, if one is known."""
    key = settings.api_key or settings.admin_key
    if key is None and settings.url is None:
        key = stored_admin_key(settings.data_dir)
    return address_of(settings.server_url, key)
