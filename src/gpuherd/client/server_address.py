"""Address and key of the server: from arguments, the environment, or the server on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuherd.client.client_errors import BadConfiguration
from gpuherd.domain.secret import Secret
from gpuherd.settings_loading import (
    DEFAULT_PORTS,
    AddressInvalid,
    ServerAddress,
    find_server_address,
    parse_server_address,
)


@dataclass(frozen=True)
class Address:
    """A server and its API key. The key appears in no text."""

    scheme: str
    host: str
    port: int
    # The path below which a proxy serves gpuherd.
    prefix: str
    key: Secret | None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.prefix}"

    @property
    def headers(self) -> dict[str, str]:
        """Return the authentication headers of one request."""
        return {} if self.key is None else {"Authorization": f"Bearer {self.key.reveal()}"}


def find_server(
    url: str | None = None, key: str | Secret | None = None, environ: Mapping[str, str] | None = None
) -> Address:
    """Return the server that the arguments or the environment name, else the one on this machine."""
    try:
        return _address(find_server_address(url, _text(key), environ))
    except AddressInvalid as error:
        raise BadConfiguration(str(error)) from None


def address_of(url: str, key: str | Secret | None) -> Address:
    """Return the server at `url` with its key, or raise `BadConfiguration`."""
    try:
        return _address(parse_server_address(url, _text(key)))
    except AddressInvalid as error:
        raise BadConfiguration(str(error)) from None


def _text(key: str | Secret | None) -> str | None:
    return key.reveal() if isinstance(key, Secret) else key


def _address(found: ServerAddress) -> Address:
    key = None if found.key is None else Secret(found.key)
    return Address(found.scheme, found.host, found.port, found.prefix, key)
